/*
 * Named models: rows of a table, no code of their own.
 *
 * Numbers are those of the config.json that the makers publish on Hugging
 * Face, or of the paper named in the row. A family's common properties stand
 * once, in a macro. Names are compared without regard to case, '-' and '_'.
 */
#include "sim/model/model.h"

#include <ctype.h>
#include <string.h>

struct preset {
    struct mw_model m;
    const char *source;
};

/* Pre-norm decoder with RMSNorm, rotary positions, SwiGLU and no biases. */
#define LLAMA_LIKE                                                             \
    .is_gated = true, .norm = MW_NORM_RMS, .position = MW_POS_ROTARY,          \
    .act = MW_ACT_SILU, .final_norm = true

/* Pre-norm decoder with LayerNorm, GELU and all biases. */
#define GPT_LIKE_BUT_POSITION                                                  \
    .norm = MW_NORM_LAYER, .act = MW_ACT_GELU, .bias_qkv = true,               \
    .bias_proj = true, .bias_mlp = true, .bias_norm = true, .final_norm = true
/* With learned positions. */
#define GPT_LIKE GPT_LIKE_BUT_POSITION, .position = MW_POS_LEARNED

/* Llama 4: three layers of four attend to chunks of 8192 tokens. */
#define LLAMA4 LLAMA_LIKE, .window = {8192, 4, 0, MW_WINDOW_CHUNKED}

/* Gemma 2 and 3: norms before and after each block, GeGLU, tied head; every
 * second layer, or five of six, with a window. Soft caps of logits and rotary
 * bases are in no operator. */
#define GEMMA2                                                                 \
    .is_gated = true, .norm = MW_NORM_RMS, .position = MW_POS_ROTARY,          \
    .act = MW_ACT_GELU, .tied = true, .final_norm = true,                      \
    .sandwich_norm = true, .window = {4096, 2, 0, MW_WINDOW_SLIDING}
#define GEMMA3(w)                                                              \
    .is_gated = true, .norm = MW_NORM_RMS, .position = MW_POS_ROTARY,          \
    .act = MW_ACT_GELU, .tied = true, .final_norm = true, .qk_norm = true,     \
    .sandwich_norm = true, .window = {(w), 6, 0, MW_WINDOW_SLIDING}

/* gpt-oss: 64 heads of 64 elements with sinks, biases throughout, every second
 * layer with a window of 128 tokens. */
#define GPT_OSS(l, experts)                                                    \
    SIZES(2880, l, 64, 8, 64, 2880, 201088, 131072), LLAMA_LIKE,               \
        .bias_qkv = true, .bias_proj = true, .sinks = true,                    \
        .window = {128, 2, 0, MW_WINDOW_SLIDING},                              \
        .moe = {.n_experts = (experts),                                        \
                .top_k = 4,                                                    \
                .ffn = 2880,                                                   \
                .router_bias = true,                                           \
                .bias = true,                                                  \
                .clamp = true}

/* Nemotron: layer norm, squared ReLU, rotary positions, no biases. */
#define NEMOTRON                                                               \
    .norm = MW_NORM_LAYER, .position = MW_POS_ROTARY, .act = MW_ACT_RELU,      \
    .bias_norm = true, .final_norm = true

/* hidden, layers, heads, key-value heads, head_dim, ffn, vocab, max_seq */
#define SIZES(h, l, a, kv, hd, f, v, s)                                        \
    .hidden = (h), .n_layers = (l), .n_heads = (a), .n_kv_heads = (kv),        \
    .head_dim = (hd), .ffn = (f), .vocab = (v), .max_seq = (s)

/* A GPT of hidden h: heads of h / a elements, ffn 4 h, head tied. */
#define GPT(h, l, a, v, s)                                                     \
    SIZES(h, l, a, a, (h) / (a), 4 * (h), v, s), GPT_LIKE, .tied = true

/* SC21's family: vocabulary 50 257 padded to 51 200, sequence 2048. */
#define MEGATRON(h, l, a) GPT(h, l, a, 51200, 2048)

#define DEEPSEEK_MLA(q)                                                        \
    .mla = {.on = true,                                                        \
            .q_lora = (q),                                                     \
            .kv_lora = 512,                                                    \
            .rope_dim = 64,                                                    \
            .nope_dim = 128,                                                   \
            .v_dim = 128}

