/* SPDX-License-Identifier: MIT */
/*
 * The event loop: one a thread, everything on it belongs to that thread. It offers operations on
 * files and sockets, polls, timers, a mailbox, pollers and work to be flushed at the end of a
 * turn. Two engines stand behind it, io_uring and epoll + libaio; nothing above can tell which.
 *
 * A completion never runs inside the call that started the operation: it runs in a later step of
 * loop_turn(). Each operation started completes exactly once; what is embedded in it must live
 * until then. Destroying a loop demands that no operation is out.
 */
#ifndef HAUL_BASE_LOOP_H
#define HAUL_BASE_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "proto/base/compiler.h"
#include "proto/base/list.h"

struct loop;

#define NS_PER_MS 1000000ull /* a loop's times are in nanoseconds */

enum loop_engine { LOOP_ENGINE_AUTO, LOOP_ENGINE_URING, LOOP_ENGINE_EPOLL };

struct loop_options {
	enum loop_engine engine;
	uint32_t nr_ops;  /* operations expected to be out at once; 0: 1024. More is slower, not
			     wrong. */
	uint64_t spin_ns; /* how long loop_wait() looks again after work before it sleeps; 0: never
			   */
};

/*
 * OPTIONS may be NULL. -ENOSYS or -EPERM: the engine asked for is refused here (AUTO falls back
 * and logs one line). The loop belongs to the thread that turns it first, which need not be the
 * one that created it.
 */
int loop_create(const struct loop_options *options, struct loop **ret) must_check;
/* No operation is out. Messages that were not delivered are not. NULL is allowed. */
void loop_destroy(struct loop *loop);
const char *loop_engine_name(const struct loop *loop);
/* "io_uring", "epoll" or "auto"; -EINVAL otherwise. */
int loop_engine_parse(const char *name, enum loop_engine *ret) must_check;

/* --- turning ------------------------------------------------------------------------------- */

/*
 * One turn without blocking: mailbox, pollers, completions, timers, flush list, submit, each with
 * a budget. Returns the number of things done; 0 means that there was no work.
 */
uint32_t loop_turn(struct loop *loop);

/*
 * Turns until there was work, and returns as loop_turn(). After spin_ns without work it arms every
 * source, looks once more, and sleeps. 0: TIMEOUT_NS (negative: no limit) has passed.
 */
uint32_t loop_wait(struct loop *loop, int64_t timeout_ns);

/* loop_wait() until loop_stop(), which is called on the loop's thread (from another: by message).
 */
void loop_run(struct loop *loop);
void loop_stop(struct loop *loop);

/*
 * For an outer event loop: after loop_arm() returned 0 the descriptor becomes readable when
 * loop_turn() has something to do. loop_arm() returns 1 when there is work already (do not
 * sleep). The descriptor is made at the first call and stays the loop's; negative errno when
 * there is none left.
 */
int loop_fd(struct loop *loop);
int loop_arm(struct loop *loop);

/* CLOCK_MONOTONIC, read once a turn. */
uint64_t loop_now_ns(const struct loop *loop);

/* --- operations ---------------------------------------------------------------------------- */

/* Whatever completes calls this. RES: a count, or a negative errno. FLAGS: none yet, 0. */
struct done {
	void (*fn)(struct done *done, int res, unsigned flags);
};

/* What loop_send() takes, the only call that another thread may make. */
struct loop_message {
	void (*fn)(struct loop_message *message);
	struct loop_message *next;
};

#define LOOP_ADDRESS_BYTES 56 /* longest address loop_connect() takes */

/* Storage of one operation in flight. DONE is the caller's, the rest belongs to the loop from the
 * call that starts the operation to its completion and needs no initialisation. */
struct loop_op {
	struct done done;
	struct list node;
	struct loop_file *file;
	const struct iovec *iov;
	uint64_t offset;
	uint32_t nr_iov;
	int32_t buffer;
	int32_t res;
	uint8_t kind;
	uint8_t state; /* 0: not out */
	uint8_t flags;
	union {
		struct msghdr message; /* sockets */
		uint8_t address[LOOP_ADDRESS_BYTES];
		uint64_t retry_since_ns; /* disk */
		struct {
			int (*fn)(void *arg);
			void *arg;
			struct loop_message answer;
		} offload;
	};
};

/* A descriptor known to the loop. The caller opens and closes the descriptor. */
struct loop_file {
	int fd;
	int slot;		/* engine's */
	uint32_t state;		/* engine's */
	struct list waiting[2]; /* epoll engine: operations that wait for readable, for writable */
};

enum loop_file_kind { LOOP_FILE_DISK, LOOP_FILE_SOCKET };
/* Sets O_NONBLOCK of a socket as the engine needs it. A descriptor is either added here or polled
 * by loop_poll_add(), once. */
int loop_file_add(
	struct loop *loop, struct loop_file *file, int fd, enum loop_file_kind kind) must_check;
/* No operation on it is out (loop_cancel() them and wait for their completions first). */
void loop_file_del(struct loop *loop, struct loop_file *file);

#define LOOP_BUFFER_NONE (-1)
/* Registers [BASE, BASE + LENGTH) as fixed buffer; returns its number (>= 0) to be given to
 * loop_read/loop_write, LOOP_BUFFER_NONE where the engine has no use for it or locked memory is
 * short (logged once). */
int loop_buffer_register(struct loop *loop, void *base, size_t length);
void loop_buffer_unregister(struct loop *loop, int buffer);

