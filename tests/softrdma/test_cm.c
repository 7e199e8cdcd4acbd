/* SPDX-License-Identifier: MIT */
/*
 * Connection management: addresses, private data, refusals, disconnects, and who waits for whom.
 */
#include "tests/softrdma/harness.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

static void all_zero(const void *data, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++)
		assert_int_equal(((const uint8_t *)data)[i], 0);
}

/* A request on its way to a listener of this process. */
struct call {
	struct rdma_event_channel *ch, *lch;
	struct rdma_cm_id *listener, *active, *passive;
};

static void call_open(struct call *c, const char *on, const char *to)
{
	c->ch = rdma_create_event_channel();
	c->lch = rdma_create_event_channel();
	c->listener = listen_on(c->lch, on, 0);
	c->active = route_to(c->ch, to, ntohs(rdma_get_src_port(c->listener)));
	c->passive = NULL;
}

static void call_close(struct call *c)
{
	rdma_destroy_id(c->active);
	if (c->passive)
		rdma_destroy_id(c->passive);
	rdma_destroy_id(c->listener);
	rdma_destroy_event_channel(c->ch);
	rdma_destroy_event_channel(c->lch);
}

static struct rdma_cm_event *call_request(struct call *c, struct rdma_conn_param *param)
{
	struct rdma_cm_event *event;

	assert_int_equal(rdma_connect(c->active, param), 0);
	event = event_wait(c->lch, RDMA_CM_EVENT_CONNECT_REQUEST);
	c->passive = event->id;
	assert_ptr_equal(event->listen_id, c->listener);
	return event;
}

static void request_carries_padded_private_data_and_mirrored_depths(void **state)
{
	struct rdma_conn_param param = {.private_data = "hello",
		.private_data_len = 5,
		.responder_resources = 3,
		.initiator_depth = 9,
		.rnr_retry_count = 5,
		.retry_count = 4};
	struct rdma_cm_event *event;
	struct call c;

	(void)state;
	call_open(&c, "127.0.0.1", "127.0.0.1");
	event = call_request(&c, &param);
	assert_int_equal(event->param.conn.private_data_len, 56);
	assert_memory_equal(event->param.conn.private_data, "hello", 5);
	all_zero(event->param.conn.private_data, 5, 56);
	assert_int_equal(event->param.conn.responder_resources, 9);
	assert_int_equal(event->param.conn.initiator_depth, 3);
	assert_int_equal(event->param.conn.rnr_retry_count, 5);
	assert_non_null(event->id->verbs);
	assert_ptr_equal(event->id->verbs, c.active->verbs);
	assert_int_equal(event->id->port_num, 1);
	assert_int_equal(rdma_get_src_port(event->id), rdma_get_src_port(c.listener));
	assert_int_equal(rdma_get_dst_port(event->id), rdma_get_src_port(c.active));
	rdma_ack_cm_event(event);
	call_close(&c);
}

static void request_without_data_shows_zeros(void **state)
{
	struct rdma_conn_param param = {0};
	struct rdma_cm_event *event;
	struct call c;

	(void)state;
	call_open(&c, "127.0.0.1", "127.0.0.1");
	event = call_request(&c, &param);
	assert_int_equal(event->param.conn.private_data_len, 56);
	all_zero(event->param.conn.private_data, 0, 56);
	rdma_ack_cm_event(event);
	param.private_data = "x";
	param.private_data_len = 57;
	call_close(&c);
	call_open(&c, "127.0.0.1", "127.0.0.1");
	assert_int_equal(rdma_connect(c.active, &param), -1);
	assert_int_equal(errno, EINVAL);
	call_close(&c);
}

static void reject_carries_private_data(void **state)
{
	struct rdma_conn_param param = {0};
	struct rdma_cm_event *event;
	struct call c;

	(void)state;
	call_open(&c, "127.0.0.1", "127.0.0.1");
	rdma_ack_cm_event(call_request(&c, &param));
	assert_int_equal(rdma_reject(c.passive, "\1\2\3\4", 4), 0);
	event = event_wait(c.ch, RDMA_CM_EVENT_REJECTED);
	assert_int_equal(event->status, 28);
	assert_int_equal(event->param.conn.private_data_len, 148);
	assert_memory_equal(event->param.conn.private_data, "\1\2\3\4", 4);
	all_zero(event->param.conn.private_data, 4, 148);
	rdma_ack_cm_event(event);
	call_close(&c);
}