#define HF_LLAMA "huggingface.co/meta-llama config.json"
#define HF_QWEN "huggingface.co/Qwen config.json"
#define HF_DEEPSEEK "huggingface.co/deepseek-ai config.json"
#define HF_MISTRAL "huggingface.co/mistralai config.json"
#define HF_GPT2 "huggingface.co/openai-community config.json"
#define NEMO_NEMOTRON                                                          \
    "NVIDIA/NeMo 2.0 nemo/collections/llm/gpt/model/nemotron.py"
#define NEMO_GPT                                                               \
    "NVIDIA/NeMo 2.0 nemo/collections/llm/gpt/model/megatron_gpt.py"
#define HF_TII                                                                 \
    "huggingface.co/tiiuae config.json; its parallel block as a serial one"
#define HF_LLAMA4 "huggingface.co/meta-llama config.json"
#define HF_GEMMA "huggingface.co/google config.json"
#define HF_GEMMA3                                                              \
    "huggingface.co/google config.json (text_config); arXiv:2503.19786"
#define HF_GPT_OSS "huggingface.co/openai config.json; arXiv:2508.10925"
#define SC21 "arXiv:2104.04473, table 1"

/* BigScience's trials on Jean Zay: 32 heads, 1024 tokens, the vocabulary padded
 * for tp of 4. */
#define BIGSCIENCE(h, l) GPT(h, l, 32, 50688, 1024)
#define GPT2_MD                                                                \
    "bigscience-workshop/bigscience experiments/gpt2-hf-ds, gpt2-meg (MSIZE)"

