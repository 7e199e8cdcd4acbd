/* SPDX-License-Identifier: MIT */
/*
 * Runs a fuzz target over a corpus, each file as it is and then changed in a fixed number of
 * pseudo-random ways, so that builds without libFuzzer exercise it: replay DIRECTORY
 * [CHANGED-COPIES]. The changes are the same in every run.
 */
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

#define INPUT_MAX 8192
/* Of each file; a second or two a corpus under the sanitizers. */
#define MUTATIONS 50000
#define CHANGES	  4 /* at most, in one mutation */

static uint64_t random_state = 0x9e3779b97f4a7c15;

/* xorshift64 */
static uint64_t random_next(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

static size_t random_below(size_t bound)
{
	return bound == 0 ? 0 : (size_t)(random_next() % bound);
}

static size_t change_once(uint8_t *bytes, size_t size)
{
	static const uint8_t special[] = {
		0, 1, 0x7f, 0x80, 0xff, '%', ':', '/', '[', ']', '.', '0'};
	size_t at = random_below(size), len;

	switch (random_below(6)) {
	case 0: /* a bit */
		if (size > 0)
			bytes[at] ^= (uint8_t)(1u << random_below(8));
		return size;
	case 1: /* a byte */
		if (size > 0)
			bytes[at] = special[random_below(sizeof(special))];
		return size;
	case 2: /* some bytes of ones or zeroes */
		len = random_below(size - at < 8 ? size - at + 1 : 9);
		memset(bytes + at, random_next() & 1 ? 0xff : 0, len);
		return size;
	case 3: /* cut the end off */
		return at;
	case 4: /* take some bytes out */
		len = random_below(size - at < 16 ? size - at + 1 : 17);
		memmove(bytes + at, bytes + at + len, size - at - len);
		return size - len;
	default: /* repeat some bytes */
		len = random_below(size - at < 16 ? size - at + 1 : 17);
		if (size + len > INPUT_MAX)
			return size;
		memmove(bytes + at + len, bytes + at, size - at);
		return size + len;
	}
}

/* A block of just the size, so that the sanitizer sees a read behind its end. */
static void run(const uint8_t *bytes, size_t size)
{
	uint8_t *exact = malloc(size ? size : 1);

	if (!exact)
		abort();
	memcpy(exact, bytes, size);
	LLVMFuzzerTestOneInput(exact, size);
	free(exact);
}

static void mutate(const uint8_t *seed, size_t seed_size, unsigned long nr)
{
	uint8_t bytes[INPUT_MAX];

	for (unsigned long i = 0; i < nr; i++) {
		size_t size = seed_size;

		memcpy(bytes, seed, seed_size);
		for (size_t changes = 1 + random_below(CHANGES); changes > 0; changes--)
			size = change_once(bytes, size);
		run(bytes, size);
	}
}

static bool replay_file(const char *directory, const char *name, unsigned long nr_mutations)
{
	uint8_t bytes[INPUT_MAX];
	char path[4096];
	size_t size;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	file = fopen(path, "rb");
	if (!file) {
		perror(path);
		return false;
	}
	size = fread(bytes, 1, sizeof(bytes), file);
	fclose(file);
	run(bytes, size);
	mutate(bytes, size, nr_mutations);
	return true;
}

int main(int argc, char **argv)
{
	struct dirent **entries;
	unsigned long nr_mutations = MUTATIONS;
	int nr, files = 0;
	bool good = true;

	if (argc == 3)
		nr_mutations = strtoul(argv[2], NULL, 10);
	if ((argc != 2 && argc != 3) || !nr_mutations) {
		fprintf(stderr, "usage: %s DIRECTORY [CHANGED-COPIES]\n", argv[0]);
		return 2;
	}
	/* Sorted: each run does the same. */
	nr = scandir(argv[1], &entries, NULL, alphasort);
	for (int i = 0; i < nr; i++) {
		if (entries[i]->d_name[0] != '.') {
			good = replay_file(argv[1], entries[i]->d_name, nr_mutations) && good;
			files++;
		}
		free(entries[i]);
	}
	if (nr >= 0)
		free(entries);
	printf("%d files, %lu mutations of each\n", files, nr_mutations);
	return good && files > 0 ? 0 : 1;
}
