/* SPDX-License-Identifier: MIT */
/*
 * Sockets through the loop: short sends, ends of stream, resets, refused connections, cancelling.
 */
#include "tests/unit/base/engines.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

/* So many requests to cancel ask for an operation that there is not, as if the kernel were just
 * trying the real one again. The tests are linked so that the loop calls these. */
static unsigned nr_misses;

static void miss_cancels(struct io_uring *ring)
{
	struct io_uring_sq *sq = &ring->sq;
	struct io_uring_sqe *sqe;

	for (unsigned i = sq->sqe_head; i != sq->sqe_tail; i++) {
		sqe = &sq->sqes[i & *sq->kring_mask];
		if (sqe->opcode != IORING_OP_ASYNC_CANCEL || !nr_misses)
			continue;
		sqe->addr = 2;
		nr_misses--;
	}
}

int __real_io_uring_submit_and_get_events(struct io_uring *ring);
int __wrap_io_uring_submit_and_get_events(struct io_uring *ring);
int __wrap_io_uring_submit_and_get_events(struct io_uring *ring)
{
	miss_cancels(ring);
	return __real_io_uring_submit_and_get_events(ring);
}

int __real_io_uring_submit_and_wait_timeout(struct io_uring *ring, struct io_uring_cqe **cqe,
	unsigned nr, struct __kernel_timespec *timeout, sigset_t *mask);
int __wrap_io_uring_submit_and_wait_timeout(struct io_uring *ring, struct io_uring_cqe **cqe,
	unsigned nr, struct __kernel_timespec *timeout, sigset_t *mask);
int __wrap_io_uring_submit_and_wait_timeout(struct io_uring *ring, struct io_uring_cqe **cqe,
	unsigned nr, struct __kernel_timespec *timeout, sigset_t *mask)
{
	miss_cancels(ring);
	return __real_io_uring_submit_and_wait_timeout(ring, cqe, nr, timeout, mask);
}

struct pair {
	struct loop_file ours;
	int ours_fd;
	int peer_fd;
};

static int listen_on_loopback(struct sockaddr_in *ret_address)
{
	socklen_t length = sizeof(*ret_address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*ret_address = (struct sockaddr_in){
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)ret_address, length), 0);
	assert_int_equal(listen(fd, 8), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)ret_address, &length), 0);
	return fd;
}