static void nobody_listening_is_a_reject(void **state)
{
	struct rdma_conn_param param = {0};
	struct rdma_cm_event *event;
	struct call c;

	(void)state;
	call_open(&c, "127.0.0.1", "127.0.0.1");
	rdma_destroy_id(c.listener);
	c.listener = listen_on(c.lch, "127.0.0.1", 0);
	assert_int_equal(rdma_connect(c.active, &param), 0);
	event = event_wait(c.ch, RDMA_CM_EVENT_REJECTED);
	assert_int_equal(event->status, 8);
	rdma_ack_cm_event(event);
	call_close(&c);
}

static const struct {
	const char *listen, *connect;
	int family;
	const char *seen; /* as the passive side's own address */
} address_cases[] = {
	{"127.0.0.1", "127.0.0.1", AF_INET, "127.0.0.1"},
	{"0.0.0.0", "127.0.0.1", AF_INET, "127.0.0.1"},
	{"0.0.0.0", "127.5.6.7", AF_INET, "127.5.6.7"},
	{"::1", "::1", AF_INET6, "::1"},
	{"::", "::1", AF_INET6, "::1"},
	{"::", "127.0.0.1", AF_INET, "127.0.0.1"},
};

static void addresses_and_wildcards_are_found(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(address_cases) / sizeof(address_cases[0]); i++) {
		struct rdma_conn_param param = {0};
		struct rdma_cm_event *event;
		char text[INET6_ADDRSTRLEN];
		struct sockaddr *own;
		bool wild = strchr("0:", address_cases[i].listen[0]) &&
			    strcmp(address_cases[i].listen, "::1");
		struct call c;

		call_open(&c, address_cases[i].listen, address_cases[i].connect);
		assert_int_equal(c.listener->verbs == NULL, wild);
		event = call_request(&c, &param);
		own = rdma_get_local_addr(event->id);
		assert_int_equal(own->sa_family, address_cases[i].family);
		inet_ntop(own->sa_family,
			own->sa_family == AF_INET
				? (void *)&((struct sockaddr_in *)own)->sin_addr
				: (void *)&((struct sockaddr_in6 *)own)->sin6_addr,
			text, sizeof(text));
		assert_string_equal(text, address_cases[i].seen);
		assert_non_null(event->id->verbs);
		rdma_ack_cm_event(event);
		call_close(&c);
	}
}

static const struct {
	const char *first, *second;
	bool v6only;
	int error;
} bind_cases[] = {
	{"127.0.0.1", "127.0.0.1", false, EADDRINUSE},
	{"127.0.0.1", "127.0.0.2", false, 0},
	{"127.0.0.1", "::1", false, 0},
	{"127.0.0.1", "0.0.0.0", false, EADDRNOTAVAIL},
	{"0.0.0.0", "127.0.0.1", false, EADDRNOTAVAIL},
	{"0.0.0.0", "::1", false, 0},
	{"0.0.0.0", "::", false, EADDRNOTAVAIL},
	{"0.0.0.0", "::", true, 0},
	{"::", "0.0.0.0", false, EADDRNOTAVAIL},
};

static void same_port_twice_clashes_as_the_kernel_says(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(bind_cases) / sizeof(bind_cases[0]); i++) {
		struct rdma_event_channel *ch = rdma_create_event_channel();
		struct rdma_cm_id *a = listen_on(ch, bind_cases[i].first, 0), *b;
		struct sockaddr_storage ss =
			addr_of(bind_cases[i].second, ntohs(rdma_get_src_port(a)));
		int on = bind_cases[i].v6only, ret;

		assert_int_equal(rdma_create_id(ch, &b, NULL, RDMA_PS_TCP), 0);
		if (on)
			assert_int_equal(rdma_set_option(b, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY,
						 &on, sizeof(on)),
				0);
		ret = rdma_bind_addr(b, (struct sockaddr *)&ss);
		assert_int_equal(ret ? errno : 0, bind_cases[i].error);
		rdma_destroy_id(a);
		rdma_destroy_id(b);
		rdma_destroy_event_channel(ch);
	}
}

