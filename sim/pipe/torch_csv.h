/*
 * The CSV format of torch.distributed.pipelining (_PipelineSchedule's
 * _dump_csv and _load_csv): a line a rank, a cell an action, "STAGE OP
 * MICROBATCH" without spaces: 0F0, 3I1 (input gradient), 3W1, 0B2 (whole
 * backward), "(0F8;7B0)OVERLAP_F_B". Empty cells are waiting and mean nothing.
 * STAGE is the virtual stage.
 */
#ifndef MW_SIM_PIPE_TORCH_CSV_H
#define MW_SIM_PIPE_TORCH_CSV_H

#include "sim/pipe/schedule.h"

enum { MW_TORCH_CSV_MAX = 64 << 20 };

/*
 * Reads text of such a file. Communication and sharding actions (SEND_F,
 * RECV_F, SEND_B, RECV_B, UNSHARD, RESHARD, REDUCE_GRAD) are passed over: they
 * follow from the order. The placement (loop or V) is told from the stages on
 * each line. The result is read, not checked: call mw_schedule_check.
 * MW_EINPUT: "FILE:LINE:COLUMN: '0X1' is not an action; ...".
 */
enum mw_status mw_torch_csv_parse(const char *file, const char *text,
                                  size_t len, struct mw_schedule *out,
                                  struct mw_err *err);

/* Appends the compute actions of a schedule. MW_EUSAGE for what the format has
 * no words for: two routes, parts of a sequence. */
enum mw_status mw_torch_csv_add(const struct mw_schedule *s,
                                struct mw_str *text, struct mw_err *err);

#endif
