/* SPDX-License-Identifier: MIT */
/*
 * A raw NVMe/RDMA host, driven line by line from standard input: one connection, memory regions by
 * number, capsules as hexadecimal text. It checks nothing: what a test says goes out.
 *
 *	connect ADDRESS PORT PRIVATE-HEX [INITIATOR-DEPTH [SOURCE|- [RECEIVES]]]
 *	                                                    established HEX | rejected HEX |
 *	                                                    failed EVENT
 *	region N BYTES none|read|write|both[,marked]        region ADDRESS KEY (an earlier one of
 *	                                                    that number goes; marked: full of C5h,
 *	                                                    otherwise of zeros)
 *	fill N OFFSET HEX                                   ok
 *	dump N OFFSET BYTES                                 data HEX
 *	forget N                                            ok (the region is deregistered)
 *	send HEX                                            ok | error STATUS
 *	burst COUNT HEX                                     ok (COUNT sends at once; each its own
 *	                                                    command identifier)
 *	receive MILLISECONDS                                capsule HEX | timeout | error STATUS
 *	ended MILLISECONDS                                  yes | no
 *	disconnect                                          ok
 *	listen ADDRESS                                      listening PORT (nobody is accepted)
 *	asked                                               yes | no: whether somebody wanted to
 *connect
 */
#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

enum {
	NR_REGIONS = 16,
	NR_RECEIVES = 128,
	NR_SENDS = 64,
	CAPSULE_BYTES = 64 + 32768,
	CID_OFFSET = 2,	    /* in the command */
	UNTOUCHED = 0xC5,   /* what a marked region is full of */
	MAX_LINE = 1 << 22, /* a MiB as hexadecimal text, and some */
	STEP_MS = 5000,	    /* for each step of a connect */
	SHORTEST_US = 20,   /* between two looks, and then more and more */
	LONGEST_US = 1000,
};

struct region {
	struct ibv_mr *mr;
	unsigned char *bytes;
};

struct raw {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	struct ibv_mr *capsule_mr;
	unsigned char *capsules; /* NR_RECEIVES for receiving, NR_SENDS for sending */
	struct region regions[NR_REGIONS];
	bool ended;
	struct ibv_wc held[NR_RECEIVES]; /* received while waiting for a send */
	unsigned nr_held;
};

static char line[MAX_LINE], output[MAX_LINE];

static uint64_t raw_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Sleeps between two looks for something; *WAIT_US starts at 0. */
static void raw_wait(unsigned *wait_us)
{
	struct timespec pause = {.tv_nsec = 1000};

	*wait_us = *wait_us < SHORTEST_US ? SHORTEST_US : 2 * *wait_us;
	*wait_us = *wait_us > LONGEST_US ? LONGEST_US : *wait_us;
	pause.tv_nsec *= *wait_us;
	nanosleep(&pause, NULL);
}

static void raw_print_hex(const char *word, const unsigned char *bytes, size_t length)
{
	static const char digits[] = "0123456789abcdef";

	printf("%s ", word);
	for (size_t at = 0; at < length; at++) {
		putchar_unlocked(digits[bytes[at] >> 4]);
		putchar_unlocked(digits[bytes[at] & 15]);
	}
	printf("\n");
}

static int raw_nibble(char digit)
{
	if (digit >= '0' && digit <= '9')
		return digit - '0';
	return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* Bytes of TEXT into BYTES, at most LIMIT; their number. */
static size_t raw_parse_hex(const char *text, unsigned char *bytes, size_t limit)
{
	size_t length = 0;

	while (length < limit && raw_nibble(text[2 * length]) >= 0 &&
		raw_nibble(text[2 * length + 1]) >= 0) {
		bytes[length] = (unsigned char)(raw_nibble(text[2 * length]) << 4 |
						raw_nibble(text[2 * length + 1]));
		length++;
	}
	return length;
}

static struct rdma_cm_event *raw_event(struct raw *raw, int timeout_ms)
{
	struct pollfd pfd = {.fd = raw->channel->fd, .events = POLLIN};
	struct rdma_cm_event *event;

	if (poll(&pfd, 1, timeout_ms) <= 0 || rdma_get_cm_event(raw->channel, &event))
		return NULL;
	return event;
}

static bool raw_step(struct raw *raw, enum rdma_cm_event_type expected)
{
	struct rdma_cm_event *event = raw_event(raw, STEP_MS);
	bool ok = event && event->event == expected;

	if (event && !ok)
		printf("failed %s\n", rdma_event_str(event->event));
	if (!event)
		printf("failed timeout\n");
	if (event)
		rdma_ack_cm_event(event);
	return ok;
}

static int raw_post_receive(struct raw *raw, unsigned slot)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)(raw->capsules + (size_t)slot * CAPSULE_BYTES),
		.length = CAPSULE_BYTES,
		.lkey = raw->capsule_mr->lkey,
	};
	struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;

	return ibv_post_recv(raw->id->qp, &wr, &bad);
}

