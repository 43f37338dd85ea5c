/*
 * Reading the public measurements: one function a file, each of which says
 * which rows become samples and which do not (import_int.h lists the reasons).
 *
 * One measurer serves a set (device, operator, dtype): differences between
 * two measurers would be taken for differences between shapes. The choice:
 *
 *   gemm bf16     aiconfigurator, TensorRT-LLM runs: torch's linear layer,
 *                 that is cuBLAS. The vLLM runs call the same library and are
 *                 up to 10 % faster on large products (0.956 of the A100's
 *                 peak): inputs that draw little power.
 *   gemm fp8 fp4  the same runs; they time the quantisation of activations,
 *                 which import_quantise.c takes off
 *   gemm fp16     vidur (A100, A40, H100)
 *   attention     vLLM runs: FlashAttention 2 on Ampere, 3 on Hopper, as in
 *                 training; TensorRT-LLM runs where there are no others, and
 *                 for fp8
 *   softmax       LLMCompass (A100): torch's kernel
 *   add           vidur: torch's kernel. Its norm, rotary and activation are
 *                 vLLM's of 2023, which reach 0.33, 0.43 and 0.50 of the
 *                 A100's bandwidth; no training stack runs them
 */
#include "hwdb/import/import_int.h"

#include "hwdb/hwdb_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BF16 = 2, FP8 = 4, FP4 = 5 };
/* A product is taken for an easy one this far above the device's measured
 * best (gemm_efficiency): the spread of two runs of one benchmark. */
static const double easy_margin = 1.03;
/* LLMCompass times a kernel from the host: the floor of its softmax is that of
 * a synchronised launch; rows up to twice of it are not the kernel. */
static const double softmax_floor_us = 13;

const struct mw_import_source_info mw_import_sources[MW_SRC_COUNT] = {
    {"aic-trtllm",
     "ai-dynamo/aiconfigurator@095f58a51c systems/data (gemm and attention of "
     "the TensorRT-LLM 1.0.0 and 1.3.0rc20 runs)",
     "", "H"},
    {"aic-trtllm-q",
     "ai-dynamo/aiconfigurator@095f58a51c systems/data (gemm of the "
     "TensorRT-LLM 1.3.0rc20 runs, low precision, less the quantisation of "
     "activations that they time: fitted)",
     "", "M"},
    {"aic-vllm",
     "ai-dynamo/aiconfigurator@095f58a51c systems/data (attention of the vLLM "
     "0.14.0 and 0.24.0 runs: FlashAttention 2 and 3, FlashInfer)",
     "", "H"},
    {"vidur",
     "microsoft/vidur@7d47513363 data/profiling/compute (torch kernels, "
     "record_function median)",
     "", "H"},
    {"llmcompass",
     "PrincetonUniversity/LLMCompass@2e015fd2ee ae/figure5/cf/real_hardware "
     "(torch kernels)",
     "", "M"},
    {"infersim",
     "alibaba/InferSim@f2293dab6d bench_data (DeepGEMM, FlashAttention 3, "
     "FlashInfer)",
     "", "H"},
    {"deepgemm", "deepseek-ai/DeepGEMM@55ab91f README.md, 2025-03-25", "",
     "H"}};

const char *const mw_import_drop_text[MW_DROP_COUNT] = {
    "used",
    "not for calibration",
    "no such precision in the cost model",
    "no such device in the database",
    "another measurer serves the set",
    "above the device's measured best: easy inputs",
    "an inference kernel that training does not run",
    "fills a key cache, which training has not",
    "not one kernel alone, or sizes not stated"};

/* A file being read: columns by name, the row, and where to count. */
struct reader {
    struct mw_import *in;
    struct mw_import_file *file;
    struct mw_csv csv;
    size_t row;
};

static const char *text(const struct reader *r, const char *col)
{
    return mw_csv_str(&r->csv, r->row, mw_csv_col(&r->csv, col));
}

/* A number, 0 when the cell is empty or no number. */
static double number(const struct reader *r, const char *col)
{
    double v = 0;
    if (mw_csv_num_or(&r->csv, r->row, mw_csv_col(&r->csv, col), 0, &v, NULL) !=
        MW_OK) {
        return 0;
    }
    return v;
}

static bool starts(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

/* The measurements' device names that are no aliases of the database. */
static const struct mw_gpu *device_of(const struct mw_import *in,
                                      const char *name)
{
    static const char *const names[][2] = {{"B200-SXM", "b200-sxm"},
                                           {"B300-SXM", "b300-sxm"},
                                           {"RTXPRO6000", "rtx-pro-6000"},
                                           {"H800-SXM5", "h800-sxm"}};
    const struct mw_gpu *gpu = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i][0], name) == 0) {
            name = names[i][1];
        }
    }
    return mw_hwdb_gpu(in->db, name, &gpu, NULL) == MW_OK ? gpu : NULL;
}

