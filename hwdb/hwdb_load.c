/*
 * Loading: which folder holds the tables, which files an overlay may have,
 * all tables read and merged, then everything checked. A database with a
 * wrong row is never handed out.
 */
#include "hwdb/hwdb_int.h"

#include "base/csv.h"
#include "base/file.h"
#include "base/yaml.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* MESHWRIGHT_DATA, else the source tree that was built, else the folder that
 * was installed beside the program (which may have been moved since), else the
 * one it was configured for. */
static const char *data_dir(struct mw_arena *arena)
{
    const char *dir = getenv("MESHWRIGHT_DATA");
    if (dir != NULL && *dir != '\0') {
        return dir;
    }
    if (mw_file_exists(MW_HWDB_SOURCE_DIR "/gpus.csv")) {
        return MW_HWDB_SOURCE_DIR;
    }
    char program[4096];
    if (mw_program_dir(program, sizeof program)) {
        dir = mw_arena_printf(arena, "%s/../share/meshwright/hwdb", program);
        if (mw_file_exists(dir)) {
            return dir;
        }
    }
    return MW_HWDB_INSTALL_DIR;
}

static const char *overlay_default(void)
{
    const char *dir = getenv("MESHWRIGHT_HWDB");
    return dir != NULL && *dir != '\0' ? dir : NULL;
}

static bool is_csv(const char *name)
{
    size_t n = strlen(name);
    return n > 4 && strcmp(name + n - 4, ".csv") == 0;
}

/* coll_*.csv are read by the model of collectives. */
static bool is_table(const char *name)
{
    static const char *const coll[] = {"coll_fit.csv", "coll_harness.csv",
                                       "coll_moe.csv", "coll_plugins.csv",
                                       "coll_kernels.csv"};
    for (size_t i = 0; i < sizeof coll / sizeof coll[0]; i++) {
        if (strcmp(name, coll[i]) == 0) {
            return true;
        }
    }
    for (size_t i = 0; i < MW_HW_N_TABLES; i++) {
        size_t n = strlen(mw_hw_descs[i].name);
        if (strncmp(name, mw_hw_descs[i].name, n) == 0 &&
            strcmp(name + n, ".csv") == 0) {
            return true;
        }
    }
    return false;
}

static enum mw_status fail_no_table(const char *dir, const char *name,
                                    struct mw_err *err)
{
    const char *tables[MW_HW_N_TABLES];
    char stem[64] = "";
    size_t n = strlen(name) - strlen(".csv");
    for (size_t i = 0; i < MW_HW_N_TABLES; i++) {
        tables[i] = mw_hw_descs[i].name;
    }
    memcpy(stem, name, n < sizeof stem ? n : sizeof stem - 1);
    const char *near = mw_nearest(stem, tables, MW_HW_N_TABLES);
    return mw_fail(
        err, MW_EINPUT,
        "%s/%s: no table of the hardware database has this name%s%s%s"
        " (raw samples: begin the name with 'raw')",
        dir, name, near ? "; did you mean " : "", near ? near : "",
        near ? ".csv?" : "");
}

static int name_cmp(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The *.csv names of an open folder, sorted: the order of readdir is not
 * deterministic. Returns how many. */
static size_t csv_names(DIR *d, struct mw_arena *arena, const char ***out)
{
    MW_ARRAY(const char *) names = {0};
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (is_csv(e->d_name)) {
            mw_array_push(&names, mw_arena_strdup(arena, e->d_name));
        }
    }
    size_t n = names.n;
    *out = mw_arena_alloc(arena, n + 1, sizeof **out);
    for (size_t i = 0; i < n; i++) {
        (*out)[i] = names.v[i];
    }
    mw_array_release(&names);
    qsort(*out, n, sizeof **out, name_cmp);
    return n;
}

