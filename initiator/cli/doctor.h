/* SPDX-License-Identifier: MIT */
/*
 * haul doctor: what its parts share. Each part looks at some points and tells what it finds, with
 * the commands that cure it.
 */
#ifndef HAUL_INITIATOR_CLI_DOCTOR_H
#define HAUL_INITIATOR_CLI_DOCTOR_H

#include <stdio.h>

#include "initiator/cli/cli.h"
#include "proto/nvme/uri.h"

enum doctor_state {
	DOCTOR_OK,
	DOCTOR_HINT,	/* works as it is; may be better, or wanted by others */
	DOCTOR_UNKNOWN, /* could not be looked at */
	DOCTOR_PROBLEM,
};

struct doctor {
	struct cli *cli;
	const char *root;	    /* "", or where another machine's files are */
	const struct nvme_uri *uri; /* of a target, or NULL */
	bool rdma;		    /* false: TCP alone is asked about */
	struct json_object *points;
	unsigned nr_problems;
};

/* One point, looked at. CURE: command lines, with a newline between them; NULL: there is none. */
void doctor_tell(struct doctor *doctor, enum doctor_state state, const char *point,
	const char *cure, const char *format, ...) __attribute__((format(printf, 5, 6)));

/* The first line of the file whose name FORMAT makes, below the root, without white space at its
 * end. False: it cannot be read, or is empty. */
bool doctor_read(const struct doctor *doctor, char *line, size_t size, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* The same file, to be read; NULL: it cannot be. */
FILE *doctor_open(const struct doctor *doctor, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* access(2), below the root. */
bool doctor_may(const struct doctor *doctor, int mode, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* The names in a directory below the root, in order (numbers by their value). Fields are empty when
 * there is none. */
struct doctor_names {
	struct dirent **entry;
	int nr;
};
struct doctor_names doctor_names(const struct doctor *doctor, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void doctor_names_free(struct doctor_names *names);

void doctor_system(struct doctor *doctor);   /* event loop, memory, names of this host */
void doctor_firewall(struct doctor *doctor); /* what may come in */
void doctor_rdma(struct doctor *doctor);     /* devices, ports, addresses */
/* What the switch port and NETDEV have agreed on for RoCE. */
void doctor_flow_control(struct doctor *doctor, const char *netdev);
/* To the target at the URI and back. */
void doctor_path(struct doctor *doctor);
/* One step of it: which device leads to HOST. */
void doctor_route(struct doctor *doctor, const char *host, uint16_t port);

#endif
