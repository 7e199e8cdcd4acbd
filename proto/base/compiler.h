/* SPDX-License-Identifier: MIT */
/*
 * What the compiler offers, under short names. Everything may include this; it includes nothing
 * of ours.
 */
#ifndef HAUL_BASE_COMPILER_H
#define HAUL_BASE_COMPILER_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define container_of(ptr, type, member)                                     \
	({                                                                  \
		const __typeof__(((type *)0)->member) *member_ptr_ = (ptr); \
		(type *)((uintptr_t)member_ptr_ - offsetof(type, member));  \
	})

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#define must_check	       __attribute__((warn_unused_result))
#define printf_like(fmt, args) __attribute__((format(printf, fmt, args)))
/* Small and on the path of every I/O; and what is not to be part of it. */
#define inline_always	       inline __attribute__((always_inline))
#define out_of_line	       __attribute__((cold, noinline))
#define cache_aligned	       __attribute__((aligned(64)))

#define min_of(a, b)                    \
	({                              \
		__typeof__(a) a_ = (a); \
		__typeof__(b) b_ = (b); \
		a_ < b_ ? a_ : b_;      \
	})
#define max_of(a, b)                    \
	({                              \
		__typeof__(a) a_ = (a); \
		__typeof__(b) b_ = (b); \
		a_ > b_ ? a_ : b_;      \
	})

#endif
