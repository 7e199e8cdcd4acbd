/* SPDX-License-Identifier: MIT */
/*
 * haulctl: what its files share.
 */
#ifndef HAUL_TARGET_HAULCTL_H
#define HAUL_TARGET_HAULCTL_H

#include <json-c/json.h>

/* Prints the status for people. */
void haulctl_show(struct json_object *status);

#endif
