/* SPDX-License-Identifier: MIT */
/*
 * Places of namespaces in the reactors' tables, and the disk at each. A disk is open as long as it
 * has a place: for namespaces of catalogs, and until the last command of a removed one is over.
 */
#ifndef HAUL_TARGET_NS_PLACE_H
#define HAUL_TARGET_NS_PLACE_H

#include <stdint.h>

#include "target/backend.h"

/* Places taken, of all catalogs that come from one another: each has a reference. */
struct ns_places;

/* NULL: no memory. */
struct ns_places *ns_places_create(void);
struct ns_places *ns_places_get(struct ns_places *places);
void ns_places_put(struct ns_places *places);
uint32_t ns_places_count(const struct ns_places *places);

/* The disk that is open by PATH. NULL: none is. Memory is not known by its name: two of one size
 * are two. */
struct backend *ns_places_find_disk(const struct ns_places *places, const char *path);

/*
 * The disk of a namespace and its place in the reactors' tables. It outlives catalogs: each
 * namespace of one has a reference, and each reactor until its last I/O is over. The control
 * thread's alone.
 */
struct ns_place {
	uint32_t index;
	uint32_t nr_refs;
	uint64_t generation;	  /* of the catalog that was published with it first; 0: none yet */
	struct backend *backend;  /* one reference */
	struct ns_places *places; /* in which it is number INDEX; alive as long as this */
};
struct ns_place *ns_place_get(struct ns_place *place);
void ns_place_put(struct ns_place *place);

/* A free place for BACKEND, whose reference it takes, even on failure. NULL: no memory, or all are
 * taken. */
struct ns_place *ns_place_create(struct ns_places *places, struct backend *backend);

#endif
