/* SPDX-License-Identifier: MIT */
/*
 * A namespace on one reactor: what commands look at and count. It stays until the last command that
 * refers to it is over, also when the namespace has been removed.
 */
#ifndef HAUL_TARGET_REACTOR_NS_H
#define HAUL_TARGET_REACTOR_NS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/loop.h"
#include "target/subsys.h"

struct catalog;
struct reactor;

/* What SMART counts, by the command's row (struct cmd). */
enum ns_counts {
	NS_COUNT_NONE,
	NS_COUNT_READ, /* Read, Compare */
	NS_COUNT_WRITE,
	NS_COUNT_VERIFY, /* reads, but is no read command */
	NS_COUNT_COPY,	 /* both, counted by itself */
};
#define NR_NS_COUNTS (NS_COUNT_COPY + 1)

struct ns_count {
	uint64_t commands; /* that have succeeded */
	uint64_t units;	   /* of 512 bytes */
};

struct ns_sum {
	struct ns_count counts[NR_NS_COUNTS];
	uint64_t nr_media_errors;
};

/* Bits of a gate. */
#define REACTOR_NS_LOCKED	   0x1u	 /* some range is locked */
#define REACTOR_NS_ANA		   0x2u	 /* not accessible through every listener: target/ana.h */
#define REACTOR_NS_RESERVED	   0x4u	 /* by a host: target/reservation_visit.h */
#define REACTOR_NS_WRITE_PROTECTED 0x8u	 /* by a host: target/write_protect.h */
#define REACTOR_NS_NARROWS	   0x10u /* some hosts are to lose sight of it: target/view_hide.h */

struct reactor_ns {
	struct ns ns; /* a copy of the catalog's */
	struct backend_queue *queue;
	uint32_t nr_requests; /* that refer to it */
	/* 0: nothing unusual applies to an I/O of this namespace. */
	uint32_t gate;
	struct list out;     /* requests whose I/O the disk has */
	struct list locks;   /* of ranges that are someone's, of struct range_entry */
	uint64_t generation; /* of the catalog that had it last; 0: none yet */
	bool removed;
	struct reactor *reactor;
	struct ns_sum sum;
	bool refused_write; /* the disk, as if it were read-only; WRITES_THEN had succeeded */
	uint64_t writes_then;
	bool tell_read_only;	 /* hosts are to hear of it with the next error */
	struct ns_sum kept;	 /* of SUM, by target/smart_past.h */
	struct smart_past *past; /* where the rest of it goes, when it has been removed */
	/* The catalog's: who sees it; NULL: all. */
	const struct host_list *seen_by;
	struct loop_message gone; /* to the control thread, which then frees it */
};

/* On the reactor. Opens queues for the namespaces of CATALOG that it has not yet; on failure it has
 * what it had. */
int reactor_ns_attach(struct reactor *reactor, const struct catalog *catalog) must_check;
/* Undoes that: another reactor could not. */
void reactor_ns_abandon(struct reactor *reactor, const struct catalog *catalog);
/* Takes over what CATALOG says, and lets go of what is not in it. */
void reactor_ns_switch(struct reactor *reactor, const struct catalog *catalog);
/* The last request that refers to a removed one is free. */
void reactor_ns_unused(struct reactor_ns *ns);
/* The reactor ends. */
void reactor_ns_detach_all(struct reactor *reactor);

/* The namespace NSID of a subsystem of the reactor's catalog, or NULL. */
struct reactor_ns *reactor_ns_find(
	const struct reactor *reactor, const struct subsys *subsys, uint32_t nsid);

static inline void reactor_ns_count(struct reactor_ns *ns, enum ns_counts what, uint64_t nr_lbas)
{
	ns->sum.counts[what].commands++;
	ns->sum.counts[what].units += nr_lbas << (ns->ns.lba_shift - 9);
}

/* A command for NS ends with an error. */
void reactor_ns_count_error(struct reactor_ns *ns, uint16_t status);
/* Its disk has refused a write as read-only, which it was not when it was opened for writing. */
void reactor_ns_note_refused_write(struct reactor_ns *ns);
/* ... and has taken none since. */
static inline bool reactor_ns_turned_read_only(const struct reactor_ns *ns)
{
	return ns->refused_write && ns->sum.counts[NS_COUNT_WRITE].commands == ns->writes_then;
}

static inline void reactor_ns_get(struct reactor_ns *ns)
{
	ns->nr_requests++;
}

static inline void reactor_ns_put(struct reactor_ns *ns)
{
	if (unlikely(--ns->nr_requests == 0 && ns->removed))
		reactor_ns_unused(ns);
}

#endif