static void port_is_free_again_while_its_connections_live(void **state)
{
	struct rdma_event_channel *lch = rdma_create_event_channel(),
				  *ch = rdma_create_event_channel();
	struct rdma_cm_id *listener = listen_on(lch, "::", 0), *active;
	uint16_t port = ntohs(rdma_get_src_port(listener));
	struct rdma_conn_param param = {0};
	struct rdma_cm_event *event;

	(void)state;
	active = route_to(ch, "127.0.0.1", port);
	assert_int_equal(rdma_connect(active, &param), 0);
	event = event_wait(lch, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *passive = event->id;
	rdma_ack_cm_event(event);
	rdma_destroy_id(listener);
	listener = listen_on(lch, "::", port);
	rdma_destroy_id(listener);
	listener = listen_on(lch, "127.0.0.1", port);
	rdma_destroy_id(listener);
	rdma_destroy_id(passive);
	rdma_destroy_id(active);
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(lch);
}

static void foreign_address_is_an_error_event(void **state)
{
	struct sockaddr_storage ss = addr_of("198.51.100.1", 4420);
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	(void)state;
	assert_int_equal(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&ss, 50), 0);
	event = event_wait(ch, RDMA_CM_EVENT_ADDR_ERROR);
	assert_int_equal(event->status, -ETIMEDOUT);
	rdma_ack_cm_event(event);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(ch);
}

static void disconnect_is_seen_but_moves_no_queue_pair(void **state)
{
	struct pair t;

	(void)state;
	pair_open(&t, NULL);
	assert_int_equal(post_recv(&t.p, 7, 0, 64), 0);
	assert_int_equal(post_recv(&t.a, 8, 0, 64), 0);
	assert_int_equal(rdma_disconnect(t.a.id), 0);
	wc_expect(t.a.cq, 8, IBV_WC_WR_FLUSH_ERR);
	event_expect(t.p.ch, RDMA_CM_EVENT_DISCONNECTED);
	assert_int_equal(qp_state(t.p.id->qp), IBV_QPS_RTS);
	assert_true(wc_none(t.p.cq, 20));
	assert_int_equal(rdma_disconnect(t.p.id), 0);
	wc_expect(t.p.cq, 7, IBV_WC_WR_FLUSH_ERR);
	event_expect(t.a.ch, RDMA_CM_EVENT_DISCONNECTED);
	event_expect(t.a.ch, RDMA_CM_EVENT_TIMEWAIT_EXIT);
	event_expect(t.p.ch, RDMA_CM_EVENT_TIMEWAIT_EXIT);
	pair_close(&t);
}

static void unanswered_disconnect_ends_by_itself(void **state)
{
	struct pair t;

	(void)state;
	pair_open(&t, NULL);
	assert_int_equal(rdma_disconnect(t.a.id), 0);
	event_expect(t.a.ch, RDMA_CM_EVENT_DISCONNECTED);
	pair_close(&t);
}

static void destroyed_id_disconnects_its_peer(void **state)
{
	struct pair t;

	(void)state;
	pair_open(&t, NULL);
	side_close(&t.a);
	event_expect(t.p.ch, RDMA_CM_EVENT_DISCONNECTED);
	pair_close(&t);
}