/* clang-format off */
static const struct preset presets[] = {
    {{.name = "llama2-7b", SIZES(4096, 32, 32, 32, 128, 11008, 32000, 4096),
      LLAMA_LIKE}, HF_LLAMA},
    {{.name = "llama2-13b", SIZES(5120, 40, 40, 40, 128, 13824, 32000, 4096),
      LLAMA_LIKE}, HF_LLAMA},
    {{.name = "llama2-70b", SIZES(8192, 80, 64, 8, 128, 28672, 32000, 4096),
      LLAMA_LIKE}, HF_LLAMA},
    {{.name = "llama3-8b", SIZES(4096, 32, 32, 8, 128, 14336, 128256, 8192),
      LLAMA_LIKE}, HF_LLAMA},
    {{.name = "llama3-70b", SIZES(8192, 80, 64, 8, 128, 28672, 128256, 8192),
      LLAMA_LIKE}, HF_LLAMA},
    {{.name = "llama3.1-8b",
      SIZES(4096, 32, 32, 8, 128, 14336, 128256, 131072), LLAMA_LIKE},
     HF_LLAMA},
    {{.name = "llama3.1-70b",
      SIZES(8192, 80, 64, 8, 128, 28672, 128256, 131072), LLAMA_LIKE},
     HF_LLAMA},
    {{.name = "llama3.1-405b",
      SIZES(16384, 126, 128, 8, 128, 53248, 128256, 131072), LLAMA_LIKE},
     HF_LLAMA},
    {{.name = "llama3.2-1b", SIZES(2048, 16, 32, 8, 64, 8192, 128256, 131072),
      LLAMA_LIKE, .tied = true}, HF_LLAMA},
    {{.name = "llama3.2-3b", SIZES(3072, 28, 24, 8, 128, 8192, 128256, 131072),
      LLAMA_LIKE, .tied = true}, HF_LLAMA},

    {{.name = "codellama-7b",
      SIZES(4096, 32, 32, 32, 128, 11008, 32016, 16384), LLAMA_LIKE},
     "huggingface.co/codellama config.json"},
    {{.name = "codellama-13b",
      SIZES(5120, 40, 40, 40, 128, 13824, 32016, 16384), LLAMA_LIKE},
     "huggingface.co/codellama config.json"},
    {{.name = "codellama-34b",
      SIZES(8192, 48, 64, 8, 128, 22016, 32000, 16384), LLAMA_LIKE},
     "huggingface.co/codellama config.json"},
    {{.name = "tinyllama-1.1b", SIZES(2048, 22, 32, 4, 64, 5632, 32000, 2048),
      LLAMA_LIKE}, "huggingface.co/TinyLlama config.json"},
    {{.name = "llama4-scout",
      SIZES(5120, 48, 40, 8, 128, 16384, 202048, 262144), LLAMA4,
      .moe = {.n_experts = 16, .top_k = 1, .ffn = 8192, .n_shared = 1,
              .shared_ffn = 8192}}, HF_LLAMA4},
    {{.name = "llama4-maverick",
      SIZES(5120, 48, 40, 8, 128, 16384, 202048, 1048576), LLAMA4,
      .moe = {.n_experts = 128, .top_k = 1, .ffn = 8192, .n_shared = 1,
              .shared_ffn = 8192, .every = 2}}, HF_LLAMA4},

    {{.name = "gpt2", GPT(768, 12, 12, 50257, 1024)}, HF_GPT2},
    {{.name = "gpt2-124m", GPT(768, 12, 12, 50257, 1024)}, HF_GPT2},
    {{.name = "gpt2-medium", GPT(1024, 24, 16, 50257, 1024)}, HF_GPT2},
    {{.name = "gpt2-large", GPT(1280, 36, 20, 50257, 1024)}, HF_GPT2},
    {{.name = "gpt2-xl", GPT(1600, 48, 25, 50257, 1024)}, HF_GPT2},
    {{.name = "gpt2-7.5b", BIGSCIENCE(4096, 36)}, GPT2_MD},
    {{.name = "gpt2-18b", BIGSCIENCE(6144, 40)}, GPT2_MD},
    {{.name = "gpt2-25b", BIGSCIENCE(7168, 40)}, GPT2_MD},
    {{.name = "gpt2-30b", BIGSCIENCE(7168, 48)}, GPT2_MD},
    {{.name = "gpt2-39b", BIGSCIENCE(8192, 48)}, GPT2_MD},
    {{.name = "gpt2-52b", BIGSCIENCE(8192, 64)}, GPT2_MD},
    {{.name = "gpt2-65b", BIGSCIENCE(9216, 64)}, GPT2_MD},
    {{.name = "gpt2-97b", BIGSCIENCE(11264, 64)}, GPT2_MD},
    {{.name = "gpt2-116b", BIGSCIENCE(12288, 64)}, GPT2_MD},
    {{.name = "gpt2-206b", BIGSCIENCE(16384, 64)}, GPT2_MD},

    {{.name = "gpt3-175b", MEGATRON(12288, 96, 96)},
     "arXiv:2005.14165, table 2.1; vocabulary as arXiv:2104.04473 pads it"},
    {{.name = "gpt3-5b", MEGATRON(4096, 24, 32)}, NEMO_GPT},
    {{.name = "gpt3-20b", MEGATRON(6144, 44, 48)}, NEMO_GPT},
    {{.name = "gpt3-40b", MEGATRON(8192, 48, 64)}, NEMO_GPT},
    {{.name = "gpt-1.7b", MEGATRON(2304, 24, 24)}, SC21},
    {{.name = "gpt-3.6b", MEGATRON(3072, 30, 32)}, SC21},
    {{.name = "gpt-7.5b", MEGATRON(4096, 36, 32)}, SC21},
    {{.name = "gpt-18.4b", MEGATRON(6144, 40, 48)}, SC21},
    {{.name = "gpt-22b", MEGATRON(6144, 48, 64)}, "arXiv:2205.05198, table 3"},
    {{.name = "gpt-39.1b", MEGATRON(8192, 48, 64)}, SC21},
    {{.name = "gpt-76.1b", MEGATRON(10240, 60, 80)}, SC21},
    {{.name = "gpt-145.6b", MEGATRON(12288, 80, 96)}, SC21},
    {{.name = "gpt-310.1b", MEGATRON(16384, 96, 128)}, SC21},
    {{.name = "gpt-529.6b", MEGATRON(20480, 105, 128)}, SC21},
    {{.name = "gpt-1008b", MEGATRON(25600, 128, 160)}, SC21},

    {{.name = "nemotron-8b", SIZES(4096, 32, 32, 32, 128, 16384, 256000, 4096),
      NEMOTRON}, NEMO_NEMOTRON},
    {{.name = "nemotron-22b",
      SIZES(6144, 40, 48, 48, 128, 24576, 256000, 4096), NEMOTRON},
     NEMO_NEMOTRON},
    {{.name = "nemotron4-15b",
      SIZES(6144, 32, 48, 8, 128, 24576, 256000, 4096), NEMOTRON},
     "arXiv:2402.16819, table 1"},
    {{.name = "nemotron4-340b",
      SIZES(18432, 96, 96, 8, 192, 73728, 256000, 4096), NEMOTRON},
     "arXiv:2406.11704, table 1"},
    {{.name = "grok1", SIZES(6144, 64, 48, 8, 128, 32768, 131072, 8192),
      .is_gated = true, .norm = MW_NORM_RMS, .position = MW_POS_ROTARY,
      .act = MW_ACT_GELU, .final_norm = true, .sandwich_norm = true,
      .tied = true, .moe = {.n_experts = 8, .top_k = 2, .ffn = 32768}},
     "xai-org/grok-1 run.py and model.py"},

    {{.name = "phi-1.5", SIZES(2048, 24, 32, 32, 64, 8192, 51200, 2048),
      GPT_LIKE_BUT_POSITION, .position = MW_POS_ROTARY, .bias_head = true},
     "huggingface.co/microsoft config.json; its parallel block as a serial one"},
    {{.name = "phi-2", SIZES(2560, 32, 32, 32, 80, 10240, 51200, 2048),
      GPT_LIKE_BUT_POSITION, .position = MW_POS_ROTARY, .bias_head = true},
     "huggingface.co/microsoft config.json; its parallel block as a serial one"},
    {{.name = "stablelm-alpha-3b",
      SIZES(4096, 16, 32, 32, 128, 16384, 50688, 4096),
      GPT_LIKE_BUT_POSITION, .position = MW_POS_ROTARY},
     "huggingface.co/stabilityai config.json; its parallel block as a serial one"},
    {{.name = "stablelm-alpha-7b",
      SIZES(6144, 16, 48, 48, 128, 24576, 50432, 4096),
      GPT_LIKE_BUT_POSITION, .position = MW_POS_ROTARY},
     "huggingface.co/stabilityai config.json; its parallel block as a serial one"},
    {{.name = "falcon-7b", SIZES(4544, 32, 71, 1, 64, 18176, 65024, 2048),
      .norm = MW_NORM_LAYER, .position = MW_POS_ROTARY, .act = MW_ACT_GELU,
      .bias_norm = true, .final_norm = true, .tied = true}, HF_TII},
    {{.name = "falcon-180b",
      SIZES(14848, 80, 232, 8, 64, 59392, 65024, 2048), .norm = MW_NORM_LAYER,
      .position = MW_POS_ROTARY, .act = MW_ACT_GELU, .bias_norm = true,
      .final_norm = true, .tied = true}, HF_TII},
    {{.name = "falcon-40b",
      SIZES(8192, 60, 128, 8, 64, 32768, 65024, 2048), .norm = MW_NORM_LAYER,
      .position = MW_POS_ROTARY, .act = MW_ACT_GELU, .bias_norm = true,
      .final_norm = true}, HF_TII},
    {{.name = "internlm-20b",
      SIZES(5120, 60, 40, 40, 128, 13824, 103168, 4096), LLAMA_LIKE},
     "huggingface.co/internlm config.json"},
    {{.name = "mistral-7b", SIZES(4096, 32, 32, 8, 128, 14336, 32000, 32768),
      LLAMA_LIKE}, HF_MISTRAL},
    {{.name = "mistral-7b-v0.1",
      SIZES(4096, 32, 32, 8, 128, 14336, 32000, 32768), LLAMA_LIKE,
      .window = {.tokens = 4096}}, HF_MISTRAL},
    {{.name = "mixtral-8x7b", SIZES(4096, 32, 32, 8, 128, 14336, 32000, 32768),
      LLAMA_LIKE, .moe = {.n_experts = 8, .top_k = 2, .ffn = 14336}},
     HF_MISTRAL},
    {{.name = "mixtral-8x22b",
      SIZES(6144, 56, 48, 8, 128, 16384, 32000, 65536), LLAMA_LIKE,
      .moe = {.n_experts = 8, .top_k = 2, .ffn = 16384}}, HF_MISTRAL},

    {{.name = "qwen2-7b", SIZES(3584, 28, 28, 4, 128, 18944, 152064, 131072),
      LLAMA_LIKE, .bias_qkv = true}, HF_QWEN},
    {{.name = "qwen2-72b", SIZES(8192, 80, 64, 8, 128, 29568, 152064, 131072),
      LLAMA_LIKE, .bias_qkv = true}, HF_QWEN},
    {{.name = "qwen2-57b-a14b",
      SIZES(3584, 28, 28, 4, 128, 18944, 151936, 131072), LLAMA_LIKE,
      .bias_qkv = true,
      .moe = {.n_experts = 64, .top_k = 8, .ffn = 2560, .n_shared = 1,
              .shared_ffn = 20480, .shared_gate = true}}, HF_QWEN},
    {{.name = "qwen2.5-0.5b", SIZES(896, 24, 14, 2, 64, 4864, 151936, 32768),
      LLAMA_LIKE, .bias_qkv = true, .tied = true}, HF_QWEN},
    {{.name = "qwen2.5-1.5b", SIZES(1536, 28, 12, 2, 128, 8960, 151936, 131072),
      LLAMA_LIKE, .bias_qkv = true, .tied = true}, HF_QWEN},
    {{.name = "qwen2.5-3b", SIZES(2048, 36, 16, 2, 128, 11008, 151936, 32768),
      LLAMA_LIKE, .bias_qkv = true, .tied = true}, HF_QWEN},
    {{.name = "qwen2.5-7b", SIZES(3584, 28, 28, 4, 128, 18944, 152064, 131072),
      LLAMA_LIKE, .bias_qkv = true}, HF_QWEN},
    {{.name = "qwen2.5-14b", SIZES(5120, 48, 40, 8, 128, 13824, 152064, 131072),
      LLAMA_LIKE, .bias_qkv = true}, HF_QWEN},
    {{.name = "qwen2.5-32b", SIZES(5120, 64, 40, 8, 128, 27648, 152064, 131072),
      LLAMA_LIKE, .bias_qkv = true}, HF_QWEN},
    {{.name = "qwen2.5-72b", SIZES(8192, 80, 64, 8, 128, 29568, 152064, 131072),
      LLAMA_LIKE, .bias_qkv = true}, HF_QWEN},
    {{.name = "qwen3-0.6b", SIZES(1024, 28, 16, 8, 128, 3072, 151936, 40960),
      LLAMA_LIKE, .qk_norm = true, .tied = true}, HF_QWEN},
    {{.name = "qwen3-1.7b", SIZES(2048, 28, 16, 8, 128, 6144, 151936, 40960),
      LLAMA_LIKE, .qk_norm = true, .tied = true}, HF_QWEN},
    {{.name = "qwen3-4b", SIZES(2560, 36, 32, 8, 128, 9728, 151936, 40960),
      LLAMA_LIKE, .qk_norm = true, .tied = true}, HF_QWEN},
    {{.name = "qwen3-8b", SIZES(4096, 36, 32, 8, 128, 12288, 151936, 40960),
      LLAMA_LIKE, .qk_norm = true}, HF_QWEN},
    {{.name = "qwen3-14b", SIZES(5120, 40, 40, 8, 128, 17408, 151936, 40960),
      LLAMA_LIKE, .qk_norm = true}, HF_QWEN},
    {{.name = "qwen3-32b", SIZES(5120, 64, 64, 8, 128, 25600, 151936, 40960),
      LLAMA_LIKE, .qk_norm = true}, HF_QWEN},
    {{.name = "qwen3-30b-a3b", SIZES(2048, 48, 32, 4, 128, 6144, 151936, 40960),
      LLAMA_LIKE, .qk_norm = true,
      .moe = {.n_experts = 128, .top_k = 8, .ffn = 768}}, HF_QWEN},
    {{.name = "qwen3-235b-a22b",
      SIZES(4096, 94, 64, 4, 128, 12288, 151936, 40960), LLAMA_LIKE,
      .qk_norm = true, .moe = {.n_experts = 128, .top_k = 8, .ffn = 1536}},
     HF_QWEN},

    {{.name = "deepseek-v2-lite",
      SIZES(2048, 27, 16, 16, 192, 10944, 102400, 163840), LLAMA_LIKE,
      DEEPSEEK_MLA(0),
      .moe = {.n_experts = 64, .top_k = 6, .ffn = 1408, .n_shared = 2,
              .shared_ffn = 2816, .first_dense = 1}}, HF_DEEPSEEK},
    {{.name = "deepseek-v2",
      SIZES(5120, 60, 128, 128, 192, 12288, 102400, 163840), LLAMA_LIKE,
      DEEPSEEK_MLA(1536),
      .moe = {.n_experts = 160, .top_k = 6, .ffn = 1536, .n_shared = 2,
              .shared_ffn = 3072, .first_dense = 1}}, HF_DEEPSEEK},
    {{.name = "deepseek-v3",
      SIZES(7168, 61, 128, 128, 192, 18432, 129280, 163840), LLAMA_LIKE,
      DEEPSEEK_MLA(1536),
      .moe = {.n_experts = 256, .top_k = 8, .ffn = 2048, .n_shared = 1,
              .shared_ffn = 2048, .first_dense = 3, .router_bias = true,
              .node_limit = 4},
      .n_mtp = 1}, HF_DEEPSEEK},
    {{.name = "kimi-k2",
      SIZES(7168, 61, 64, 64, 192, 18432, 163840, 131072), LLAMA_LIKE,
      DEEPSEEK_MLA(1536),
      .moe = {.n_experts = 384, .top_k = 8, .ffn = 2048, .n_shared = 1,
              .shared_ffn = 2048, .first_dense = 1, .router_bias = true}},
     "huggingface.co/moonshotai config.json"},

    {{.name = "gpt-oss-20b", GPT_OSS(24, 32)}, HF_GPT_OSS},
    {{.name = "gpt-oss-120b", GPT_OSS(36, 128)}, HF_GPT_OSS},

    {{.name = "gemma2-2b", SIZES(2304, 26, 8, 4, 256, 9216, 256000, 8192),
      GEMMA2}, HF_GEMMA},
    {{.name = "gemma2-9b", SIZES(3584, 42, 16, 8, 256, 14336, 256000, 8192),
      GEMMA2}, HF_GEMMA},
    {{.name = "gemma2-27b", SIZES(4608, 46, 32, 16, 128, 36864, 256000, 8192),
      GEMMA2}, HF_GEMMA},
    {{.name = "gemma3-1b", SIZES(1152, 26, 4, 1, 256, 6912, 262144, 32768),
      GEMMA3(512)}, HF_GEMMA3},
    {{.name = "gemma3-4b", SIZES(2560, 34, 8, 4, 256, 10240, 262208, 131072),
      GEMMA3(1024)}, HF_GEMMA3},
    {{.name = "gemma3-12b", SIZES(3840, 48, 16, 8, 256, 15360, 262208, 131072),
      GEMMA3(1024)}, HF_GEMMA3},
    {{.name = "gemma3-27b", SIZES(5376, 62, 32, 16, 128, 21504, 262208, 131072),
      GEMMA3(1024)}, HF_GEMMA3},

    /* Small enough to train for a few steps on the cores of any machine; 8
     * layers, 8 heads and sizes that are multiples of 8 let every mix of 2, 4
     * or 8 tensor and pipeline ways divide. */
    {{.name = "gpt-small", SIZES(256, 8, 8, 8, 32, 1024, 512, 64), GPT_LIKE},
     "made for tests on this machine"},
};
/* clang-format on */

