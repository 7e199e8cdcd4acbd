/* SPDX-License-Identifier: MIT */
/*
 * Parser of SOFTRDMA_FAULT and the counters behind it.
 * A word that is not understood ends the process: a test with a mistyped fault tests nothing.
 */
#include "tests/softrdma/fault.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sr_faults sr_faults = {
	.max_sge = 32,
	.max_send_wr = 16384,
	.max_srq_wr = 32768,
	.max_inline = 400,
	.max_qp_rd_atom = 128,
	.max_mr = 65536,
	.max_cqe = 1 << 20,
	.max_qp = 65536,
	.retry_ms = 200,
	.timewait_ms = 500,
	.withhold_ms = 2000,
	.cm_event = SR_NO_EVENT,
	.cm_event_times = 1,
};

struct fault_call {
	const char *name;
	uint32_t at;
	uint32_t count;
	int error;
	bool onwards;
};

static struct fault_call fault_calls[SR_NR_CALLS] = {
	[SR_CALL_ALLOC_PD] = {"alloc_pd", 0, 0, ENOMEM, false},
	[SR_CALL_REG_MR] = {"reg_mr", 0, 0, ENOMEM, false},
	[SR_CALL_ALLOC_MW] = {"alloc_mw", 0, 0, ENOMEM, false},
	[SR_CALL_CREATE_CHANNEL] = {"create_channel", 0, 0, ENOMEM, false},
	[SR_CALL_CREATE_CQ] = {"create_cq", 0, 0, ENOMEM, false},
	[SR_CALL_RESIZE_CQ] = {"resize_cq", 0, 0, ENOSYS, false},
	[SR_CALL_CREATE_SRQ] = {"create_srq", 0, 0, ENOMEM, false},
	[SR_CALL_CREATE_QP] = {"create_qp", 0, 0, ENOMEM, false},
	[SR_CALL_MODIFY_QP] = {"modify_qp", 0, 0, EINVAL, false},
	[SR_CALL_DESTROY_QP] = {"destroy_qp", 0, 0, EBUSY, false},
	[SR_CALL_POST_SEND] = {"post_send", 0, 0, ENOMEM, false},
	[SR_CALL_POST_RECV] = {"post_recv", 0, 0, ENOMEM, false},
	[SR_CALL_CREATE_ID] = {"create_id", 0, 0, ENOMEM, false},
	[SR_CALL_LISTEN] = {"listen", 0, 0, EADDRINUSE, false},
	[SR_CALL_RESOLVE_ADDR] = {"resolve_addr", 0, 0, ENODEV, false},
	[SR_CALL_CONNECT] = {"connect", 0, 0, ENOMEM, false},
	[SR_CALL_ACCEPT] = {"accept", 0, 0, ENOMEM, false},
	[SR_CALL_NOTIFY] = {"notify", 0, 0, EINVAL, false},
};

static const struct {
	const char *name;
	uint32_t *value;
} fault_values[] = {
	{"max_sge", &sr_faults.max_sge},
	{"max_send_wr", &sr_faults.max_send_wr},
	{"max_srq_wr", &sr_faults.max_srq_wr},
	{"max_inline", &sr_faults.max_inline},
	{"max_qp_rd_atom", &sr_faults.max_qp_rd_atom},
	{"max_mr", &sr_faults.max_mr},
	{"max_cqe", &sr_faults.max_cqe},
	{"max_qp", &sr_faults.max_qp},
	{"memlock", &sr_faults.memlock},
	{"no_srq", &sr_faults.no_srq},
	{"no_inv", &sr_faults.no_inv},
	{"no_mw", &sr_faults.no_mw},
	{"no_resize", &sr_faults.no_resize},
	{"no_flush", &sr_faults.no_flush},
	{"iwarp", &sr_faults.iwarp},
	{"last_wqe", &sr_faults.last_wqe},
	{"clean_cq", &sr_faults.clean_cq},
	{"rnr", &sr_faults.rnr},
	{"withhold", &sr_faults.withhold_at},
	{"withhold_ms", &sr_faults.withhold_ms},
	{"delay_cq", &sr_faults.delay_cq_us},
	{"retry_ms", &sr_faults.retry_ms},
	{"timewait_ms", &sr_faults.timewait_ms},
	{"flush", &sr_faults.flush_at},
	{"reject", &sr_faults.reject_at},
	{"disconnect", &sr_faults.disconnect_at},
	{"remove_device", &sr_faults.remove_at},
	{"port_bounce", &sr_faults.port_bounce_at},
	{"port_events", &sr_faults.port_events},
	{"cm_event", &sr_faults.cm_event},
	{"cm_event_times", &sr_faults.cm_event_times},
	{"delay_established", &sr_faults.delay_established_ms},
};

#define FAULT_NR_VALUES (sizeof(fault_values) / sizeof(fault_values[0]))

static pthread_mutex_t fault_mutex = PTHREAD_MUTEX_INITIALIZER;

static void fault_unknown(const char *word)
{
	fprintf(stderr, "softrdma: SOFTRDMA_FAULT: '%s' is not known\n", word);
	abort();
}

/* fail:CALL@N, fail:CALL@N+ (from the N-th on), either followed by =ERRNO. */
static bool fault_parse_call(char *word)
{
	char *at = strchr(word, '@');

	if (!at)
		return false;
	*at++ = '\0';
	for (int i = 0; i < SR_NR_CALLS; i++) {
		struct fault_call *call = &fault_calls[i];

		if (strcmp(call->name, word))
			continue;
		call->at = (uint32_t)strtoul(at, &at, 10);
		call->onwards = *at == '+';
		at += call->onwards;
		if (*at == '=')
			call->error = (int)strtol(at + 1, NULL, 10);
		return call->at > 0;
	}
	return false;
}

static bool fault_parse_value(char *word)
{
	size_t len = strcspn(word, "=@");
	uint32_t value = word[len] ? (uint32_t)strtoul(word + len + 1, NULL, 10) : 1;

	for (size_t i = 0; i < FAULT_NR_VALUES; i++) {
		if (strlen(fault_values[i].name) == len &&
			!strncmp(fault_values[i].name, word, len)) {
			*fault_values[i].value = value;
			return true;
		}
	}
	return false;
}

static void fault_load_once(void)
{
	const char *env = getenv("SOFTRDMA_FAULT");
	char *copy = env ? strdup(env) : NULL;
	char *save = NULL;

	if (!copy)
		return;
	for (char *w = strtok_r(copy, ",", &save); w; w = strtok_r(NULL, ",", &save)) {
		bool known =
			!strncmp(w, "fail:", 5) ? fault_parse_call(w + 5) : fault_parse_value(w);

		if (!known)
			fault_unknown(w);
	}
	free(copy);
}

void sr_faults_load(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, fault_load_once);
}

int sr_fault_call(enum sr_call c)
{
	struct fault_call *call = &fault_calls[c];
	bool hit;

	if (!call->at)
		return 0;
	pthread_mutex_lock(&fault_mutex);
	call->count++;
	hit = call->onwards ? call->count >= call->at : call->count == call->at;
	pthread_mutex_unlock(&fault_mutex);
	return hit ? call->error : 0;
}

bool sr_fault_hit(uint32_t at, uint32_t *count)
{
	bool hit;

	if (!at)
		return false;
	pthread_mutex_lock(&fault_mutex);
	hit = ++*count == at;
	pthread_mutex_unlock(&fault_mutex);
	return hit;
}