static void request_of_a_caller_that_left_cannot_be_accepted(void **state)
{
	struct rdma_conn_param param = {0};
	struct rdma_cm_event *event;
	struct call c;

	(void)state;
	call_open(&c, "127.0.0.1", "127.0.0.1");
	event = call_request(&c, &param);
	rdma_destroy_id(c.active);
	/* The news has to arrive; a second call is behind it. */
	c.active = route_to(c.ch, "127.0.0.1", ntohs(rdma_get_src_port(c.listener)));
	assert_int_equal(rdma_connect(c.active, &param), 0);
	struct rdma_cm_event *second = event_wait(c.lch, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_int_equal(rdma_accept(c.passive, &param), -1);
	assert_int_equal(errno, EINVAL);
	rdma_destroy_id(second->id);
	rdma_ack_cm_event(second);
	rdma_ack_cm_event(event);
	call_close(&c);
}

static void requests_beyond_the_backlog_are_refused(void **state)
{
	struct rdma_conn_param param = {0};
	struct rdma_event_channel *ch = rdma_create_event_channel(),
				  *lch = rdma_create_event_channel();
	struct sockaddr_storage ss = addr_of("127.0.0.1", 0);
	struct rdma_cm_id *listener, *id[3];

	(void)state;
	assert_int_equal(rdma_create_id(lch, &listener, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(listener, (struct sockaddr *)&ss), 0);
	assert_int_equal(rdma_listen(listener, 2), 0);
	for (int i = 0; i < 3; i++) {
		id[i] = route_to(ch, "127.0.0.1", ntohs(rdma_get_src_port(listener)));
		assert_int_equal(rdma_connect(id[i], &param), 0);
	}
	event_expect(ch, RDMA_CM_EVENT_REJECTED);
	for (int i = 0; i < 3; i++)
		rdma_destroy_id(id[i]);
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(lch);
}

static void *destroy_thread(void *arg)
{
	rdma_destroy_id(arg);
	return NULL;
}

static void destroying_an_id_waits_for_its_events(void **state)
{
	struct sockaddr_storage ss = addr_of("127.0.0.1", 1);
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_event *event;
	struct timespec soon;
	struct rdma_cm_id *id;
	pthread_t thread;

	(void)state;
	assert_int_equal(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&ss, 1000), 0);
	event = event_wait(ch, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_int_equal(pthread_create(&thread, NULL, destroy_thread, id), 0);
	clock_gettime(CLOCK_REALTIME, &soon);
	soon.tv_nsec += 50000000;
	soon.tv_sec += soon.tv_nsec / 1000000000;
	soon.tv_nsec %= 1000000000;
	assert_int_equal(pthread_timedjoin_np(thread, NULL, &soon), ETIMEDOUT);
	rdma_ack_cm_event(event);
	assert_int_equal(pthread_join(thread, NULL), 0);
	rdma_destroy_event_channel(ch);
}

static void events_go_along_with_a_migrating_id(void **state)
{
	struct sockaddr_storage ss = addr_of("127.0.0.1", 1);
	struct rdma_event_channel *from = rdma_create_event_channel();
	struct rdma_event_channel *to = rdma_create_event_channel();
	struct rdma_cm_id *id;

	(void)state;
	assert_int_equal(rdma_create_id(from, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&ss, 1000), 0);
	assert_int_equal(rdma_migrate_id(id, to), 0);
	assert_false(fd_ready(from->fd, 0));
	event_expect(to, RDMA_CM_EVENT_ADDR_RESOLVED);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(from);
	rdma_destroy_event_channel(to);
}

static void nonblocking_channel_says_so(void **state)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_event *event;

	(void)state;
	assert_int_equal(fcntl(ch->fd, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(rdma_get_cm_event(ch, &event), -1);
	assert_int_equal(errno, EAGAIN);
	rdma_destroy_event_channel(ch);
}

static void many_callers_at_once_are_all_served(void **state)
{
	enum { CALLERS = 100 };
	struct rdma_conn_param param = {0};
	struct rdma_event_channel *ch = rdma_create_event_channel(),
				  *lch = rdma_create_event_channel();
	struct rdma_cm_id *listener = listen_on(lch, "::", 0), *id[CALLERS];
	int refused = 0, requests = 0;

	(void)state;
	for (int i = 0; i < CALLERS; i++)
		id[i] = route_to(
			ch, i % 2 ? "::1" : "127.0.0.1", ntohs(rdma_get_src_port(listener)));
	for (int i = 0; i < CALLERS; i++)
		assert_int_equal(rdma_connect(id[i], &param), 0);
	while (refused < CALLERS) {
		struct rdma_cm_event *event;

		if (fd_ready(lch->fd, 0)) {
			struct rdma_cm_id *passive;

			assert_int_equal(rdma_get_cm_event(lch, &event), 0);
			passive = event->id;
			requests++;
			rdma_reject(passive, NULL, 0);
			rdma_ack_cm_event(event);
			rdma_destroy_id(passive);
		}
		if (fd_ready(ch->fd, 1)) {
			event_expect(ch, RDMA_CM_EVENT_REJECTED);
			refused++;
		}
	}
	assert_true(requests > 0 && requests <= CALLERS);
	for (int i = 0; i < CALLERS; i++)
		rdma_destroy_id(id[i]);
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(lch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(request_carries_padded_private_data_and_mirrored_depths),
		cmocka_unit_test(request_without_data_shows_zeros),
		cmocka_unit_test(reject_carries_private_data),
		cmocka_unit_test(nobody_listening_is_a_reject),
		cmocka_unit_test(addresses_and_wildcards_are_found),
		cmocka_unit_test(same_port_twice_clashes_as_the_kernel_says),
		cmocka_unit_test(port_is_free_again_while_its_connections_live),
		cmocka_unit_test(foreign_address_is_an_error_event),
		cmocka_unit_test(disconnect_is_seen_but_moves_no_queue_pair),
		cmocka_unit_test(unanswered_disconnect_ends_by_itself),
		cmocka_unit_test(destroyed_id_disconnects_its_peer),
		cmocka_unit_test(request_of_a_caller_that_left_cannot_be_accepted),
		cmocka_unit_test(requests_beyond_the_backlog_are_refused),
		cmocka_unit_test(destroying_an_id_waits_for_its_events),
		cmocka_unit_test(events_go_along_with_a_migrating_id),
		cmocka_unit_test(nonblocking_channel_says_so),
		cmocka_unit_test(many_callers_at_once_are_all_served),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
