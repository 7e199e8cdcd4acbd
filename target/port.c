/* SPDX-License-Identifier: MIT */
/*
 * Makes listeners from URIs.
 */
#include "target/port.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/link/address.h"
#include "proto/nvme/fabrics.h"
#include "target/conn.h"
#include "target/reactor.h"
#include "target/size.h"
#include "target/target.h"
#include "target/transport.h"

/* As many as wait for a listener's first moment; the others may try again. */
#define PORT_MAX_EARLY 64

static bool port_parse_switch(const char *text, uint32_t *ret)
{
	*ret = !strcmp(text, "on");
	return *ret || !strcmp(text, "off");
}

static bool port_parse_number(const char *text, uint32_t *ret)
{
	char *end;
	unsigned long number;

	errno = 0;
	number = strtoul(text, &end, 0);
	if (errno || *end || end == text || text[0] < '0' || text[0] > '9' || number > UINT32_MAX)
		return false;
	*ret = (uint32_t)number;
	return true;
}

static bool port_parse_size(const char *text, uint32_t *ret)
{
	uint64_t size = 0;

	if (strcmp(text, "0") != 0 && (size_parse(text, &size) || size > UINT32_MAX))
		return false;
	*ret = (uint32_t)size;
	return true;
}

static bool port_parse_kind(enum transport_option_kind kind, const char *text, uint32_t *ret)
{
	switch (kind) {
	case TRANSPORT_SWITCH:
		return port_parse_switch(text, ret);
	case TRANSPORT_NUMBER:
		return port_parse_number(text, ret);
	case TRANSPORT_SIZE:
		return port_parse_size(text, ret);
	}
	return false;
}

static bool port_option_fits(const struct transport_option *option, uint32_t value)
{
	if (option->kind == TRANSPORT_SWITCH)
		return true;
	return value >= option->min && value <= option->max &&
	       !(option->step && value % option->step) &&
	       !(option->power_of_two && (value & (value - 1)));
}

static void port_tell_options(
	const struct transport_ops *ops, const char *key, char *why, size_t why_size)
{
	size_t used = (size_t)snprintf(
		why, why_size, "option '%s' of a %s listener is not known; known:", key, ops->name);

	for (uint32_t i = 0; i < ops->nr_options && used < why_size; i++)
		used += (size_t)snprintf(
			why + used, why_size - used, "%s %s", i ? "," : "", ops->options[i].key);
}

static int port_parse_option(
	struct port *port, const struct nvme_uri_option *option, char *why, size_t why_size)
{
	const struct transport_ops *ops = port->ops;

	for (uint32_t i = 0; i < ops->nr_options; i++) {
		const struct transport_option *known = &ops->options[i];
		uint32_t value;

		if (strcmp(option->key, known->key))
			continue;
		if (port_parse_kind(known->kind, option->value, &value) &&
			port_option_fits(known, value)) {
			port->option[i] = value;
			return 0;
		}
		snprintf(why, why_size, "option %s=%s of the listener is not %s", option->key,
			option->value, known->right);
		return -EINVAL;
	}
	port_tell_options(ops, option->key, why, why_size);
	return -EINVAL;
}

static int port_resolve(
	const struct nvme_uri *uri, struct sockaddr_storage *ret, char *why, size_t why_size)
{
	int error = address_resolve(uri->host, uri->port, 0, ret);

	if (error)
		snprintf(why, why_size,
			"the listener's host '%s' cannot be found: %s: give an address of this "
			"machine, or 0.0.0.0 or [::]",
			uri->host, gai_strerror(error));
	return error ? -EINVAL : 0;
}

int port_create(
	const struct nvme_uri *uri, bool resolve, struct port **ret, char *why, size_t why_size)
{
	struct port *port = calloc(1, sizeof(*port));
	int error = 0;

	if (!port)
		return -ENOMEM;
	port->nr_refs = 1;
	list_init(&port->early);
	port->ops = transport_find(uri->trtype);
	for (uint32_t i = 0; i < port->ops->nr_options; i++)
		port->option[i] = port->ops->options[i].unless_given;
	if (resolve)
		error = port_resolve(uri, &port->configured, why, why_size);
	for (unsigned i = 0; !error && i < uri->nr_options; i++)
		error = port_parse_option(port, &uri->option[i], why, why_size);
	if (error) {
		free(port);
		return error;
	}
	port->address = port->configured;
	*ret = port;
	return 0;
}

