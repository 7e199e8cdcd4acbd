/* SPDX-License-Identifier: MIT */
/*
 * Makes and finds views.
 */
#include "target/view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "target/catalog.h"
#include "target/subsys.h"

bool view_has(const struct ns *ns, const char *hostnqn)
{
	return !ns->hosts || host_list_has(ns->hosts, hostnqn);
}

/* --- finding --------------------------------------------------------------------------------- */

static int view_compare(const void *hostnqn, const void *view)
{
	return strcmp(hostnqn, (*(struct subsys *const *)view)->view_host);
}

static struct subsys *view_of_named(const struct subsys *subsys, const char *hostnqn)
{
	struct subsys **found = bsearch(
		hostnqn, subsys->views, subsys->nr_views, sizeof(*subsys->views), view_compare);

	return found ? *found : NULL;
}

const struct subsys *view_of(const struct subsys *subsys, const char *hostnqn)
{
	const struct subsys *named;

	if (!subsys->others_view)
		return subsys;
	named = view_of_named(subsys, hostnqn);
	return named ? named : subsys->others_view;
}

const struct subsys *view_find(const struct catalog *catalog, const char *nqn, const char *hostnqn)
{
	const struct subsys *subsys = catalog_find(catalog, nqn);

	return subsys ? view_of(subsys, hostnqn) : NULL;
}

/* --- making ---------------------------------------------------------------------------------- */

static void view_free(struct subsys *view)
{
	if (view)
		free(view->ns);
	free(view);
}

void view_free_all(struct subsys *subsys)
{
	for (uint32_t i = 0; i < subsys->nr_views; i++)
		view_free(subsys->views[i]);
	view_free(subsys->others_view);
	free(subsys->views);
	subsys->views = NULL;
	subsys->others_view = NULL;
	subsys->nr_views = 0;
}

/* Without a namespace yet. All that it points to but its table is the subsystem's. */
static struct subsys *view_create(const struct subsys *subsys, const char *hostnqn)
{
	struct subsys *view = malloc(sizeof(*view));

	if (!view)
		return NULL;
	*view = *subsys;
	view->view_host = hostnqn;
	view->views = NULL;
	view->others_view = NULL;
	view->nr_views = 0;
	view->volatile_cache = false;
	list_init(&view->node);
	view->ns = calloc(subsys->ns_limit, sizeof(struct ns *));
	if (view->ns)
		return view;
	free(view);
	return NULL;
}

static int view_order(const void *a, const void *b)
{
	const struct subsys *one = *(struct subsys *const *)a, *other = *(struct subsys *const *)b;

	return strcmp(one->view_host, other->view_host);
}

static int view_create_all(struct subsys *subsys)
{
	struct subsys *others = view_create(subsys, NULL);
	struct subsys **views = calloc(subsys->named.nr + 1, sizeof(struct subsys *));

	if (!others || !views) {
		view_free(others);
		free(views);
		return -ENOMEM;
	}
	subsys->views = views;
	for (uint32_t i = 0; i < subsys->named.nr; i++) {
		views[i] = view_create(subsys, subsys->named.nqn[i]);
		if (!views[i]) {
			view_free(others);
			view_free_all(subsys);
			return -ENOMEM;
		}
		subsys->nr_views++;
	}
	qsort(views, subsys->nr_views, sizeof(struct subsys *), view_order);
	subsys->others_view = others;
	return 0;
}

static void view_put(struct subsys *view, struct ns *ns)
{
	view->ns[ns->nsid] = ns;
	view->volatile_cache |= ns->place->backend->geometry.volatile_cache;
}

static void view_put_everywhere(const struct subsys *subsys, struct ns *ns)
{
	for (uint32_t i = 0; i < subsys->nr_views; i++)
		view_put(subsys->views[i], ns);
	view_put(subsys->others_view, ns);
}

static bool view_is_needed(const struct subsys *subsys)
{
	for (uint32_t nsid = 1; nsid < subsys->ns_limit; nsid++)
		if (subsys->ns[nsid] && subsys->ns[nsid]->hosts)
			return true;
	return false;
}

static int view_make(struct subsys *subsys)
{
	int error;

	if (!view_is_needed(subsys))
		return 0;
	error = view_create_all(subsys);
	if (error)
		return error;
	for (uint32_t nsid = 1; nsid < subsys->ns_limit; nsid++) {
		struct ns *ns = subsys->ns[nsid];

		if (ns && !ns->hosts)
			view_put_everywhere(subsys, ns);
		for (uint32_t i = 0; ns && ns->hosts && i < ns->hosts->nr; i++)
			view_put(view_of_named(subsys, ns->hosts->nqn[i]), ns);
	}
	return 0;
}

/* --- who loses sight ------------------------------------------------------------------------- */

static bool view_ns_narrows(const struct ns *before, const struct ns *now)
{
	if (!before || before->place != now->place || !now->hosts)
		return false;
	for (uint32_t i = 0; before->hosts && i < before->hosts->nr; i++)
		if (!host_list_has(now->hosts, before->hosts->nqn[i]))
			return true;
	return !before->hosts;
}

static bool view_narrows(const struct subsys *before, const struct subsys *now)
{
	bool any = false;

	for (uint32_t nsid = 1; nsid < now->ns_limit; nsid++) {
		struct ns *ns = now->ns[nsid];

		if (!ns)
			continue;
		ns->narrows = view_ns_narrows(subsys_ns(before, nsid), ns);
		any |= ns->narrows;
	}
	return any;
}

/* --- all of it ------------------------------------------------------------------------------- */

int view_make_all(struct catalog *catalog)
{
	const struct subsys *before;
	struct subsys *subsys;
	int error;

	list_for_each_entry (subsys, &catalog->subsystems, node) {
		error = view_make(subsys);
		if (error)
			return error;
		before = catalog->previous ? catalog_find(catalog->previous, subsys->nqn) : NULL;
		catalog->narrows |= before && view_narrows(before, subsys);
	}
	return 0;
}