static enum mw_import_drop push(const struct reader *r, struct mw_sample s)
{
    s.gpu = device_of(r->in, text(r, "gpu"));
    if (s.gpu == NULL) {
        return MW_DROP_DEVICE;
    }
    if (s.m < 1 || s.n < 1 || s.k < 1 || s.batch < 1 || !(s.time_s > 0)) {
        return MW_DROP_MIXED;
    }
    mw_array_push(&r->in->samples, s);
    return MW_DROP_NONE;
}

/* ---- one function a file ----------------------------------------------------
 */

static bool is_easy(const struct mw_gpu *gpu, int dtype, double flops,
                    double time_s)
{
    return flops / time_s >
           easy_margin * gpu->peak_flops[dtype] * gpu->gemm_efficiency[dtype];
}

static enum mw_import_drop read_gemm_aic(const struct reader *r)
{
    const char *dtype = text(r, "dtype");
    const struct mw_gpu *gpu = device_of(r->in, text(r, "gpu"));
    struct mw_sample s = {.op = "gemm",
                          .m = (int64_t)number(r, "m"),
                          .n = (int64_t)number(r, "n"),
                          .k = (int64_t)number(r, "k"),
                          .batch = 1,
                          .time_s = 1e-6 * number(r, "time_us"),
                          .source = MW_SRC_AIC_TRTLLM_QUANTISE};
    int index = FP8;
    if (strcmp(dtype, "bfloat16") == 0) {
        s.dtype = "bf16";
        s.source = MW_SRC_AIC_TRTLLM;
        index = BF16;
    } else if (strcmp(dtype, "nvfp4") == 0) {
        s.dtype = "fp4";
        index = FP4;
    } else if (starts(dtype, "fp8")) {
        s.dtype = "fp8";
        s.op = strcmp(dtype, "fp8_block") == 0 ? "gemm_block" : "gemm";
    } else {
        return MW_DROP_DTYPE;
    }
    if (gpu == NULL) {
        return MW_DROP_DEVICE;
    }
    /* L40S has two TensorRT-LLM versions: the newer one has more shapes. */
    if (!starts(text(r, "software"), "trtllm") ||
        (strcmp(gpu->slug, "l40s") == 0 &&
         starts(text(r, "software"), "trtllm 1.0.0"))) {
        return MW_DROP_OTHER;
    }
    double flops = 2 * (double)s.m * (double)s.n * (double)s.k;
    return is_easy(gpu, index, flops, s.time_s) ? MW_DROP_EASY : push(r, s);
}

static enum mw_import_drop read_gemm_misc(const struct reader *r)
{
    if (strcmp(text(r, "dtype"), "fp8_block") != 0) {
        /* The best shapes are achieved_matmul.csv; fp16 of the A100 is
         * vidur's. */
        return device_of(r->in, text(r, "gpu")) == NULL ? MW_DROP_DEVICE
                                                        : MW_DROP_OTHER;
    }
    return push(r, (struct mw_sample){.op = "gemm_block",
                                      .dtype = "fp8",
                                      .m = (int64_t)number(r, "m"),
                                      .n = (int64_t)number(r, "n"),
                                      .k = (int64_t)number(r, "k"),
                                      .batch = 1,
                                      .time_s = 1e-6 * number(r, "time_us"),
                                      .source = MW_SRC_INFERSIM});
}

static enum mw_import_drop read_gemm_deepgemm(const struct reader *r)
{
    const char *kind = text(r, "kind");
    bool is_dense = strcmp(kind, "dense") == 0;
    if (!is_dense && !starts(kind, "grouped")) {
        return MW_DROP_MIXED;
    }
    /* Dense: InferSim has 88 shapes of the same kernel; kept for the shapes
     * that it has not (equal ones are merged). */
    return push(
        r, (struct mw_sample){.op = is_dense ? "gemm_block" : "grouped_gemm",
                              .dtype = "fp8",
                              .m = (int64_t)number(r, "m_per_group"),
                              .n = (int64_t)number(r, "n"),
                              .k = (int64_t)number(r, "k"),
                              .batch = (int64_t)number(r, "groups"),
                              .time_s = 1e-6 * number(r, "time_us"),
                              .source = MW_SRC_DEEPGEMM});
}

