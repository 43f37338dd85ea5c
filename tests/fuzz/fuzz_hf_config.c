/*
 * config.json files: any bytes are either read as a legal model or refused
 * with a message. The reader takes a path, so each input passes through a file
 * in the working folder.
 */
#include "base/log.h"
#include "fuzz/fuzz.h"
#include "sim/model/model.h"

#include <stdio.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    struct mw_arena arena;
    struct mw_model m;
    struct mw_err err = {0};
    FILE *f;

    snprintf(path, sizeof path, "fuzz_hf_config.%ld.json", (long)getpid());
    f = fopen(path, "wb");
    if (f == NULL) {
        return 0;
    }
    if (size > 0) {
        fwrite(data, 1, size, f);
    }
    fclose(f);
    mw_log_setup("fuzz_hf_config", true);
    mw_arena_init(&arena);
    if (mw_model_hf_config(path, &arena, &m, &err) == MW_OK) {
        MW_ASSERT(mw_model_check(&m, &err) == MW_OK, "%s", err.text);
    } else {
        MW_ASSERT(err.n_findings > 0, "a failure without a message");
    }
    mw_arena_release(&arena);
    remove(path);
    return 0;
}
