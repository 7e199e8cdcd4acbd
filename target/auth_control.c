/* SPDX-License-Identifier: MIT */
/*
 * Authentication on the control thread: keys, random numbers, Diffie-Hellman.
 */
#include "target/auth_private.h"

#include <errno.h>
#include <string.h>

#include "target/catalog.h"
#include "target/conn.h"
#include "target/reactor.h"
#include "target/request.h"
#include "target/target.h"

/* --- turns ----------------------------------------------------------------------------------- */

static void auth_done(struct loop_message *message)
{
	struct auth *auth = container_of(message, struct auth, step);

	host_turns_over(&auth->target->auth_turns, &auth->turn);
	request_errand_return(&auth->errand);
}

static void auth_do(struct loop_message *message)
{
	struct auth *auth = container_of(message, struct auth, step);

	auth->work(auth);
	message->fn = auth_done;
	loop_send(auth->target->loop, message);
}

/* The clock of a loop stands still during a turn: the work has one of its own, or it would be taken
 * for free. And whatever else this thread has to do comes between two of them. */
static void auth_turn(struct host_turn *turn)
{
	struct auth *auth = container_of(turn, struct auth, turn);

	auth->step.fn = auth_do;
	loop_send(auth->target->loop, &auth->step);
}

static void auth_arrive(struct request_errand *errand)
{
	struct auth *auth = container_of(errand, struct auth, errand);

	auth->turn.begin = auth_turn;
	host_turns_ask(&auth->target->auth_turns, &auth->turn);
}

static void auth_send(struct auth *auth, struct request *request, void (*work)(struct auth *auth),
	void (*back)(struct request_errand *errand))
{
	auth->target = request->conn->reactor->target;
	auth->turn.host = request->conn->share->key;
	auth->work = work;
	auth->fault = NVME_AUTH_OK;
	request_errand_send(&auth->errand, request, auth_arrive, back);
}

/* Its keys as they count now; NULL: it has none any more. */
static struct host_auth *auth_find_host(const struct auth *auth)
{
	const struct subsys *subsys = catalog_find(auth->target->catalog, auth->subnqn);
	struct host_auth *host = subsys ? host_auth_find(&subsys->auth, auth->hostnqn) : NULL;

	return host && host->host.secret.len ? host : NULL;
}

/* --- a challenge ----------------------------------------------------------------------------- */

/* Random at first, then one more each time, and never 0 (NVMe base 2.0 8.13.5.3). */
static int auth_next_seqnum(struct target *target, uint32_t *ret)
{
	while (!target->auth_seqnum)
		if (dhchap_random(&target->auth_seqnum, sizeof(target->auth_seqnum)))
			return -EIO;
	*ret = target->auth_seqnum++;
	return 0;
}

static enum nvme_auth_fault auth_choose_for(struct auth *auth, const struct host_auth *host)
{
	uint32_t hashes = auth->offer.hashes & host->hashes;
	uint32_t groups = auth->offer.groups & host->groups;

	if (!hashes)
		return NVME_AUTH_HASH_UNUSABLE;
	if (!groups)
		return NVME_AUTH_GROUP_UNUSABLE;
	auth->hash = nvme_auth_strongest(hashes);
	auth->group = nvme_auth_strongest(groups);
	dhchap_dh_free(auth->dh);
	auth->dh = NULL;
	if (dhchap_random(auth->challenge, nvme_auth_hash_bytes(auth->hash)) ||
		auth_next_seqnum(auth->target, &auth->seqnum))
		return NVME_AUTH_FAILED;
	if (auth->group != NVME_AUTH_GROUP_NULL &&
		dhchap_dh_create(auth->group, &auth->dh, auth->value))
		return NVME_AUTH_FAILED;
	return NVME_AUTH_OK;
}

static void auth_choose_work(struct auth *auth)
{
	const struct host_auth *host = auth_find_host(auth);

	auth->fault = host ? auth_choose_for(auth, host) : NVME_AUTH_FAILED;
}

void auth_choose(
	struct auth *auth, struct request *request, void (*back)(struct request_errand *errand))
{
	auth_send(auth, request, auth_choose_work, back);
}

/* --- a response ------------------------------------------------------------------------------ */

/* Our response in place of the host's, which was right. */
static enum nvme_auth_fault auth_respond(
	struct auth *auth, const struct dhchap *dhchap, const struct host_auth *host)
{
	if (!auth->challenges)
		return NVME_AUTH_OK;
	if (!host->ctrl.secret.len ||
		dhchap_response(dhchap, DHCHAP_CTRL, &host->ctrl.secret, auth->host_challenge,
			auth->host_seqnum, auth->response))
		return NVME_AUTH_FAILED;
	return NVME_AUTH_OK;
}

static enum nvme_auth_fault auth_verify_with(
	struct auth *auth, const struct dhchap *dhchap, const struct host_auth *host)
{
	uint8_t right[NVME_AUTH_HASH_MAX_BYTES];
	bool same = !dhchap_response(dhchap, DHCHAP_HOST, &host->host.secret, auth->challenge,
			    auth->seqnum, right) &&
		    dhchap_is_same(right, auth->response, nvme_auth_hash_bytes(dhchap->hash));

	dhchap_wipe(right, sizeof(right));
	return same ? auth_respond(auth, dhchap, host) : NVME_AUTH_FAILED;
}

static enum nvme_auth_fault auth_verify_for(struct auth *auth, const struct host_auth *host)
{
	uint8_t shared[NVME_AUTH_GROUP_MAX_BYTES];
	const struct dhchap dhchap = {
		.hash = auth->hash,
		.t_id = auth->t_id,
		.hostnqn = auth->hostnqn,
		.subnqn = auth->subnqn,
		.shared = shared,
		.shared_len = nvme_auth_group_bytes(auth->group),
	};
	enum nvme_auth_fault fault = NVME_AUTH_PAYLOAD;

	if (!auth->dh || !dhchap_dh_derive(auth->dh, auth->value, shared))
		fault = auth_verify_with(auth, &dhchap, host);
	dhchap_wipe(shared, sizeof(shared));
	return fault;
}

static void auth_verify_work(struct auth *auth)
{
	struct host_auth *host = auth_find_host(auth);

	auth->fault = host ? auth_verify_for(auth, host) : NVME_AUTH_FAILED;
	if (host && auth->fault)
		host->nr_refused++;
	else if (host)
		host->nr_done++;
	dhchap_dh_free(auth->dh);
	auth->dh = NULL;
}

void auth_verify(
	struct auth *auth, struct request *request, void (*back)(struct request_errand *errand))
{
	auth_send(auth, request, auth_verify_work, back);
}