static enum mw_import_drop read_vidur(const struct reader *r)
{
    const char *op = text(r, "op");
    struct mw_sample s = {.op = "gemm",
                          .dtype = "fp16",
                          .m = (int64_t)number(r, "tokens"),
                          .n = (int64_t)number(r, "n"),
                          .k = (int64_t)number(r, "k"),
                          .batch = 1,
                          .time_s = 1e-6 * number(r, "time_us"),
                          .source = MW_SRC_VIDUR};
    if (strstr(op, "_proj") != NULL) {
        return push(r, s);
    }
    if (strcmp(op, "add") == 0) {
        s.op = "add";
        s.n = (int64_t)number(r, "hidden");
        s.k = 1;
        return push(r, s);
    }
    return MW_DROP_INFER;
}

static enum mw_import_drop read_llmcompass(const struct reader *r)
{
    double us = number(r, "time_us");
    /* layernorm: its floor of 52 us is a third of the longest row. The parts
     * of a layer do not state their sizes. */
    if (strcmp(text(r, "op"), "softmax") != 0 || us < 2 * softmax_floor_us) {
        return MW_DROP_MIXED;
    }
    return push(r, (struct mw_sample){.op = "softmax",
                                      .dtype = "fp16",
                                      .m = (int64_t)number(r, "m"),
                                      .n = (int64_t)number(r, "n"),
                                      .k = 1,
                                      .batch = 1,
                                      .time_s = 1e-6 * us,
                                      .source = MW_SRC_LLMCOMPASS});
}

/* vLLM layer times up to 2048 tokens: its products are aiconfigurator's, its
 * streams stay in the second-level cache of 128 MiB. */
static enum mw_import_drop read_llmservingsim(const struct reader *r)
{
    return strstr(text(r, "op"), "_proj") != NULL ? MW_DROP_OTHER
                                                  : MW_DROP_INFER;
}

/* Devices whose bf16 prefill attention was measured with vLLM. */
static bool has_vllm_attention(const struct mw_gpu *gpu)
{
    return strcmp(gpu->slug, "b300-sxm") != 0 &&
           strcmp(gpu->slug, "gb300") != 0;
}

/*
 * Prefill kernels are timed with the writing of the key cache. Against groups
 * of 8 or more query heads a key head, groups of one take 1.54 times as long at
 * 1024 tokens on an H100, 1.33 at 2048, 1.14 at 8192 and 1.07 at 16384: a cost
 * in proportion to keys, not to the square. FlashAttention 3's own figures (495
 * TFLOP/s at 2048 tokens, one key head a query head) are those of groups of 8.
 */
static bool has_small_cache(const struct reader *r)
{
    return number(r, "heads") >= 8 * number(r, "kv_heads");
}

static enum mw_import_drop read_attention_aic(const struct reader *r)
{
    const struct mw_gpu *gpu = device_of(r->in, text(r, "gpu"));
    const char *software = text(r, "software");
    bool is_vllm = starts(software, "vllm");
    bool is_prefill = starts(text(r, "phase"), "prefill");
    bool is_fp8 =
        starts(text(r, is_prefill ? "attn_dtype" : "kv_dtype"), "fp8");
    if (gpu == NULL) {
        return MW_DROP_DEVICE;
    }
    if (is_vllm != (!is_fp8 && has_vllm_attention(gpu)) ||
        (strcmp(gpu->slug, "l40s") == 0 && starts(software, "trtllm 1.0.0"))) {
        return MW_DROP_OTHER;
    }
    int64_t sequences = (int64_t)number(r, "batch");
    int64_t tokens = (int64_t)number(r, "kv_len");
    struct mw_sample s = {.op = "attention",
                          .dtype = is_fp8 ? "fp8" : "bf16",
                          .m = tokens,
                          .n = tokens,
                          .k = (int64_t)number(r, "head_dim"),
                          .batch = sequences * (int64_t)number(r, "heads"),
                          .time_s = 1e-6 * number(r, "time_us"),
                          .source =
                              is_vllm ? MW_SRC_AIC_VLLM : MW_SRC_AIC_TRTLLM};
    if (!is_prefill) {
        s.op = "attention_decode";
        s.m = 1;
        s.batch = sequences * (int64_t)number(r, "kv_heads");
    } else if (strcmp(text(r, "q_len"), text(r, "kv_len")) != 0) {
        return MW_DROP_MIXED;
    } else if (!has_small_cache(r)) {
        return MW_DROP_CACHE;
    }
    return push(r, s);
}

