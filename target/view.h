/* SPDX-License-Identifier: MIT */
/*
 * What one host sees of a subsystem. A namespace may be for some of the subsystem's hosts only;
 * each host that any namespace names has a view, all others share one. A view is a subsystem as
 * far as controllers, queues and commands are concerned: it lacks the namespaces that the host does
 * not see, so that nothing on the way of a command has to ask, and what is hidden is what is not
 * there. Views are made with the catalog that they belong to, and are constant as it is.
 */
#ifndef HAUL_TARGET_VIEW_H
#define HAUL_TARGET_VIEW_H

#include <stdbool.h>

#include "proto/base/compiler.h"

struct catalog;
struct ns;
struct subsys;

/* On the control thread: the views of each subsystem of CATALOG, which is complete; and who loses
 * sight of what. */
int view_make_all(struct catalog *catalog) must_check;
/* SUBSYS is about to be freed. */
void view_free_all(struct subsys *subsys);

/* For a host that may use SUBSYS; itself, where all see the same. */
const struct subsys *view_of(const struct subsys *subsys, const char *hostnqn);
/* Of the subsystem NQN; NULL: there is none. */
const struct subsys *view_find(const struct catalog *catalog, const char *nqn, const char *hostnqn);

/* A host that may use its subsystem sees NS. */
bool view_has(const struct ns *ns, const char *hostnqn);

#endif