static void pair_open(struct loop *loop, struct pair *pair)
{
	struct sockaddr_in address;
	int small = 4096;
	int listener = listen_on_loopback(&address);
	struct waited connected;

	pair->ours_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(
		setsockopt(pair->ours_fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
	assert_int_equal(loop_file_add(loop, &pair->ours, pair->ours_fd, LOOP_FILE_SOCKET), 0);
	waited_init(&connected);
	loop_connect(
		loop, &connected.op, &pair->ours, (struct sockaddr *)&address, sizeof(address));
	assert_int_equal(waited_result(loop, &connected), 0);
	pair->peer_fd = accept(listener, NULL, NULL);
	assert_true(pair->peer_fd >= 0);
	assert_int_equal(fcntl(pair->peer_fd, F_SETFL, O_NONBLOCK), 0);
	close(listener);
}

static void pair_close(struct loop *loop, struct pair *pair)
{
	loop_file_del(loop, &pair->ours);
	close(pair->ours_fd);
	if (pair->peer_fd >= 0)
		close(pair->peer_fd);
}

static void sends_larger_than_the_socket_buffer_arrive_whole(void **state)
{
	enum { BYTES = 1 << 20 };
	unsigned char *sent = malloc(BYTES);
	unsigned char *got = malloc(BYTES);
	struct loop *loop = *state;
	struct waited transmit;
	struct iovec iov[2];
	size_t nr_sent = 0;
	size_t nr_got = 0;
	struct pair pair;
	ssize_t ret;

	pair_open(loop, &pair);
	for (unsigned i = 0; i < BYTES; i++)
		sent[i] = (unsigned char)(i * 7 + i / 251);
	waited_init(&transmit);
	transmit.nr_done = 1;
	transmit.res = 0;
	while (nr_got < BYTES) {
		if (transmit.nr_done && nr_sent < BYTES) {
			size_t half = (BYTES - nr_sent) / 2;

			iov[0] = (struct iovec){sent + nr_sent, half};
			iov[1] = (struct iovec){sent + nr_sent + half, BYTES - nr_sent - half};
			transmit.nr_done = 0;
			loop_transmit(loop, &transmit.op, &pair.ours, iov, 2);
		}
		loop_wait(loop, 1000000);
		if (transmit.nr_done && nr_sent < BYTES) {
			assert_true(transmit.res > 0);
			nr_sent += (size_t)transmit.res;
		}
		ret = recv(pair.peer_fd, got + nr_got, BYTES - nr_got, 0);
		if (ret > 0)
			nr_got += (size_t)ret;
		else
			assert_int_equal(errno, EAGAIN);
	}
	wait_for(loop, transmit.nr_done);
	assert_memory_equal(sent, got, BYTES);
	pair_close(loop, &pair);
	free(sent);
	free(got);
}

static int pair_receive(struct loop *loop, struct pair *pair, void *bytes, size_t size)
{
	struct iovec iov[2] = {{bytes, 1}, {(char *)bytes + 1, size - 1}};
	struct waited receive;

	waited_init(&receive);
	loop_receive(loop, &receive.op, &pair->ours, iov, 2);
	assert_int_equal(receive.nr_done, 0);
	return waited_result(loop, &receive);
}

static void data_and_end_of_stream_sent_together_are_both_received(void **state)
{
	struct loop *loop = *state;
	char bytes[64];
	struct pair pair;

	pair_open(loop, &pair);
	/* The first wait makes the engine watch the socket, so that both come with one edge. */
	assert_int_equal(send(pair.peer_fd, "abc", 3, 0), 3);
	assert_int_equal(pair_receive(loop, &pair, bytes, sizeof(bytes)), 3);

	struct iovec iov = {bytes, sizeof(bytes)};
	struct waited receive;

	waited_init(&receive);
	loop_receive(loop, &receive.op, &pair.ours, &iov, 1);
	loop_turn(loop);
	assert_int_equal(send(pair.peer_fd, "defg", 4, 0), 4);
	close(pair.peer_fd);
	pair.peer_fd = -1;
	assert_int_equal(waited_result(loop, &receive), 4);
	assert_int_equal(pair_receive(loop, &pair, bytes, sizeof(bytes)), 0);
	assert_int_equal(pair_receive(loop, &pair, bytes, sizeof(bytes)), 0);
	pair_close(loop, &pair);
}

static void reset_ends_receive_and_send(void **state)
{
	const struct linger abort_on_close = {.l_onoff = 1};
	struct loop *loop = *state;
	struct waited receive;
	struct waited transmit;
	char bytes[64] = {0};
	struct iovec iov = {bytes, sizeof(bytes)};
	struct pair pair;

	pair_open(loop, &pair);
	waited_init(&receive);
	loop_receive(loop, &receive.op, &pair.ours, &iov, 1);
	loop_turn(loop);
	setsockopt(pair.peer_fd, SOL_SOCKET, SO_LINGER, &abort_on_close, sizeof(abort_on_close));
	close(pair.peer_fd);
	pair.peer_fd = -1;
	assert_int_equal(waited_result(loop, &receive), -ECONNRESET);
	waited_init(&transmit);
	loop_transmit(loop, &transmit.op, &pair.ours, &iov, 1);
	assert_int_equal(waited_result(loop, &transmit), -EPIPE);
	pair_close(loop, &pair);
}

static void cancelled_receive_completes_once_and_socket_stays_usable(void **state)
{
	struct loop *loop = *state;
	char bytes[8];
	struct iovec iov = {bytes, sizeof(bytes)};
	struct waited receive;
	struct pair pair;

	pair_open(loop, &pair);
	for (unsigned nr_turns = 0; nr_turns < 3; nr_turns++) {
		waited_init(&receive);
		loop_receive(loop, &receive.op, &pair.ours, &iov, 1);
		for (unsigned i = 0; i < nr_turns; i++)
			loop_turn(loop);
		loop_cancel(loop, &receive.op);
		assert_int_equal(receive.nr_done, 0);
		assert_int_equal(waited_result(loop, &receive), -ECANCELED);
		assert_int_equal(send(pair.peer_fd, "x", 1, 0), 1);
		assert_int_equal(pair_receive(loop, &pair, bytes, sizeof(bytes)), 1);
	}
	pair_close(loop, &pair);
}

static void a_request_to_cancel_that_misses_is_repeated(void **state)
{
	struct loop *loop = *state;
	char bytes[8];
	struct iovec iov = {bytes, sizeof(bytes)};
	struct waited receive;
	struct pair pair;

	pair_open(loop, &pair);
	waited_init(&receive);
	loop_receive(loop, &receive.op, &pair.ours, &iov, 1);
	loop_turn(loop);
	nr_misses = engines_chosen == LOOP_ENGINE_URING ? 3 : 0;
	loop_cancel(loop, &receive.op);
	assert_int_equal(waited_result(loop, &receive), -ECANCELED);
	assert_int_equal(nr_misses, 0);
	pair_close(loop, &pair);
}

/* Receives again from its own completion. */
struct again {
	struct loop_op op;
	struct loop *loop;
	struct loop_file *file;
	struct iovec iov;
	char bytes[8];
	unsigned nr_received;
	unsigned nr_cancelled;
};

static void again_done(struct done *done, int res, unsigned flags)
{
	struct again *again = container_of(done, struct again, op.done);

	(void)flags;
	if (res == -ECANCELED) {
		again->nr_cancelled++;
		return;
	}
	assert_true(res > 0);
	again->nr_received += (unsigned)res;
	loop_receive(again->loop, &again->op, again->file, &again->iov, 1);
}

static void a_receive_that_ends_as_it_is_cancelled_leaves_nothing_behind(void **state)
{
	struct loop *loop = *state;
	struct again again = {.op.done.fn = again_done, .loop = loop};
	struct pair pair;

	again.iov = (struct iovec){again.bytes, sizeof(again.bytes)};
	again.file = &pair.ours;
	pair_open(loop, &pair);
	loop_receive(loop, &again.op, &pair.ours, &again.iov, 1);
	loop_turn(loop);
	for (unsigned i = 1; i <= 10; i++) {
		/* The bytes are there before the request to cancel is. */
		assert_int_equal(send(pair.peer_fd, "x", 1, 0), 1);
		loop_cancel(loop, &again.op);
		wait_for(loop, again.nr_received == i || again.nr_cancelled);
		for (unsigned j = 0; j < 3; j++)
			loop_turn(loop);
		/* Cancelled before the bytes were looked at; the next receive finds them. */
		if (again.nr_cancelled) {
			assert_int_equal(again.nr_received, i - 1);
			again.nr_cancelled = 0;
			loop_receive(loop, &again.op, &pair.ours, &again.iov, 1);
			wait_for(loop, again.nr_received == i);
			loop_turn(loop);
		}
	}
	loop_cancel(loop, &again.op);
	wait_for(loop, again.nr_cancelled);
	pair_close(loop, &pair);
}

static void turning_without_waiting_finds_completions(void **state)
{
	struct loop *loop = *state;
	uint64_t limit_ns;
	char bytes[8];
	struct iovec iov = {bytes, sizeof(bytes)};
	struct waited receive;
	struct pair pair;

	pair_open(loop, &pair);
	waited_init(&receive);
	loop_receive(loop, &receive.op, &pair.ours, &iov, 1);
	while (loop_turn(loop))
		;
	assert_int_equal(send(pair.peer_fd, "x", 1, 0), 1);
	limit_ns = loop_now_ns(loop) + 5 * ENGINES_SECOND_NS;
	while (!receive.nr_done && loop_now_ns(loop) < limit_ns)
		loop_turn(loop);
	assert_int_equal(receive.nr_done, 1);
	pair_close(loop, &pair);
}

static void connection_refused_is_told(void **state)
{
	struct loop *loop = *state;
	struct sockaddr_in address;
	struct waited connected;
	struct loop_file file;
	int listener = listen_on_loopback(&address);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	close(listener);
	assert_int_equal(loop_file_add(loop, &file, fd, LOOP_FILE_SOCKET), 0);
	waited_init(&connected);
	loop_connect(loop, &connected.op, &file, (struct sockaddr *)&address, sizeof(address));
	assert_int_equal(waited_result(loop, &connected), -ECONNREFUSED);
	loop_file_del(loop, &file);
	close(fd);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		loop_test(sends_larger_than_the_socket_buffer_arrive_whole),
		loop_test(data_and_end_of_stream_sent_together_are_both_received),
		loop_test(reset_ends_receive_and_send),
		loop_test(cancelled_receive_completes_once_and_socket_stays_usable),
		loop_test(a_request_to_cancel_that_misses_is_repeated),
		loop_test(a_receive_that_ends_as_it_is_cancelled_leaves_nothing_behind),
		loop_test(turning_without_waiting_finds_completions),
		loop_test(connection_refused_is_told),
	};

	engines_choose(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