static enum mw_import_drop read_attention_infersim(const struct reader *r)
{
    bool is_prefill = starts(text(r, "phase"), "prefill");
    bool is_fp8 = starts(text(r, "kv_dtype"), "fp8");
    int64_t sequences = (int64_t)number(r, "batch");
    int64_t tokens = (int64_t)number(r, "kv_len");
    struct mw_sample s = {.op = "attention",
                          .dtype = is_fp8 ? "fp8" : "bf16",
                          .m = tokens,
                          .n = tokens,
                          .k = (int64_t)number(r, "head_dim"),
                          .batch = sequences * (int64_t)number(r, "heads"),
                          .time_s = 1e-6 * number(r, "time_us"),
                          .source = MW_SRC_INFERSIM};
    if (strcmp(text(r, "kind"), "mla") == 0) {
        return MW_DROP_MIXED; /* keys and values of different widths */
    }
    if (!is_prefill) {
        s.op = "attention_decode";
        s.m = 1;
        s.batch = sequences * (int64_t)number(r, "kv_heads");
    } else if (!has_small_cache(r)) {
        return MW_DROP_CACHE;
    }
    return push(r, s);
}

static enum mw_import_drop read_attention_llmservingsim(const struct reader *r)
{
    return number(r, "prefill_chunk") > 0 && number(r, "n_decode") > 0
               ? MW_DROP_MIXED
               : MW_DROP_OTHER;
}

/* Two products a row. The groups are drawn at random around the nominal size;
 * `check` is the nominal rate over that of the sizes drawn. Below 16 tokens an
 * expert the rounding of the nominal size is above 3 %. */
static enum mw_import_drop read_grouped(const struct reader *r)
{
    static const double most_off = 0.1;
    struct mw_sample s = {.op = "grouped_gemm",
                          .dtype = "fp8",
                          .m = (int64_t)number(r, "tokens_per_expert"),
                          .n = 2 * (int64_t)number(r, "moe_ffn"),
                          .k = (int64_t)number(r, "hidden"),
                          .batch = (int64_t)number(r, "local_experts"),
                          .time_s = 1e-6 * number(r, "up_proj_us"),
                          .source = MW_SRC_INFERSIM};
    enum mw_import_drop drop = MW_DROP_MIXED;
    if (s.m < 16) {
        return drop;
    }
    if (fabs(number(r, "up_check") - 1) <= most_off) {
        drop = push(r, s);
    }
    if (fabs(number(r, "down_check") - 1) <= most_off) {
        int64_t ffn = s.n / 2;
        s.n = s.k;
        s.k = ffn;
        s.time_s = 1e-6 * number(r, "down_proj_us");
        drop = push(r, s);
    }
    return drop;
}

/* ---- all --------------------------------------------------------------------
 */

static enum mw_status
read_one(struct mw_import *in, struct mw_import_file *file,
         enum mw_import_drop (*read)(const struct reader *), struct mw_err *err)
{
    struct reader r = {.in = in, .file = file};
    char *path = mw_arena_printf(in->arena, "%s/%s.csv", in->dir, file->name);
    enum mw_status status = mw_csv_load(path, in->arena, &r.csv, err);
    if (status != MW_OK) {
        return status;
    }
    int split = mw_csv_col(&r.csv, "split");
    file->rows = r.csv.n_rows;
    for (r.row = 0; r.row < r.csv.n_rows; r.row++) {
        const char *of = mw_csv_str(&r.csv, r.row, split);
        enum mw_import_drop drop = split >= 0 && strcmp(of, "calibrate") != 0
                                       ? MW_DROP_SPLIT
                                       : read(&r);
        file->dropped[drop]++;
    }
    return MW_OK;
}

enum mw_status mw_import_read(struct mw_import *in, struct mw_err *err)
{
    static const struct {
        const char *name;
        enum mw_import_drop (*read)(const struct reader *);
    } files[MW_IMPORT_FILES] = {
        {"gemm_aiconfigurator", read_gemm_aic},
        {"gemm_misc_measured", read_gemm_misc},
        {"gemm_deepgemm_h800", read_gemm_deepgemm},
        {"ops_linear_vidur", read_vidur},
        {"ops_llmcompass_a100", read_llmcompass},
        {"ops_llmservingsim", read_llmservingsim},
        {"attention_aiconfigurator", read_attention_aic},
        {"attention_infersim", read_attention_infersim},
        {"attention_llmservingsim", read_attention_llmservingsim},
        {"moe_grouped_gemm_infersim", read_grouped}};
    enum mw_status status = MW_OK;
    for (size_t i = 0; status == MW_OK && i < MW_IMPORT_FILES; i++) {
        in->files[i].name = files[i].name;
        status = read_one(in, &in->files[i], files[i].read, err);
    }
    return status;
}
