/*
 * Inside of NCCL behind the communication table: what comm_nccl.c (making,
 * ending, collectives) and lanes_nccl.c (messages) share.
 */
#ifndef MW_EXEC_NCCL_INT_H
#define MW_EXEC_NCCL_INT_H

#include "exec/cuda/cuda_int.h"
#include "exec/cuda/mw_cuda.h"

/* Returns the status up. */
#define TRY(call)                                                              \
    do {                                                                       \
        enum mw_status try_ = (call);                                          \
        if (try_ != MW_OK) {                                                   \
            return try_;                                                       \
        }                                                                      \
    } while (0)

/* One direction between two ranks: the sender is rank 0 of its communicator. */
struct lane {
    ncclComm_t comm;
    cudaStream_t stream;
};

struct channel {
    int peer;
    struct lane out, in;
};

/* A message that came before it was asked for. */
struct early {
    int peer;
    int64_t tag;
    void *mem;
    size_t bytes;
};

/* Memory that a send reads after its caller has gone on; used again once
 * `done` has passed. */
struct parcel {
    void *mem;
    size_t bytes;
    cudaEvent_t done;
};

struct comm_nccl {
    struct mw_comm base;
    struct mw_cuda *dev;
    struct mw_comm *host;    /* for buffers of the host */
    struct mw_comm *control; /* headers; NULL in what was split */
    bool owns_host;
    ncclComm_t nccl; /* NULL for one rank */
    cudaEvent_t ready;
    struct channel *channels;
    int n_channels;
    MW_ARRAY(struct early) early;
    MW_ARRAY(struct parcel) parcels;
};

static inline struct comm_nccl *mw_nccl_self(struct mw_comm *comm)
{
    return (struct comm_nccl *)comm;
}

ncclDataType_t mw_nccl_type_of(enum mw_elem elem);
/* MW_OK when is_ok, else the device's fault. */
enum mw_status mw_nccl_check(struct comm_nccl *c, bool is_ok,
                             struct mw_err *err);
/* Whether p is memory of the device; the device's fault when it has failed:
 * a rank that took the host's way by mistake would leave the others waiting. */
enum mw_status mw_nccl_where(struct comm_nccl *c, const void *p,
                             bool *out_is_on_device, struct mw_err *err);

/* Waits for the end of an operation on c's communicator that `rc` began. */
enum mw_status mw_nccl_finish(struct comm_nccl *c, ncclResult_t rc,
                              const char *call, struct mw_err *err);

/* ---- blocks of different lengths: comm_nccl_v.c ---------------------------
 */
enum mw_status mw_nccl_all_to_all(struct mw_comm *comm, const void *from,
                                  void *to, size_t n, enum mw_elem elem,
                                  struct mw_err *err);
enum mw_status mw_nccl_all_to_all_v(struct mw_comm *comm, const void *from,
                                    const size_t *n_from, void *to,
                                    const size_t *n_to, enum mw_elem elem,
                                    struct mw_err *err);
enum mw_status mw_nccl_all_gather_v(struct mw_comm *comm, void *buf,
                                    const size_t *n, enum mw_elem elem,
                                    struct mw_err *err);
enum mw_status mw_nccl_reduce_scatter_v(struct mw_comm *comm, void *buf,
                                        const size_t *n, enum mw_elem elem,
                                        struct mw_err *err);

/* Joins a communicator of `size` ranks that share the id; *out is watched. */
enum mw_status mw_nccl_join(struct mw_cuda *dev, const ncclUniqueId *id,
                            int rank, int size, ncclComm_t *out,
                            struct mw_err *err);
/* Ends a communicator; nothing to do for NULL. */
void mw_nccl_leave(struct mw_cuda *dev, ncclComm_t comm);

/* ---- virtual ranks on one GPU: comm_shared.c ------------------------------
 * Around a communicator of threads of this process (comm_local.c). MW_EUSAGE
 * for more ranks than a reduction takes. */
enum mw_status mw_comm_shared_wrap(struct mw_cuda *dev, struct mw_comm *host,
                                   struct mw_comm **out, struct mw_err *err);

/* ---- messages: lanes_nccl.c ---------------------------------------------- */
enum mw_status mw_nccl_open_channels(struct comm_nccl *c, const int *peers,
                                     int n_peers, struct mw_err *err);
void mw_nccl_close_channels(struct comm_nccl *c);
enum mw_status mw_nccl_send(struct mw_comm *comm, const void *buf, size_t n,
                            enum mw_elem elem, int peer, int tag,
                            struct mw_send *out, struct mw_err *err);
enum mw_status mw_nccl_recv(struct mw_comm *comm, void *buf, size_t n,
                            enum mw_elem elem, int peer, int tag,
                            struct mw_err *err);
enum mw_status mw_nccl_wait(struct mw_comm *comm, struct mw_send *send,
                            struct mw_err *err);

#endif