/* Takes a file's name and bytes into the hash of the overlay. */
static enum mw_status hash_file(struct mw_hwdb *db, const char *name,
                                struct mw_err *err)
{
    const char *path =
        mw_arena_printf(&db->arena, "%s/%s", db->overlay_dir, name);
    char *text = NULL;
    size_t len = 0;
    enum mw_status status =
        mw_file_read(path, MW_CSV_SIZE_MAX, &text, &len, err);

    if (status == MW_OK) {
        db->overlay_hash = mw_hash64(db->overlay_hash, name, strlen(name) + 1);
        db->overlay_hash = mw_hash64(db->overlay_hash, text, len);
        mw_free(text);
    }
    return status;
}

/* Refuses a folder that is not there, has no table, or has a CSV file that
 * would be ignored; hashes what it has. */
static enum mw_status check_overlay(struct mw_hwdb *db, struct mw_err *err)
{
    const char *dir = db->overlay_dir;
    DIR *d = opendir(dir);
    if (d == NULL) {
        return mw_fail(err, MW_EINPUT, "%s: cannot read this hwdb folder: %s",
                       dir, strerror(errno));
    }
    const char **names;
    size_t n = csv_names(d, &db->arena, &names), n_tables = 0;
    closedir(d);
    db->overlay_hash = MW_HASH_INIT;
    enum mw_status status = MW_OK;
    for (size_t i = 0; i < n; i++) {
        if (is_table(names[i])) {
            enum mw_status read = hash_file(db, names[i], err);

            status = status == MW_OK ? read : status;
            n_tables++;
        } else if (strncmp(names[i], "raw", 3) != 0) {
            status = fail_no_table(dir, names[i], err);
        }
    }
    if (status == MW_OK && n_tables == 0) {
        return mw_fail(err, MW_EINPUT,
                       "%s: no table of the hardware database in this folder "
                       "(gpus.csv, systems.csv, kernels.csv, ...)",
                       dir);
    }
    return status;
}

static enum mw_status load_tables(struct mw_hwdb *db, const char *dir,
                                  struct mw_err *err)
{
    enum mw_status status = MW_OK;
    for (size_t i = 0; i < MW_HW_N_TABLES; i++) {
        enum mw_status s =
            mw_hw_table_load(&db->tables[i], &mw_hw_descs[i], dir,
                             db->overlay_dir, &db->arena, err);
        status = s == MW_OK ? status : s;
    }
    return status;
}

enum mw_status mw_hwdb_load(const char *overlay_dir, struct mw_hwdb **out,
                            struct mw_err *err)
{
    struct mw_hwdb *db = mw_calloc(1, sizeof *db);
    mw_arena_init(&db->arena);
    db->measured = mw_hw_measured_new();
    db->data_dir = mw_arena_strdup(&db->arena, data_dir(&db->arena));
    enum mw_status status = MW_OK;
    const char *overlay = overlay_dir ? overlay_dir : overlay_default();
    if (overlay != NULL) {
        db->overlay_dir = mw_arena_strdup(&db->arena, overlay);
        status = check_overlay(db, err);
    }
    if (status == MW_OK) {
        status = load_tables(db, db->data_dir, err);
    }
    if (status == MW_OK) {
        mw_hw_names_build(db);
        mw_hw_devices_build(db);
        mw_hw_curves_build(db);
        status = mw_hwdb_check(db, err);
    }
    if (status != MW_OK) {
        mw_hwdb_free(db);
        return status;
    }
    *out = db;
    return MW_OK;
}

void mw_hwdb_free(struct mw_hwdb *db)
{
    if (db == NULL) {
        return;
    }
    if (db->loan != NULL) {
        db->loan->free(db->loan);
    }
    mw_hw_measured_free(db->measured);
    mw_arena_release(&db->arena);
    mw_free(db);
}

void mw_hwdb_lend(struct mw_hwdb *db, struct mw_hwdb_loan *loan)
{
    MW_ASSERT(db->loan == NULL, "the database has a loan already");
    db->loan = loan;
}

struct mw_hwdb_loan *mw_hwdb_loan(const struct mw_hwdb *db)
{
    return db->loan;
}
