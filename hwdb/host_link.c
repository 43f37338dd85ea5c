/*
 * The way between a device and its host's memory.
 *
 *   link  a PCIe slot at the rate that large copies reach (pcie.csv), by its
 *         lanes; a chip-to-chip link at the constant c2c_efficiency of its
 *         rate; over the devices that hang on one switch and share its slot
 *   mem   the memory of the node's sockets together, wire rate: the constant
 *         host_mem_rate.SLUG, else host_mem_rate
 *
 *   nvme  the node's drives together: nvme_rate.SLUG, else nvme_rate, as far as
 *         training reaches it (nvme_efficiency); writes a share of that
 *
 * A constant host_link_rate.SLUG comes before the link's rate (a calibration).
 * NaN where the table does not know. Left out: NUMA, both directions at once.
 */
#include "hwdb/hwdb_int.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double constant_or_nan(const struct mw_hwdb *db, const char *name)
{
    const struct mw_constant *c = mw_hw_constant(db, name);

    return c != NULL ? c->value : (double)NAN;
}

/* "PCIe5 x16", "PCIe3": 16 lanes where none are said. */
static double pcie_Bps(const struct mw_hwdb *db, const char *text)
{
    const struct mw_hw_pcie_row *rows =
        MW_HW_ROWS(db, MW_HW_PCIE, struct mw_hw_pcie_row);
    const char *x = strchr(text, 'x');
    double lanes = x != NULL ? strtod(x + 1, NULL) : 16;

    for (size_t i = 0; i < mw_hw_n_rows(db, MW_HW_PCIE); i++) {
        size_t n = strlen(rows[i].gen);
        double rate = rows[i].x16_GBps_per_dir_achieved;

        if (strncmp(text, rows[i].gen, n) != 0 ||
            isdigit((unsigned char)text[n])) {
            continue;
        }
        if (isnan(rate)) {
            rate = rows[i].x16_GBps_per_dir_theory *
                   constant_or_nan(db, "pcie_efficiency");
        }
        return rate * 1e9 * lanes / 16;
    }
    return (double)NAN;
}

static double link_Bps(const struct mw_hwdb *db, const char *text)
{
    if (strncmp(text, "PCIe", 4) == 0) {
        return pcie_Bps(db, text + 4);
    }
    return strncmp(text, "C2C ", 4) == 0
               ? strtod(text + 4, NULL) * 1e9 *
                     constant_or_nan(db, "c2c_efficiency")
               : (double)NAN;
}

/* "2 GPUs + 1 NIC per PCIe switch": they share the switch's slot. */
static double sharers(const char *gpu_to_nic)
{
    char *end;
    double n = strtod(gpu_to_nic, &end);

    return n > 1 && strncmp(end, " GPUs +", 7) == 0 &&
                   strstr(end, "switch") != NULL
               ? n
               : 1;
}

void mw_hw_set_host(const struct mw_hwdb *db,
                    const struct mw_hw_system_row *row, struct mw_system *s)
{
    const struct mw_constant *link =
        mw_hw_constant_of(db, "host_link_rate", s->slug, NULL);
    const struct mw_constant *mem =
        mw_hw_constant_of(db, "host_mem_rate", s->slug, NULL);

    const struct mw_constant *nvme =
        mw_hw_constant_of(db, "nvme_rate", s->slug, NULL);

    s->nvme_read_Bps =
        (nvme != NULL ? nvme->value : constant_or_nan(db, "nvme_rate")) *
        constant_or_nan(db, "nvme_efficiency");
    s->nvme_write_Bps =
        s->nvme_read_Bps * constant_or_nan(db, "nvme_write_share");
    s->host_link_Bps = link != NULL ? link->value
                                    : link_Bps(db, row->gpu_host_link) /
                                          sharers(row->gpu_to_nic);
    s->host_mem_Bps =
        mem != NULL ? mem->value : constant_or_nan(db, "host_mem_rate");
}
