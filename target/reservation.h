/* SPDX-License-Identifier: MIT */
/*
 * The reservation of a namespace and what commands make of it (NVMe base 2.0 8.19): rules only, no
 * I/O, no threads. A state that others look at never changes: a command changes a copy, which then
 * takes its place. Hosts are known by their identifier; keys are kept in one place, with it.
 */
#ifndef HAUL_TARGET_RESERVATION_H
#define HAUL_TARGET_RESERVATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/nvme/log.h"
#include "proto/nvme/nvme.h"

#define RESERVATION_HOST_BYTES 16

struct registrant {
	uint8_t host[RESERVATION_HOST_BYTES];
	uint64_t key;
};

struct reservation {
	uint32_t generation;
	enum nvme_reservation_type type;
	bool ptpl;				/* persists through power loss */
	uint8_t holder[RESERVATION_HOST_BYTES]; /* of a type that one registrant holds */
	uint32_t nr;
	uint32_t room;
	struct registrant registrants[]; /* by host identifier, ascending */
};

enum reservation_op {
	RESERVATION_REGISTER,
	RESERVATION_ACQUIRE,
	RESERVATION_RELEASE,
	RESERVATION_PERSISTENCE, /* Set Features 83h, of any host */
};

struct reservation_command {
	enum reservation_op op;
	uint8_t action; /* RREGA, RACQA or RRELA */
	bool iekey;
	uint8_t cptpl; /* of the command: enum reservation_cptpl */
	uint8_t type;  /* RTYPE */
	uint64_t crkey;
	uint64_t key; /* NRKEY or PRKEY */
	uint8_t host[RESERVATION_HOST_BYTES];
};

enum reservation_cptpl {
	RESERVATION_CPTPL_KEEP = 0,
	RESERVATION_CPTPL_CLEAR = 2,
	RESERVATION_CPTPL_SET = 3,
};

/* What others have to learn, besides the state itself. */
struct reservation_effect {
	/* For those who are no registrants any more, but for the host itself; or EMPTY. */
	enum nvme_reservation_notice lost;
	bool released; /* for the registrants that there are, but for the host itself */
	bool abort;    /* commands of those who are no registrants any more */
};

/* What a command does to a namespace (NVMe base 2.0 figure 421): its group. */
enum reservation_access {
	RESERVATION_FREE, /* no conflict is possible, or it is found elsewhere */
	RESERVATION_READ,
	RESERVATION_WRITE,
};

/* Nobody is registered, ROOM may be; NULL: no memory. */
struct reservation *reservation_create(size_t room);
/* With room for one more registrant. */
struct reservation *reservation_copy(const struct reservation *from);

/* On a copy. 0, or a status, after which the copy is of no use. */
uint16_t reservation_apply(struct reservation *state, const struct reservation_command *command,
	struct reservation_effect *ret);

/* NULL: not registered. */
const struct registrant *reservation_find(const struct reservation *state, const uint8_t *host);
bool reservation_holds(const struct reservation *state, const uint8_t *host);
bool reservation_allows(
	const struct reservation *state, const uint8_t *host, enum reservation_access access);
/* HOST has lost its registration, by the command of another one. */
bool reservation_lost(const struct reservation *before, const struct reservation *after,
	const struct reservation_command *command, const uint8_t *host);

/* A state that comes from elsewhere; ROOM is enough. False: it has that host already. */
bool reservation_add(struct reservation *state, const uint8_t *host, uint64_t key);

static inline bool reservation_type_valid(unsigned type)
{
	return type >= NVME_RESERVATION_WRITE_EXCLUSIVE &&
	       type <= NVME_RESERVATION_EXCLUSIVE_ACCESS_ALL;
}

/* Every registrant holds it. */
static inline bool reservation_is_shared(const struct reservation *state)
{
	return state->type == NVME_RESERVATION_WRITE_EXCLUSIVE_ALL ||
	       state->type == NVME_RESERVATION_EXCLUSIVE_ACCESS_ALL;
}

#endif
