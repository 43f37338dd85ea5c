/*
 * The entry point that every fuzz target defines: libFuzzer calls it with
 * inputs that it invents, regression_driver.c with the files of a corpus.
 * A target checks an oracle with MW_ASSERT; a crash is the finding.
 */
#ifndef MW_TESTS_FUZZ_FUZZ_H
#define MW_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Always 0. data may be NULL when size is 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
