/* SPDX-License-Identifier: MIT */
/*
 * Places of namespaces: the lowest free one is taken, and is free again with its last reference.
 */
#include "target/ns_place.h"

#include <stdlib.h>
#include <string.h>

#include "target/catalog.h"

struct ns_places {
	uint32_t nr_refs;
	struct ns_place *place[CATALOG_MAX_NAMESPACES];
};

struct ns_places *ns_places_create(void)
{
	struct ns_places *places = calloc(1, sizeof(*places));

	return places ? ns_places_get(places) : NULL;
}

struct ns_places *ns_places_get(struct ns_places *places)
{
	places->nr_refs++;
	return places;
}

void ns_places_put(struct ns_places *places)
{
	if (!--places->nr_refs)
		free(places);
}

uint32_t ns_places_count(const struct ns_places *places)
{
	uint32_t nr = 0;

	for (uint32_t i = 0; i < CATALOG_MAX_NAMESPACES; i++)
		nr += places->place[i] != NULL;
	return nr;
}

struct backend *ns_places_find_disk(const struct ns_places *places, const char *path)
{
	for (uint32_t i = 0; i < CATALOG_MAX_NAMESPACES; i++) {
		const struct ns_place *place = places->place[i];

		if (place && !strcmp(place->backend->path, path))
			return place->backend;
	}
	return NULL;
}

struct ns_place *ns_place_create(struct ns_places *places, struct backend *backend)
{
	struct ns_place *place = calloc(1, sizeof(*place));
	uint32_t index = 0;

	while (index < CATALOG_MAX_NAMESPACES && places->place[index])
		index++;
	if (!place || index == CATALOG_MAX_NAMESPACES) {
		free(place);
		backend_put(backend);
		return NULL;
	}
	*place = (struct ns_place){
		.index = index, .nr_refs = 1, .backend = backend, .places = places};
	places->place[index] = place;
	return place;
}

struct ns_place *ns_place_get(struct ns_place *place)
{
	place->nr_refs++;
	return place;
}

void ns_place_put(struct ns_place *place)
{
	if (--place->nr_refs)
		return;
	place->places->place[place->index] = NULL;
	backend_put(place->backend);
	free(place);
}
