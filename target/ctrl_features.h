/* SPDX-License-Identifier: MIT */
/*
 * What the hosts of a controller have set by Set Features (NVMe base 2.0 5.27) and nothing else
 * holds. A reset brings the defaults back, for nothing is saved.
 */
#ifndef HAUL_TARGET_CTRL_FEATURES_H
#define HAUL_TARGET_CTRL_FEATURES_H

#include <stdbool.h>
#include <stdint.h>

struct features {
	uint8_t workload_hint;
	uint16_t over_kelvin; /* temperature thresholds */
	uint16_t under_kelvin;
	bool disable_normal; /* of Write Atomicity */
	bool write_through;  /* Volatile Write Cache: off */
	/* Timestamp: what it was at CLOCK_NS. */
	uint64_t timestamp_ms;
	uint64_t clock_ns;
	bool timestamp_is_hosts;
	/* Host Behavior Support. */
	uint8_t acre;
	uint8_t etdas;
	uint8_t lbafee;
};

void features_reset(struct features *features, uint64_t now_ns);
/* The temperature has reached a threshold. */
bool features_temperature_alarm(const struct features *features);

#endif
