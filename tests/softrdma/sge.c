/* SPDX-License-Identifier: MIT */
/*
 * Scatter and gather between a segment of the stream and the program's memory.
 * The keys are checked at each segment: memory deregistered in between is never touched.
 */
#include "tests/softrdma/softrdma.h"

#include <errno.h>
#include <string.h>

int sr_sge_check(struct sr_pd *pd, const struct ibv_sge *sge, int num, unsigned int access)
{
	for (int i = 0; i < num; i++) {
		if (sge[i].length && !sr_lkey_check(pd, &sge[i], access))
			return -EFAULT;
	}
	return 0;
}

/* Calls copy for the part [off, off + len) of the list, piece by piece. */
static int sge_walk(struct sr_pd *pd, const struct ibv_sge *sge, int num, uint32_t off,
	uint32_t len, unsigned int access, void (*copy)(uint8_t *user, uint8_t *wire, uint32_t n),
	uint8_t *wire)
{
	for (int i = 0; i < num && len; i++) {
		uint32_t n;
		uint8_t *user;

		if (off >= sge[i].length) {
			off -= sge[i].length;
			continue;
		}
		user = sr_lkey_check(pd, &sge[i], access);
		if (!user)
			return -EFAULT;
		n = sge[i].length - off < len ? sge[i].length - off : len;
		copy(user + off, wire, n);
		wire += n;
		len -= n;
		off = 0;
	}
	return 0;
}

static void sge_copy_out(uint8_t *user, uint8_t *wire, uint32_t n)
{
	memcpy(wire, user, n);
}

static void sge_copy_in(uint8_t *user, uint8_t *wire, uint32_t n)
{
	memcpy(user, wire, n);
}

int sr_sge_gather(struct sr_pd *pd, const struct ibv_sge *sge, int num, uint32_t off, uint8_t *to,
	uint32_t len)
{
	return sge_walk(pd, sge, num, off, len, 0, sge_copy_out, to);
}

int sr_sge_scatter(struct sr_pd *pd, const struct ibv_sge *sge, int num, uint32_t off,
	const uint8_t *from, uint32_t len)
{
	return sge_walk(pd, sge, num, off, len, IBV_ACCESS_LOCAL_WRITE, sge_copy_in,
		(uint8_t *)(uintptr_t)from);
}
