/* SPDX-License-Identifier: MIT */
/*
 * The key "referrals" of the configuration file: each an address, or a mapping of one and the
 * hosts that are told of it, which a schema cannot say.
 */
#ifndef HAUL_TARGET_CONFIG_REFERRAL_H
#define HAUL_TARGET_CONFIG_REFERRAL_H

#include "proto/base/compiler.h"

struct catalog;
struct config_source;

int config_referrals(struct config_source *source, struct catalog *catalog) must_check;

#endif
