/* Shared by the verbs: common options, printing of errors and JSON, option
 * values. The contract is in cli.h. */
#include "cli/cli.h"

#include "base/file.h"
#include "base/log.h"
#include "base/units.h"

#include <stdio.h>
#include <string.h>

enum { OPT_JSON = 0x1000, OPT_HWDB };

static const struct argp_option common_options[] = {
    {"json", OPT_JSON, NULL, 0, "Print one JSON object on standard output", 0},
    {"quiet", 'q', NULL, 0, "No progress or warnings on standard error", 0},
    {"hwdb", OPT_HWDB, "DIR", 0,
     "Overlay folder of the hardware database: adds or replaces rows (default: "
     "$MESHWRIGHT_HWDB)",
     0},
    {0}};

static error_t parse_common(int key, char *arg, struct argp_state *state)
{
    struct mw_cli *cli = state->input;
    if (!cli) {
        return ARGP_ERR_UNKNOWN; /* --help formats without an input */
    }
    switch (key) {
    case OPT_JSON:
        cli->json = true;
        return 0;
    case 'q':
        cli->quiet = true;
        mw_log_setup("meshwright", true);
        return 0;
    case OPT_HWDB:
        cli->hwdb = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp mw_cli_argp = {
    .options = common_options,
    .parser = parse_common,
};

enum mw_status mw_cli_parse(const struct argp *argp, int argc, char **argv,
                            void *input)
{
    return argp_parse(argp, argc, argv, 0, NULL, input) ? MW_EUSAGE : MW_OK;
}

void mw_cli_one_stdout(const struct mw_cli *cli, const char *option,
                       const char *path, struct argp_state *state)
{
    if (cli->json && path != NULL && strcmp(path, "-") == 0) {
        argp_error(state, "--json and %s - both want stdout", option);
    }
}

enum mw_status mw_cli_check_outputs(const char *const *path, size_t n,
                                    struct mw_err *err)
{
    enum mw_status status = MW_OK;

    for (size_t i = 0; i < n && status == MW_OK; i++) {
        status = mw_outfile_check(path[i], err);
    }
    return status;
}

int mw_cli_fail(const struct mw_err *err)
{
    fflush(stdout);
    fprintf(stderr, "meshwright: %s\n",
            err->len ? err->text : mw_status_name(err->status));
    return mw_status_exit(err->status);
}

int mw_cli_print_json(json_t *object)
{
    struct mw_err err = {0};
    enum mw_status status = mw_json_write(object, stdout, &err);
    json_decref(object);
    return status == MW_OK ? 0 : mw_cli_fail(&err);
}

static enum mw_status add_pair(const char *option, const char *example,
                               const char *text, size_t len,
                               struct mw_cli_pair *pair, struct mw_err *err)
{
    const char *eq = memchr(text, '=', len);
    size_t key_len = eq ? (size_t)(eq - text) : 0;
    size_t value_len = eq ? len - key_len - 1 : 0;
    if (key_len == 0 || value_len == 0 || key_len >= sizeof pair->key ||
        value_len >= sizeof pair->value) {
        return mw_fail(err, MW_EUSAGE,
                       "%s: '%.*s' is not KEY=VALUE; for example %s", option,
                       (int)len, text, example);
    }
    memcpy(pair->key, text, key_len);
    pair->key[key_len] = '\0';
    memcpy(pair->value, eq + 1, value_len);
    pair->value[value_len] = '\0';
    return MW_OK;
}

enum mw_status mw_cli_pairs(const char *option, const char *text,
                            struct mw_cli_pair out[MW_CLI_PAIRS_MAX],
                            int *out_n, struct mw_err *err)
{
    enum mw_status status =
        mw_cli_pairs_like(option, "tp=2,pp=4", text, out, out_n, err);

    for (int i = 0; status == MW_OK && i < *out_n; i++) {
        for (int j = 0; j < i; j++) {
            if (strcmp(out[i].key, out[j].key) == 0) {
                return mw_fail(err, MW_EUSAGE,
                               "%s: %s is given twice, as %s and as %s; give "
                               "it once",
                               option, out[i].key, out[j].value, out[i].value);
            }
        }
    }
    return status;
}

enum mw_status mw_cli_pairs_like(const char *option, const char *example,
                                 const char *text,
                                 struct mw_cli_pair out[MW_CLI_PAIRS_MAX],
                                 int *out_n, struct mw_err *err)
{
    int n = 0;
    for (const char *at = text;; n++) {
        size_t len = strcspn(at, ",");
        if (n == MW_CLI_PAIRS_MAX) {
            return mw_fail(err, MW_EUSAGE, "%s: more than %d pairs", option,
                           MW_CLI_PAIRS_MAX);
        }
        enum mw_status status =
            add_pair(option, example, at, len, &out[n], err);
        if (status != MW_OK) {
            return status;
        }
        if (at[len] == '\0') {
            break;
        }
        at += len + 1;
    }
    *out_n = n + 1;
    return MW_OK;
}

enum mw_status mw_cli_int(const char *option, const char *text, long long min,
                          long long max, long long *out, struct mw_err *err)
{
    int64_t value = 0;
    if (mw_int_parse(text, &value, NULL) != MW_OK || value < min ||
        value > max) {
        return mw_fail(err, MW_EUSAGE,
                       "%s: '%s' is not an integer in %lld..%lld", option, text,
                       min, max);
    }
    *out = value;
    return MW_OK;
}
