/* SPDX-License-Identifier: MIT */
/*
 * Sums of what was counted before, by subsystem and hosts.
 */
#include "target/smart_past.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "target/host_list.h"
#include "target/reactor.h"

struct smart_past {
	struct list node; /* reactor->smart_past */
	char nqn[NVME_NQN_MAX + 1];
	bool for_all;
	struct host_list hosts; /* unless FOR_ALL */
	struct ns_sum sum;
};

static bool smart_past_is_of(
	const struct smart_past *past, const char *nqn, const struct host_list *hosts)
{
	if (strcmp(past->nqn, nqn) || past->for_all != !hosts)
		return false;
	return !hosts || host_list_is_same(&past->hosts, hosts);
}

static struct smart_past *smart_past_create(const char *nqn, const struct host_list *hosts)
{
	struct smart_past *past = calloc(1, sizeof(*past));

	if (!past)
		return NULL;
	list_init(&past->node);
	snprintf(past->nqn, sizeof(past->nqn), "%s", nqn);
	past->for_all = !hosts;
	if (!hosts || !host_list_copy(&past->hosts, hosts))
		return past;
	host_list_free(&past->hosts);
	free(past);
	return NULL;
}

static struct smart_past *smart_past_get(
	struct reactor *reactor, const char *nqn, const struct host_list *hosts)
{
	struct smart_past *past;

	list_for_each_entry (past, &reactor->smart_past, node)
		if (smart_past_is_of(past, nqn, hosts))
			return past;
	past = smart_past_create(nqn, hosts);
	if (past)
		list_push_back(&reactor->smart_past, &past->node);
	return past;
}

void smart_past_sum_add(struct ns_sum *sum, const struct ns_sum *more)
{
	for (unsigned i = 0; i < NR_NS_COUNTS; i++) {
		sum->counts[i].commands += more->counts[i].commands;
		sum->counts[i].units += more->counts[i].units;
	}
	sum->nr_media_errors += more->nr_media_errors;
}

void smart_past_add_since(const struct reactor_ns *ns, struct ns_sum *sum)
{
	for (unsigned i = 0; i < NR_NS_COUNTS; i++) {
		sum->counts[i].commands += ns->sum.counts[i].commands - ns->kept.counts[i].commands;
		sum->counts[i].units += ns->sum.counts[i].units - ns->kept.counts[i].units;
	}
	sum->nr_media_errors += ns->sum.nr_media_errors - ns->kept.nr_media_errors;
}

void smart_past_keep_rest(struct smart_past *past, struct reactor_ns *ns)
{
	if (past)
		smart_past_add_since(ns, &past->sum);
	ns->kept = ns->sum;
}

struct smart_past *smart_past_keep(struct reactor *reactor, const char *nqn,
	const struct host_list *hosts, struct reactor_ns *ns)
{
	struct smart_past *past = smart_past_get(reactor, nqn, hosts);

	smart_past_keep_rest(past, ns);
	return past;
}

void smart_past_add(
	const struct reactor *reactor, const char *nqn, const char *hostnqn, struct ns_sum *sum)
{
	const struct smart_past *past;

	list_for_each_entry (past, &reactor->smart_past, node)
		if (!strcmp(past->nqn, nqn) &&
			(past->for_all || host_list_has(&past->hosts, hostnqn)))
			smart_past_sum_add(sum, &past->sum);
}

void smart_past_free_all(struct reactor *reactor)
{
	struct list *node;

	while ((node = list_pop_front(&reactor->smart_past))) {
		struct smart_past *past = container_of(node, struct smart_past, node);

		host_list_free(&past->hosts);
		free(past);
	}
}
