/* SPDX-License-Identifier: MIT */
/*
 * One fuzz target a program, run by libFuzzer or by replay.c. A broken promise of a parser is an
 * assertion.
 */
#ifndef HAUL_TESTS_FUZZ_FUZZ_H
#define HAUL_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* The name is libFuzzer's. Always returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

#endif
