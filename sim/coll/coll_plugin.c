/*
 * The network plugin behind a system's NICs: a row of coll_plugins.csv whose
 * `nic` begins the name of the NIC in systems.csv (the longest wins); "Socket"
 * is NCCL's own transport over TCP.
 */
#include "sim/coll/coll_int.h"

#include "base/csv.h"
#include "base/file.h"

#include <stdio.h>
#include <string.h>

struct row {
    const char *nic, *protocols;
    double latency_us, gdr, ring_GBps, copy_above_bytes, copy_us, copy_GBps;
};

static const char *nic_of(const struct mw_hwdb *db, const char *slug)
{
    const struct mw_csv *csv = mw_hwdb_table(db, "systems");
    int key = csv ? mw_csv_col(csv, "slug") : -1;
    for (size_t r = 0; key >= 0 && r < csv->n_rows; r++) {
        if (strcmp(mw_csv_str(csv, r, key), slug) == 0) {
            return mw_csv_str(csv, r, mw_csv_col(csv, "nic_type"));
        }
    }
    return "";
}

/* "ll;ll128;simple" */
static uint8_t protocols_of(const char *text)
{
    uint8_t bits = 0;
    for (const char *p = text; *p != '\0';) {
        size_t n = strcspn(p, ";");
        for (int i = 0; i < MW_NCCL_PROTOS; i++) {
            const char *name = mw_nccl_proto_name((enum mw_nccl_proto)i);
            if (strlen(name) == n && strncmp(name, p, n) == 0) {
                bits |= (uint8_t)(1U << i);
            }
        }
        p += n;
        p += *p == ';';
    }
    return bits;
}

static enum mw_status read_rows(const char *path, struct mw_arena *arena,
                                struct row **out, size_t *out_n,
                                struct mw_err *err)
{
    static const struct mw_csv_field fields[] = {
        {"nic", MW_C_STR, offsetof(struct row, nic), true, 0, 0, 0},
        {"latency_us", MW_C_NUM, offsetof(struct row, latency_us), true, 0, 1e6,
         0},
        {"protocols", MW_C_STR, offsetof(struct row, protocols), true, 0, 0, 0},
        {"gdr", MW_C_NUM, offsetof(struct row, gdr), false, 0, 1, 1},
        {"ring_GBps", MW_C_NUM, offsetof(struct row, ring_GBps), false, 0, 1e6,
         0},
        {"copy_above_bytes", MW_C_NUM, offsetof(struct row, copy_above_bytes),
         false, 0, 1e9, 0},
        {"copy_us", MW_C_NUM, offsetof(struct row, copy_us), false, 0, 1e6, 0},
        {"copy_GBps", MW_C_NUM, offsetof(struct row, copy_GBps), false, 0, 1e6,
         0},
        {.name = NULL}};
    struct mw_csv csv;
    void *rows = NULL;
    enum mw_status s = mw_csv_load(path, arena, &csv, err);
    if (s == MW_OK) {
        s = mw_csv_bind(&csv, fields, sizeof(struct row), false, arena, &rows,
                        err);
    }
    for (size_t i = 0; s == MW_OK && i < csv.n_rows; i++) {
        if (protocols_of(((struct row *)rows)[i].protocols) == 0) {
            return mw_csv_fail(&csv, i, mw_csv_col(&csv, "protocols"), err,
                               "no protocol; some of ll, ll128, simple, "
                               "separated by ;");
        }
    }
    if (s == MW_OK) {
        *out = rows;
        *out_n = csv.n_rows;
    }
    return s;
}

enum mw_status coll_plugin_find(const struct mw_hwdb *db,
                                const struct mw_system *system, bool is_socket,
                                struct coll_plugin *out, struct mw_err *err)
{
    char path[MW_COLL_PATH_MAX];
    struct mw_arena arena;
    struct row *rows = NULL;
    size_t n = 0, longest = 0;
    struct coll_plugin found = {.is_any = false};
    snprintf(path, sizeof path, "%s/coll_plugins.csv", mw_hwdb_data_dir(db));
    if (!mw_file_exists(path)) {
        *out = found;
        return MW_OK;
    }
    mw_arena_init(&arena);
    enum mw_status s = read_rows(path, &arena, &rows, &n, err);
    const char *nic = is_socket ? "Socket" : nic_of(db, system->slug);
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(rows[i].nic);
        if (len > longest && strncmp(nic, rows[i].nic, len) == 0) {
            longest = len;
            found = (struct coll_plugin){
                .is_any = true,
                .no_gdr = !(rows[i].gdr > 0),
                .ring_Bps = 1e9 * rows[i].ring_GBps,
                .latency_us = (float)rows[i].latency_us,
                .protos = protocols_of(rows[i].protocols),
                .copy_above_bytes = rows[i].copy_above_bytes,
                .copy_call_s = 1e-6 * rows[i].copy_us,
                .copy_Bps = 1e9 * rows[i].copy_GBps};
        }
    }
    if (s == MW_OK) {
        *out = found;
    }
    mw_arena_release(&arena);
    return s;
}