enum { N_PRESETS = sizeof presets / sizeof *presets };

/* Equal but for case, '-' and '_': "Llama-3-8B" is "llama3-8b". */
static bool same_name(const char *a, const char *b)
{
    for (;;) {
        while (*a == '-' || *a == '_') {
            a++;
        }
        while (*b == '-' || *b == '_') {
            b++;
        }
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b)) {
            return false;
        }
        if (*a == '\0') {
            return true;
        }
        a++;
        b++;
    }
}

enum mw_status mw_model_preset(const char *name, struct mw_model *out,
                               struct mw_err *err)
{
    const char *names[N_PRESETS];
    const char *near_name;

    for (size_t i = 0; i < N_PRESETS; i++) {
        if (same_name(name, presets[i].m.name)) {
            *out = presets[i].m;
            return MW_OK;
        }
        names[i] = presets[i].m.name;
    }
    near_name = mw_nearest(name, names, N_PRESETS);
    if (near_name != NULL) {
        return mw_fail(err, MW_EINPUT,
                       "unknown model preset '%s'; did you mean '%s'?", name,
                       near_name);
    }
    return mw_fail(err, MW_EINPUT,
                   "unknown model preset '%s'; presets are llama3-8b, "
                   "gpt3-175b, mixtral-8x7b, qwen3-8b, deepseek-v3 and others "
                   "(docs/models.md)",
                   name);
}

const char *mw_model_preset_name(size_t i)
{
    return i < N_PRESETS ? presets[i].m.name : NULL;
}

const char *mw_model_preset_source(size_t i)
{
    return i < N_PRESETS ? presets[i].source : NULL;
}
