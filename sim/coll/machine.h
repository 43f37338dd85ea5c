/*
 * One node of a system of the database as NCCL would see it: sockets, PCIe
 * switches, GPUs, NVLink, NICs and their affinity, written as the XML that
 * mw_nccl_machine_parse() reads (and NCCL_TOPO_FILE accepts).
 *
 * What hangs where is read from the columns gpu_to_nic, cpu, cpu_sockets,
 * gpu_host_link, nvswitch_gen and intra_fabric of systems.csv and cc, links of
 * gpus.csv. Bus numbers are made up; their order is that of the device
 * numbers. Several trays of one NVLink domain are one machine.
 */
#ifndef MW_SIM_COLL_MACHINE_H
#define MW_SIM_COLL_MACHINE_H

#include "base/err.h"
#include "base/mem.h"
#include "hwdb/hwdb.h"

#include <stdbool.h>
#include <stdint.h>

/* What a system's node looks like; see mw_machine_describe. */
struct mw_machine_shape {
    int sm;             /* compute capability x 10 */
    int n_gpus, n_nics; /* of a whole node */
    uint64_t nic_mask;  /* bit k: NIC k is used; 0: all */
    int n_sockets;
    int gpus_per_switch; /* 0: on the socket itself */
    int nics_per_switch; /* 0: NICs on the sockets */
    int pcie_gen;
    int nic_Mbps;
    int n_links; /* NVLink links of a GPU; 0: none */
    bool has_nvswitch, is_cube_mesh, has_c2c;
    bool no_gdr;    /* NICs do not reach GPUs' memory by themselves */
    int mesh_links; /* links to every other GPU of the node */
    const char *cpu_arch, *cpu_vendor; /* as NCCL spells them; vendor may be
                                          NULL */
    int cpu_family, cpu_model;
};

/* Is there an NCCL for this device (NVIDIA GPUs)? */
bool mw_machine_has_nccl(const struct mw_hwdb *db,
                         const struct mw_system *system);
/* MW_EINPUT when the device is no NVIDIA GPU. */
enum mw_status mw_machine_describe(const struct mw_hwdb *db,
                                   const struct mw_system *system,
                                   struct mw_machine_shape *out,
                                   struct mw_err *err);
/* Which of a node's GPUs: `gpus` of them, `stride` apart (0: 1), from the
 * first, on each of `n_trays` nodes of one NVLink domain (1 for others).
 * own_nics_only: NICs beside GPUs that are left out belong to others and are
 * left out as well. */
struct mw_machine_part {
    int gpus, stride, n_trays;
    bool own_nics_only;
};
/* The XML of these. */
void mw_machine_xml(const struct mw_machine_shape *shape,
                    const struct mw_machine_part *part, struct mw_str *out);

#endif