/* Disk. IOV lives until completion. BUFFER: number of the registered region that holds all of IOV
 * (then NR_IOV is 1) or LOOP_BUFFER_NONE. Short counts are possible: the caller goes on with the
 * rest. EINTR and EAGAIN (a device out of tags) are tried again with growing pauses; the caller
 * sees them only after LOOP_RETRY_LIMIT_NS of nothing else. */
#define LOOP_RETRY_LIMIT_NS 30000000000ull
void loop_read(struct loop *loop, struct loop_op *op, struct loop_file *file,
	const struct iovec *iov, uint32_t nr_iov, uint64_t offset, int buffer);
void loop_write(struct loop *loop, struct loop_op *op, struct loop_file *file,
	const struct iovec *iov, uint32_t nr_iov, uint64_t offset, int buffer, bool dsync);
void loop_fsync(struct loop *loop, struct loop_op *op, struct loop_file *file, bool data_only);

/* Sockets. One receive and one send at a time each. 0 from receive: end of stream. Both may
 * complete short. IOV lives until completion. */
void loop_receive(struct loop *loop, struct loop_op *op, struct loop_file *file,
	const struct iovec *iov, uint32_t nr_iov);
void loop_transmit(struct loop *loop, struct loop_op *op, struct loop_file *file,
	const struct iovec *iov, uint32_t nr_iov);
/* ADDRESS is copied; at most LOOP_ADDRESS_BYTES. */
void loop_connect(struct loop *loop, struct loop_op *op, struct loop_file *file,
	const struct sockaddr *address, uint32_t length);

/* Ask for an early end of OP; it still completes exactly once, often with -ECANCELED, and never
 * inside this call. Nothing happens when OP is not out (its state is 0). */
void loop_cancel(struct loop *loop, struct loop_op *op);

/* FN runs on a helper thread that may block (ioctl, fallocate, getaddrinfo); its return value is
 * the result. No order is kept between two of these. */
void loop_offload(struct loop *loop, struct loop_op *op, int (*fn)(void *arg), void *arg);

/* --- readiness ----------------------------------------------------------------------------- */

/* Calls READY with the ready poll(2) events, again and again while they last (level-triggered:
 * once a turn at most). */
struct loop_poll {
	void (*ready)(struct loop_poll *poll, uint32_t events);
	int fd;
	uint32_t events;
	bool active;
	/* the loop's from here on */
	void (*deleted)(struct loop_poll *poll);
	struct loop *loop;
	struct loop_op op;
};
/* -EEXIST: FD is polled already. The caller sets READY. */
int loop_poll_add(struct loop *loop, struct loop_poll *poll, int fd, uint32_t events) must_check;
/* READY is not called any more after this returns, and the descriptor may be closed at once. The
 * memory must live until DELETED (may be NULL) is called from a later turn. Idempotent. */
void loop_poll_del(
	struct loop *loop, struct loop_poll *poll, void (*deleted)(struct loop_poll *poll));

/* --- time, messages, pollers, end of turn ----------------------------------------------------- */

struct loop_timer {
	void (*expired)(struct loop_timer *timer);
	uint64_t deadline_ns;
	uint32_t heap_index; /* 0: not set */
};
void loop_timer_init(struct loop_timer *timer, void (*expired)(struct loop_timer *timer));
/* Keep room for NR timers more (less). Called when the object that they are in is made (destroyed),
 * so that setting one cannot fail. */
int loop_timers_reserve(struct loop *loop, uint32_t nr) must_check;
void loop_timers_unreserve(struct loop *loop, uint32_t nr);
/* (Re)arm for the absolute time DEADLINE_NS of loop_now_ns()'s clock. Cancel is idempotent. */
void loop_timer_set(struct loop *loop, struct loop_timer *timer, uint64_t deadline_ns);
void loop_timer_cancel(struct loop *loop, struct loop_timer *timer);
static inline bool loop_timer_is_set(const struct loop_timer *timer)
{
	return timer->heap_index != 0;
}

/* May be called from any thread, and from a signal handler. Messages from one thread keep their
 * order. MESSAGE belongs to the loop until FN is called. LOOP must exist until this returns. */
void loop_send(struct loop *loop, struct loop_message *message);

/* Looked at each turn. POLL handles at most BUDGET events and returns how many it handled. ARM asks
 * for a wake-up through a descriptor the owner has put under loop_poll_add(), and returns 1 when it
 * has to be looked at again before sleeping. */
struct loop_poller {
	uint32_t (*poll)(struct loop_poller *poller, uint32_t budget);
	int (*arm)(struct loop_poller *poller);
	struct list node;
};
void loop_poller_add(struct loop *loop, struct loop_poller *poller);
void loop_poller_del(struct loop *loop, struct loop_poller *poller);

/* FN runs once at the end of the turn (doorbells, gathered sends). Adding twice is once. What FN
 * itself adds runs at the end of the same turn too, within bounds. */
struct loop_flush {
	void (*fn)(struct loop_flush *flush);
	struct list node;
};
static inline void loop_flush_init(struct loop_flush *flush, void (*fn)(struct loop_flush *flush))
{
	flush->fn = fn;
	list_init(&flush->node);
}
void loop_flush_later(struct loop *loop, struct loop_flush *flush);
void loop_flush_cancel(struct loop_flush *flush);

/* Counters for tests and tests/bench. */
struct loop_stats {
	uint64_t nr_turns;
	uint64_t nr_syscalls; /* made by the loop itself */
	uint64_t nr_sleeps;
	uint64_t nr_ops;
};
void loop_stats_get(const struct loop *loop, struct loop_stats *ret);

#endif
