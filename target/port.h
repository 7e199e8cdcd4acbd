/* SPDX-License-Identifier: MIT */
/*
 * A listener, as its URI describes it. Made by the control thread; from when it listens it lives on
 * the first reactor, which accepts for all, until it has stopped and its last connection is gone.
 */
#ifndef HAUL_TARGET_PORT_H
#define HAUL_TARGET_PORT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "proto/base/compiler.h"
#include "proto/base/list.h"
#include "proto/base/loop.h"
#include "proto/nvme/uri.h"

struct reactor;
struct transport_handover;
struct transport_ops;
struct transport_option;
struct transport_port; /* defined by each transport for itself */

#define PORT_MAX_OPTIONS 8 /* the most that a transport has is seven */

struct port {
	struct reactor *reactor; /* the first */
	const struct transport_ops *ops;
	struct sockaddr_storage configured;
	struct sockaddr_storage address; /* after listen() with the real port number */
	uint16_t portid;
	bool ipv6_only; /* a wildcard whose IPv4 is another listener's: set by listen() */
	uint32_t option[PORT_MAX_OPTIONS]; /* of the URI, as ops->options has them */
	uint32_t nr_refs;		   /* the control thread's */

	/* The first reactor's. */
	bool listening;	   /* listen() has succeeded */
	bool open;	   /* hosts are let in, not kept in EARLY */
	struct list early; /* of struct transport_handover */
	uint32_t nr_early;
	struct transport_port *transport;
	uint32_t nr_conns;	  /* that came in here */
	bool released;		  /* in no catalog any more */
	struct loop_message gone; /* to the control thread: nothing refers to it any more */
};

/* RESOLVE: also looks the host up, which may block. With one reference. */
int port_create(const struct nvme_uri *uri, bool resolve, struct port **ret, char *why,
	size_t why_size) must_check;
struct port *port_get(struct port *port);
void port_put(struct port *port);

bool port_is_same_address(const struct port *one, const struct port *other);
/* PORT, which may have any free number, listens where WANTED would. */
bool port_listens_at(const struct port *port, const struct port *wanted);
/* OTHER is described as ONE was, or by the address where ONE listens. */
bool port_is_same(const struct port *one, const struct port *other);

/* On the first reactor. Listening again is nothing; on failure WHY has a line for the user. */
int port_listen(struct port *port, struct reactor *reactor, char *why, size_t why_size) must_check;
void port_unlisten(struct port *port);
/* From now on hosts are let in: those that have come since it listens, and all others. */
void port_open(struct port *port);
/* Not yet open: keeps it until then. False: too many have come. */
bool port_keep(struct port *port, struct transport_handover *handover);
/* A connection has come, or is gone. */
void port_add_conn(struct port *port);
void port_remove_conn(struct port *port);
/* It has stopped and is in no catalog: freed when its last connection is gone. */
void port_release(struct port *port);

/* "tcp://127.0.0.1:4420" of a port that listens. */
#define PORT_TEXT 128
void port_describe(const struct port *port, char ret_text[PORT_TEXT]);

/* The value of an option as an URI has it: "off", "128K". */
#define PORT_OPTION_TEXT 32
void port_describe_option(
	const struct transport_option *option, uint32_t value, char ret_text[PORT_OPTION_TEXT]);

#endif
