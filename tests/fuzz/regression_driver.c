/*
 * Replays corpora without a fuzzing engine: every file of the directories (or
 * the files) given is one input. Every input gets a buffer of exactly its
 * size, so that a sanitizer sees a read beyond it. An empty corpus is an
 * error: a test that runs nothing must not pass.
 */
#include "base/file.h"
#include "base/mem.h"
#include "fuzz/fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { INPUT_MAX_BYTES = 64 << 20 };

static bool replay_file(const char *path)
{
    char *text = NULL;
    size_t len = 0;
    struct mw_err err = {0};
    if (mw_file_read(path, INPUT_MAX_BYTES, &text, &len, &err) != MW_OK) {
        fprintf(stderr, "%s\n", err.text);
        return false;
    }
    uint8_t *exact = mw_calloc(len, 1);
    memcpy(exact, text, len);
    mw_free(text);
    fprintf(stderr, "%s: %zu bytes\n", path, len);
    LLVMFuzzerTestOneInput(exact, len);
    mw_free(exact);
    return true;
}

/* Number of inputs replayed, -1 on an error. */
static int replay_folder(const char *path)
{
    DIR *folder = opendir(path);
    if (folder == NULL) {
        fprintf(stderr, "%s: cannot be opened\n", path);
        return -1;
    }
    int n = 0;
    const struct dirent *entry;
    while (n >= 0 && (entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] == '.') {
            continue;
        }
        struct mw_str file = {0};
        mw_str_addf(&file, "%s/%s", path, entry->d_name);
        n = replay_file(file.s) ? n + 1 : -1;
        mw_str_release(&file);
    }
    closedir(folder);
    return n;
}

static int replay(const char *path)
{
    struct stat s;
    if (stat(path, &s) == 0 && S_ISDIR(s.st_mode)) {
        return replay_folder(path);
    }
    return replay_file(path) ? 1 : -1;
}

int main(int argc, char **argv)
{
    int n_inputs = 0;
    for (int i = 1; i < argc; i++) {
        int n = replay(argv[i]);
        if (n < 0) {
            return 1;
        }
        n_inputs += n;
    }
    if (n_inputs == 0) {
        fprintf(stderr, "no inputs; give files or folders\n");
        return 1;
    }
    printf("%d inputs replayed\n", n_inputs);
    return 0;
}