static bool raw_make_queue(struct raw *raw, unsigned nr_receives)
{
	struct ibv_qp_init_attr attr = {
		.cap = {.max_send_wr = NR_SENDS,
			.max_recv_wr = NR_RECEIVES,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};

	raw->cq = ibv_create_cq(raw->id->verbs, 2 * NR_RECEIVES, NULL, NULL, 0);
	attr.send_cq = raw->cq;
	attr.recv_cq = raw->cq;
	raw->capsules = calloc(NR_RECEIVES + NR_SENDS, CAPSULE_BYTES);
	if (!raw->cq || !raw->capsules || rdma_create_qp(raw->id, NULL, &attr))
		return false;
	raw->capsule_mr = ibv_reg_mr(raw->id->pd, raw->capsules,
		(size_t)(NR_RECEIVES + NR_SENDS) * CAPSULE_BYTES, IBV_ACCESS_LOCAL_WRITE);
	if (!raw->capsule_mr)
		return false;
	for (unsigned slot = 0; slot < nr_receives && slot < NR_RECEIVES; slot++)
		if (raw_post_receive(raw, slot))
			return false;
	return true;
}

static bool raw_resolve(struct raw *raw, const char *address, const char *port, const char *source)
{
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV}, *found, *own = NULL;
	int ret;

	raw->channel = rdma_create_event_channel();
	if (!raw->channel || rdma_create_id(raw->channel, &raw->id, NULL, RDMA_PS_TCP) ||
		getaddrinfo(address, port, &hints, &found))
		return false;
	if (strcmp(source, "-") && getaddrinfo(source, NULL, &hints, &own))
		return false;
	ret = rdma_resolve_addr(raw->id, own ? own->ai_addr : NULL, found->ai_addr, STEP_MS);
	freeaddrinfo(found);
	if (own)
		freeaddrinfo(own);
	return !ret && raw_step(raw, RDMA_CM_EVENT_ADDR_RESOLVED) &&
	       !rdma_resolve_route(raw->id, STEP_MS) && raw_step(raw, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

static void raw_connect(struct raw *raw, char *arguments)
{
	char address[64], port[8], private_hex[512] = "", source[64] = "-";
	unsigned depth = 0, nr_receives = NR_RECEIVES;
	unsigned char private_data[196];
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
	struct rdma_cm_event *event;

	if (sscanf(arguments, "%63s %7s %511s %u %63s %u", address, port, private_hex, &depth,
		    source, &nr_receives) < 3 ||
		!raw_resolve(raw, address, port, source) || !raw_make_queue(raw, nr_receives)) {
		printf("failed setup\n");
		return;
	}
	param.private_data = private_data;
	param.private_data_len =
		(uint8_t)raw_parse_hex(private_hex, private_data, sizeof(private_data));
	param.initiator_depth = (uint8_t)depth;
	param.responder_resources = 16;
	if (rdma_connect(raw->id, &param)) {
		printf("failed connect\n");
		return;
	}
	event = raw_event(raw, STEP_MS);
	if (!event) {
		printf("failed timeout\n");
		return;
	}
	if (event->event == RDMA_CM_EVENT_ESTABLISHED)
		raw_print_hex("established", event->param.conn.private_data,
			event->param.conn.private_data_len);
	else if (event->event == RDMA_CM_EVENT_REJECTED)
		raw_print_hex("rejected", event->param.conn.private_data,
			event->param.conn.private_data_len);
	else
		printf("failed %s\n", rdma_event_str(event->event));
	rdma_ack_cm_event(event);
}

static struct region *raw_region(struct raw *raw, char **arguments)
{
	unsigned long number = strtoul(*arguments, arguments, 10);

	return &raw->regions[number % NR_REGIONS];
}

static void raw_make_region(struct raw *raw, char *arguments)
{
	struct region *region = raw_region(raw, &arguments);
	size_t bytes = strtoul(arguments, &arguments, 10);
	int access = IBV_ACCESS_LOCAL_WRITE;

	if (strstr(arguments, "read") || strstr(arguments, "both"))
		access |= IBV_ACCESS_REMOTE_READ;
	if (strstr(arguments, "write") || strstr(arguments, "both"))
		access |= IBV_ACCESS_REMOTE_WRITE;
	if (region->mr)
		ibv_dereg_mr(region->mr);
	free(region->bytes);
	region->bytes = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
	memset(region->bytes, strstr(arguments, "marked") ? UNTOUCHED : 0, bytes);
	region->mr = ibv_reg_mr(raw->id->pd, region->bytes, bytes, access);
	printf("region %lu %u\n", (unsigned long)(uintptr_t)region->bytes,
		region->mr ? region->mr->rkey : 0);
}

static void raw_fill(struct raw *raw, char *arguments)
{
	struct region *region = raw_region(raw, &arguments);
	size_t offset = strtoul(arguments, &arguments, 10);

	raw_parse_hex(arguments + 1, region->bytes + offset, region->mr->length - offset);
	printf("ok\n");
}

static void raw_dump(struct raw *raw, char *arguments)
{
	struct region *region = raw_region(raw, &arguments);
	size_t offset = strtoul(arguments, &arguments, 10);

	raw_print_hex("data", region->bytes + offset, strtoul(arguments, NULL, 10));
}

static void raw_forget(struct raw *raw, char *arguments)
{
	struct region *region = raw_region(raw, &arguments);

	if (region->mr)
		ibv_dereg_mr(region->mr);
	region->mr = NULL;
	printf("ok\n");
}

static void raw_drain_events(struct raw *raw)
{
	struct rdma_cm_event *event;

	while ((event = raw_event(raw, 0))) {
		raw->ended |= event->event == RDMA_CM_EVENT_DISCONNECTED ||
			      event->event == RDMA_CM_EVENT_DEVICE_REMOVAL;
		rdma_ack_cm_event(event);
	}
}

/* The next completion within TIMEOUT_MS, and before the end. */
static bool raw_completion(struct raw *raw, struct ibv_wc *wc, long timeout_ms)
{
	uint64_t end_ms = raw_now_ms() + (uint64_t)timeout_ms;
	unsigned wait_us = 0;

	while (ibv_poll_cq(raw->cq, 1, wc) == 0) {
		raw_drain_events(raw);
		if (raw->ended || raw_now_ms() >= end_ms)
			return ibv_poll_cq(raw->cq, 1, wc) > 0;
		raw_wait(&wait_us);
	}
	return true;
}

static void raw_send(struct raw *raw, char *arguments)
{
	unsigned char *capsule = raw->capsules + (size_t)NR_RECEIVES * CAPSULE_BYTES;
	struct ibv_sge sge = {
		.addr = (uintptr_t)capsule,
		.length = (uint32_t)raw_parse_hex(arguments, capsule, CAPSULE_BYTES),
		.lkey = raw->capsule_mr->lkey,
	};
	struct ibv_send_wr wr = {.wr_id = NR_RECEIVES,
				   .sg_list = &sge,
				   .num_sge = 1,
				   .opcode = IBV_WR_SEND},
			   *bad;
	struct ibv_wc wc;

	if (ibv_post_send(raw->id->qp, &wr, &bad)) {
		printf("error post\n");
		return;
	}
	while (raw_completion(raw, &wc, STEP_MS)) {
		if (wc.wr_id == NR_RECEIVES) {
			if (wc.status)
				printf("error %s\n", ibv_wc_status_str(wc.status));
			else
				printf("ok\n");
			return;
		}
		raw->held[raw->nr_held++ % NR_RECEIVES] = wc;
	}
	printf(raw->ended ? "error disconnected\n" : "error timeout\n");
}

static void raw_burst(struct raw *raw, char *arguments)
{
	unsigned long count = strtoul(arguments, &arguments, 10);
	struct ibv_send_wr wr[NR_SENDS], *bad;
	struct ibv_sge sge[NR_SENDS];

	for (unsigned i = 0; i < count && i < NR_SENDS; i++) {
		unsigned char *capsule = raw->capsules + (size_t)(NR_RECEIVES + i) * CAPSULE_BYTES;

		sge[i] = (struct ibv_sge){
			.addr = (uintptr_t)capsule,
			.length = (uint32_t)raw_parse_hex(arguments + 1, capsule, CAPSULE_BYTES),
			.lkey = raw->capsule_mr->lkey,
		};
		capsule[CID_OFFSET] = (unsigned char)i;
		wr[i] = (struct ibv_send_wr){.wr_id = NR_RECEIVES,
			.next = i + 1 < count && i + 1 < NR_SENDS ? &wr[i + 1] : NULL,
			.sg_list = &sge[i],
			.num_sge = 1,
			.opcode = IBV_WR_SEND};
	}
	printf("%s\n", count && !ibv_post_send(raw->id->qp, wr, &bad) ? "ok" : "error post");
}

static void raw_receive(struct raw *raw, char *arguments)
{
	struct ibv_wc wc;

	if (raw->nr_held) {
		wc = raw->held[0];
		memmove(raw->held, raw->held + 1, --raw->nr_held * sizeof(wc));
	} else {
		/* Those of a burst's sends are in between. */
		do {
			if (!raw_completion(raw, &wc, strtol(arguments, NULL, 10))) {
				printf(raw->ended ? "error disconnected\n" : "timeout\n");
				return;
			}
		} while (wc.wr_id == NR_RECEIVES && !wc.status);
	}
	if (wc.status) {
		raw->ended = true;
		printf("error %s\n", ibv_wc_status_str(wc.status));
		return;
	}
	raw_print_hex("capsule", raw->capsules + wc.wr_id * CAPSULE_BYTES, wc.byte_len);
	if (raw_post_receive(raw, (unsigned)wc.wr_id))
		raw->ended = true;
}

static void raw_ended(struct raw *raw, char *arguments)
{
	uint64_t end_ms = raw_now_ms() + strtoul(arguments, NULL, 10);
	unsigned wait_us = 0;

	raw_drain_events(raw);
	while (!raw->ended && raw_now_ms() < end_ms) {
		raw_wait(&wait_us);
		raw_drain_events(raw);
	}
	printf("%s\n", raw->ended ? "yes" : "no");
}

static void raw_disconnect(struct raw *raw, char *arguments)
{
	(void)arguments;
	rdma_disconnect(raw->id);
	printf("ok\n");
}

static void raw_listen(struct raw *raw, char *arguments)
{
	struct sockaddr_in address = {.sin_family = AF_INET};

	arguments[strcspn(arguments, "\n")] = '\0';
	raw->channel = rdma_create_event_channel();
	if (!raw->channel || inet_pton(AF_INET, arguments, &address.sin_addr) != 1 ||
		rdma_create_id(raw->channel, &raw->id, NULL, RDMA_PS_TCP) ||
		rdma_bind_addr(raw->id, (struct sockaddr *)&address) || rdma_listen(raw->id, 8))
		printf("failed\n");
	else
		printf("listening %u\n", ntohs(rdma_get_src_port(raw->id)));
}

static void raw_asked(struct raw *raw, char *arguments)
{
	struct rdma_cm_event *event = raw->channel ? raw_event(raw, 0) : NULL;

	(void)arguments;
	printf("%s\n", event && event->event == RDMA_CM_EVENT_CONNECT_REQUEST ? "yes" : "no");
}

static const struct {
	const char *word;
	void (*run)(struct raw *raw, char *arguments);
	bool needs_queue;
} raw_commands[] = {
	{"connect ", raw_connect, false},
	{"region ", raw_make_region, true},
	{"fill ", raw_fill, true},
	{"dump ", raw_dump, true},
	{"forget ", raw_forget, true},
	{"send ", raw_send, true},
	{"burst ", raw_burst, true},
	{"receive ", raw_receive, true},
	{"ended ", raw_ended, true},
	{"disconnect", raw_disconnect, true},
	{"listen ", raw_listen, false},
	{"asked", raw_asked, false},
};

static void raw_run(struct raw *raw)
{
	for (size_t at = 0; at < sizeof(raw_commands) / sizeof(raw_commands[0]); at++) {
		size_t length = strlen(raw_commands[at].word);

		if (strncmp(line, raw_commands[at].word, length))
			continue;
		if (raw_commands[at].needs_queue && !(raw->id && raw->id->qp))
			break;
		raw_commands[at].run(raw, line + length);
		return;
	}
	printf("what?\n");
}

int main(void)
{
	static struct raw raw;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setvbuf(stdout, output, _IOFBF, sizeof(output));
	while (fgets(line, sizeof(line), stdin)) {
		raw_run(&raw);
		fflush(stdout);
	}
	/* The kernel takes everything back at exit: a host that just vanishes is part of the tests.
	 */
	return 0;
}