struct port *port_get(struct port *port)
{
	port->nr_refs++;
	return port;
}

void port_put(struct port *port)
{
	if (!--port->nr_refs)
		free(port);
}

bool port_is_same_address(const struct port *one, const struct port *other)
{
	return one->ops == other->ops &&
	       !memcmp(&one->configured, &other->configured, sizeof(one->configured));
}

bool port_listens_at(const struct port *port, const struct port *wanted)
{
	return port->ops == wanted->ops &&
	       !memcmp(&port->address, &wanted->configured, sizeof(port->address));
}

bool port_is_same(const struct port *one, const struct port *other)
{
	return (port_is_same_address(one, other) || port_listens_at(one, other)) &&
	       !memcmp(one->option, other->option, sizeof(one->option));
}

void port_describe(const struct port *port, char ret_text[PORT_TEXT])
{
	char address[ADDRESS_TEXT];

	address_format(&port->address, address);
	snprintf(ret_text, PORT_TEXT, "%s://%s", port->ops->name, address);
}

void port_describe_option(
	const struct transport_option *option, uint32_t value, char ret_text[PORT_OPTION_TEXT])
{
	switch (option->kind) {
	case TRANSPORT_SWITCH:
		snprintf(ret_text, PORT_OPTION_TEXT, "%s", value ? "on" : "off");
		break;
	case TRANSPORT_NUMBER:
		snprintf(ret_text, PORT_OPTION_TEXT, "%u", value);
		break;
	case TRANSPORT_SIZE:
		size_format(value, ret_text);
		break;
	}
}

/* --- on the first reactor -------------------------------------------------------------------- */

static void port_try_forget(struct port *port)
{
	if (!port->listening && !port->nr_conns && port->ops->forget)
		port->ops->forget(port);
}

int port_listen(struct port *port, struct reactor *reactor, char *why, size_t why_size)
{
	int error;

	if (port->listening)
		return 0;
	port->reactor = reactor;
	error = port->ops->listen(port, why, why_size);
	port->listening = !error;
	port_try_forget(port);
	return error;
}

static struct transport_handover *port_next_early(struct port *port)
{
	struct list *node = list_pop_front(&port->early);

	return node ? container_of(node, struct transport_handover, node) : NULL;
}

void port_unlisten(struct port *port)
{
	struct transport_handover *handover;

	if (port->listening)
		port->ops->unlisten(port);
	port->listening = port->open = false;
	while ((handover = port_next_early(port)))
		port->ops->refuse(handover);
	port->nr_early = 0;
	port_try_forget(port);
}

void port_open(struct port *port)
{
	struct transport_handover *handover;

	port->open = true;
	while ((handover = port_next_early(port)))
		conn_accept(port, handover);
	port->nr_early = 0;
}

bool port_keep(struct port *port, struct transport_handover *handover)
{
	if (port->nr_early >= PORT_MAX_EARLY)
		return false;
	port->nr_early++;
	list_init(&handover->node);
	list_push_back(&port->early, &handover->node);
	return true;
}

static void port_gone(struct loop_message *message)
{
	port_put(container_of(message, struct port, gone));
}

static void port_try_gone(struct port *port)
{
	if (!port->released || port->nr_conns)
		return;
	port->gone.fn = port_gone;
	loop_send(port->reactor->target->loop, &port->gone);
}

void port_add_conn(struct port *port)
{
	port->nr_conns++;
}

void port_remove_conn(struct port *port)
{
	port->nr_conns--;
	port_try_forget(port);
	port_try_gone(port);
}

void port_release(struct port *port)
{
	port->released = true;
	port_try_gone(port);
}
