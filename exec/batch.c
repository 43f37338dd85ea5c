/*
 * Training data: bytes of a file, or of a short text that ships with the
 * program. Sequence q of step s is the window that begins at hash(seed, s, q);
 * the text is a ring, so any length works. A vocabulary below 256 takes bytes
 * modulo its size. Every rank can make any micro-batch without reading or
 * sending.
 */
#include "exec/exec_int.h"

#include "base/rand.h"
#include "exec/sample_text.h"

#include <string.h>

/* Apart from the streams of parameters, which are small integers. */
static const uint64_t data_stream = UINT64_C(0x64617461) << 32;

struct text {
    const char *v;
    size_t n;
};

static struct text text_of(const struct mw_job *job)
{
    return job->text ? (struct text){job->text, job->text_bytes}
                     : (struct text){mw_sample_text, strlen(mw_sample_text)};
}

static int32_t token_at(const struct text *t, size_t at, int vocab)
{
    return (unsigned char)t->v[at % t->n] % vocab;
}

void mw_batch_fill(const struct mw_exec *ex, int microbatch, int32_t *token,
                   int32_t *label)
{
    const struct mw_job *job = ex->job;
    const struct text text = text_of(job);
    size_t seq = (size_t)(ex->dims.rows / ex->dims.n_seqs);
    uint64_t first = ((uint64_t)ex->at.dp * (uint64_t)job->n_microbatches +
                      (uint64_t)microbatch) *
                     (uint64_t)ex->dims.n_seqs;
    for (uint64_t s = 0; s < (uint64_t)ex->dims.n_seqs; s++) {
        uint64_t begin =
            mw_rand_u64(job->workload->seed, data_stream + (uint64_t)ex->step,
                        first + s) %
            text.n;
        for (size_t i = s * seq; i < (s + 1) * seq; i++) {
            size_t at = begin + (size_t)mw_run_at(ex, (int)i).position;
            token[i] = token_at(&text, at, job->model->vocab);
            label[i] = token_at(&text, at + 1, job->model->vocab);
        }
    }
}
