/* SPDX-License-Identifier: MIT */
/*
 * The parser of addresses. Each part has one function, which is given exactly its part of the text.
 */
#include "proto/nvme/uri.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define URI_LABEL_MAX 63
#define URI_SHOW_MAX  64 /* bytes of a wrong part that a message repeats */

/* A part of the text; not terminated. */
struct uri_part {
	const char *s;
	size_t len;
};

struct uri_error {
	char *why;
	size_t size;
};

#define URI_SCHEME_END "://"

printf_like(2, 3) static int uri_fail(const struct uri_error *error, const char *format, ...)
{
	va_list args;

	if (error->size == 0)
		return -EINVAL;
	va_start(args, format);
	vsnprintf(error->why, error->size, format, args);
	va_end(args);
	/* The text may come from a discovery log: keep the message one harmless line. */
	for (char *c = error->why; *c; c++) {
		if ((unsigned char)*c < ' ' || (unsigned char)*c >= 0x7f)
			*c = '?';
	}
	return -EINVAL;
}

static int uri_show_len(struct uri_part part)
{
	return (int)min_of(part.len, (size_t)URI_SHOW_MAX);
}

/* Cuts the part at the first of the separators; what follows that is the rest. False, and an empty
 * rest, without a separator. */
static bool uri_split(struct uri_part *part, const char *separators, struct uri_part *ret_rest)
{
	for (size_t i = 0; i < part->len; i++) {
		if (part->s[i] && strchr(separators, part->s[i])) {
			*ret_rest = (struct uri_part){part->s + i + 1, part->len - i - 1};
			part->len = i;
			return true;
		}
	}
	*ret_rest = (struct uri_part){part->s + part->len, 0};
	return false;
}

static bool uri_is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool uri_is_alnum(char c)
{
	return uri_is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static int uri_hex(char c)
{
	if (uri_is_digit(c))
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* Plain decimal of at most max: no sign, no space, no leading zero. */
static bool uri_number(struct uri_part part, uint64_t max, uint64_t *ret)
{
	uint64_t value = 0;

	if (part.len == 0 || part.len > 10 || (part.len > 1 && part.s[0] == '0'))
		return false;
	for (size_t i = 0; i < part.len; i++) {
		if (!uri_is_digit(part.s[i]))
			return false;
		value = value * 10 + (uint64_t)(part.s[i] - '0');
	}
	if (value > max)
		return false;
	*ret = value;
	return true;
}

/* Percent-decodes into to, with a NUL. -EINVAL on a bad sequence or a coded NUL, -ENOSPC when too
 * long. */
static int uri_decode(struct uri_part part, char *to, size_t size)
{
	size_t len = 0;

	for (size_t i = 0; i < part.len; i++) {
		int c = (unsigned char)part.s[i];

		if (c == '%') {
			int high = i + 2 < part.len ? uri_hex(part.s[i + 1]) : -1;
			int low = i + 2 < part.len ? uri_hex(part.s[i + 2]) : -1;

			c = high < 0 || low < 0 ? 0 : high << 4 | low;
			i += 2;
		}
		if (c == 0)
			return -EINVAL;
		if (len + 1 >= size)
			return -ENOSPC;
		to[len++] = (char)c;
	}
	to[len] = '\0';
	return 0;
}

static int uri_parse_scheme(
	struct uri_part *text, struct nvme_uri *uri, const struct uri_error *error)
{
	const size_t end_len = strlen(URI_SCHEME_END);
	const char *end = strstr(text->s, URI_SCHEME_END);
	size_t len = end ? (size_t)(end - text->s) : 0;
	uint8_t trtype = nvme_trtype_by_name(text->s, len);

	if (trtype == NVME_TRTYPE_RDMA || trtype == NVME_TRTYPE_TCP) {
		uri->trtype = trtype;
		text->s += len + end_len;
		text->len -= len + end_len;
		return 0;
	}
	return uri_fail(error, "address \"%.*s\": begins with neither rdma:// nor tcp://",
		uri_show_len(*text), text->s);
}

/* Letters, digits, hyphens and underscores (which some names have), with dots between them. */
static bool uri_is_host_name(struct uri_part host)
{
	size_t label = 0;

	for (size_t i = 0; i <= host.len; i++) {
		if (i < host.len && host.s[i] != '.') {
			if (!uri_is_alnum(host.s[i]) && host.s[i] != '_' &&
				(host.s[i] != '-' || label == 0))
				return false;
			label++;
			continue;
		}
		if (label == 0 || label > URI_LABEL_MAX)
			return false;
		label = 0;
	}
	return true;
}

static bool uri_is_numeric(struct uri_part host)
{
	for (size_t i = 0; i < host.len; i++) {
		if (!uri_is_digit(host.s[i]) && host.s[i] != '.')
			return false;
	}
	return true;
}

static int uri_parse_host(struct uri_part host, struct nvme_uri *uri, const struct uri_error *error)
{
	struct in_addr address;

	if (host.len == 0)
		return uri_fail(error, "host: is missing; the form is %s://HOST[:PORT]",
			nvme_trtype_name((uint8_t)uri->trtype));
	if (host.len > NVME_URI_HOST_MAX || !uri_is_host_name(host))
		return uri_fail(error, "host \"%.*s\": is neither a name nor an address",
			uri_show_len(host), host.s);
	memcpy(uri->host, host.s, host.len);
	uri->host[host.len] = '\0';
	if (uri_is_numeric(host) && inet_pton(AF_INET, uri->host, &address) != 1)
		return uri_fail(error, "host \"%s\": is not an IPv4 address", uri->host);
	return 0;
}

/* An interface's name or number behind "%", or behind "%25" as RFC 6874 writes it. */
static bool uri_is_scope(struct uri_part *scope)
{
	if (scope->len > 2 && memcmp(scope->s, "25", 2) == 0) {
		scope->s += 2;
		scope->len -= 2;
	}
	if (scope->len == 0 || scope->len >= IF_NAMESIZE)
		return false;
	for (size_t i = 0; i < scope->len; i++) {
		if (!uri_is_alnum(scope->s[i]) && !strchr("-._@", scope->s[i]))
			return false;
	}
	return true;
}

/* What was between the brackets. */
static int uri_parse_ipv6(struct uri_part host, struct nvme_uri *uri, const struct uri_error *error)
{
	struct uri_part whole = host, scope;
	bool has_scope = uri_split(&host, "%", &scope);
	char text[INET6_ADDRSTRLEN];
	struct in6_addr address;

	if (host.len >= sizeof(text))
		return uri_fail(
			error, "host: the text in brackets is too long for an IPv6 address");
	memcpy(text, host.s, host.len);
	text[host.len] = '\0';
	if (memchr(text, '\0', host.len) || inet_pton(AF_INET6, text, &address) != 1)
		return uri_fail(error, "host \"[%.*s]\": is not an IPv6 address",
			uri_show_len(whole), whole.s);
	if (has_scope && !uri_is_scope(&scope))
		return uri_fail(error, "host \"[%.*s]\": no interface's name after \"%%\"",
			uri_show_len(whole), whole.s);
	if (has_scope && !IN6_IS_ADDR_LINKLOCAL(&address))
		return uri_fail(error, "host \"[%.*s]\": only link-local addresses have a scope",
			uri_show_len(whole), whole.s);
	uri->ipv6 = true;
	if (has_scope)
		snprintf(uri->host, sizeof(uri->host), "%s%%%.*s", text, (int)scope.len, scope.s);
	else
		snprintf(uri->host, sizeof(uri->host), "%s", text);
	return 0;
}

static int uri_parse_port(
	struct uri_part port, unsigned flags, struct nvme_uri *uri, const struct uri_error *error)
{
	bool zero_allowed = flags & NVME_URI_LISTENER;
	uint64_t value;

	if (!uri_number(port, UINT16_MAX, &value) || (value == 0 && !zero_allowed))
		return uri_fail(error, "port \"%.*s\": is not a number from %d to 65535",
			uri_show_len(port), port.s, zero_allowed ? 0 : 1);
	uri->port = (uint16_t)value;
	return 0;
}

/* HOST[:PORT] */
static int uri_parse_authority(struct uri_part authority, unsigned flags, struct nvme_uri *uri,
	const struct uri_error *error)
{
	struct uri_part host = authority, port;
	bool has_port;
	int result;

	if (authority.len > 0 && authority.s[0] == '[') {
		host = (struct uri_part){authority.s + 1, authority.len - 1};
		if (!uri_split(&host, "]", &port))
			return uri_fail(error, "host: \"[\" without \"]\" after the IPv6 address");
		has_port = port.len > 0;
		if (has_port && port.s[0] != ':')
			return uri_fail(error, "port: text other than :PORT follows \"]\"");
		if (has_port)
			port = (struct uri_part){port.s + 1, port.len - 1};
		result = uri_parse_ipv6(host, uri, error);
	} else {
		has_port = uri_split(&host, ":", &port);
		if (has_port && memchr(port.s, ':', port.len))
			return uri_fail(error,
				"host \"%.*s\": an IPv6 address stands in brackets, [::1]",
				uri_show_len(authority), authority.s);
		result = uri_parse_host(host, uri, error);
	}
	if (result || !has_port)
		return result;
	return uri_parse_port(port, flags, uri, error);
}

/* NQN[/NSID]; empty is the same as none. */
static int uri_parse_path(
	struct uri_part path, unsigned flags, struct nvme_uri *uri, const struct uri_error *error)
{
	struct uri_part nsid;
	bool has_nsid = uri_split(&path, "/", &nsid);
	const char *why;
	uint64_t value;
	int result;

	if (path.len == 0 && !has_nsid)
		return 0;
	if (flags & NVME_URI_LISTENER)
		return uri_fail(
			error, "NQN: a listener's address has none; it ends after the port");
	result = uri_decode(path, uri->nqn, sizeof(uri->nqn));
	if (result == -EINVAL)
		return uri_fail(error,
			"NQN \"%.*s\": %% is not followed by two hexadecimal digits of a byte",
			uri_show_len(path), path.s);
	if (result == -ENOSPC)
		return uri_fail(error, "NQN: longer than %d bytes", NVME_NQN_MAX);
	if (nvme_nqn_check(uri->nqn, strlen(uri->nqn), NVME_NQN_PEERS, &why))
		return uri_fail(error, "NQN \"%.*s\": %s", uri_show_len(path), path.s, why);
	if (!has_nsid)
		return 0;
	if (!uri_number(nsid, NVME_URI_NSID_MAX, &value) || value == 0)
		return uri_fail(error, "NSID \"%.*s\": is not a number from 1 to %u",
			uri_show_len(nsid), nsid.s, NVME_URI_NSID_MAX);
	uri->nsid = (uint32_t)value;
	return 0;
}

static bool uri_is_key(struct uri_part key)
{
	if (key.len == 0 || key.len > NVME_URI_KEY_MAX)
		return false;
	for (size_t i = 0; i < key.len; i++) {
		if (!uri_is_alnum(key.s[i]) && key.s[i] != '_' && key.s[i] != '-')
			return false;
	}
	return true;
}

/* key=value */
static int uri_parse_option(
	struct uri_part key, struct nvme_uri *uri, const struct uri_error *error)
{
	struct nvme_uri_option *option;
	struct uri_part value;
	int result;

	if (!uri_split(&key, "=", &value) || !uri_is_key(key))
		return uri_fail(error, "option \"%.*s\": is not of the form name=value",
			uri_show_len(key), key.s);
	if (uri->nr_options == NVME_URI_OPTIONS_MAX)
		return uri_fail(error, "options: more than %d", NVME_URI_OPTIONS_MAX);
	option = &uri->option[uri->nr_options];
	memcpy(option->key, key.s, key.len);
	option->key[key.len] = '\0';
	for (unsigned i = 0; i < uri->nr_options; i++) {
		if (strcmp(uri->option[i].key, option->key) == 0)
			return uri_fail(error, "option %s: is given twice", option->key);
	}
	result = uri_decode(value, option->value, sizeof(option->value));
	if (result == -EINVAL)
		return uri_fail(error,
			"option %s: %% is not followed by two hexadecimal digits of a byte",
			option->key);
	if (result == -ENOSPC)
		return uri_fail(error, "option %s: the value is longer than %d bytes", option->key,
			NVME_URI_VALUE_MAX);
	uri->nr_options++;
	return 0;
}

static int uri_parse_query(
	struct uri_part query, struct nvme_uri *uri, const struct uri_error *error)
{
	struct uri_part rest;
	bool more;
	int result;

	do {
		more = uri_split(&query, "&", &rest);
		result = uri_parse_option(query, uri, error);
		if (result)
			return result;
		query = rest;
	} while (more);
	return 0;
}

int nvme_uri_parse(
	const char *text, unsigned flags, struct nvme_uri *ret, char *why, size_t why_size)
{
	const struct uri_error error = {why, why_size};
	struct uri_part authority = {text, strlen(text)};
	struct uri_part path, query;
	bool has_path, has_query;
	int result;

	memset(ret, 0, sizeof(*ret));
	ret->port = NVME_FABRICS_PORT;
	result = uri_parse_scheme(&authority, ret, &error);
	if (result)
		return result;
	if (memchr(authority.s, '#', authority.len))
		return uri_fail(&error, "address: a \"#\" in a name is written %%23");

	has_query = uri_split(&authority, "?", &query);
	has_path = uri_split(&authority, "/", &path);
	result = uri_parse_authority(authority, flags, ret, &error);
	if (!result && has_path)
		result = uri_parse_path(path, flags, ret, &error);
	if (!result && has_query)
		result = uri_parse_query(query, ret, &error);
	return result;
}

/* Where the text goes; len keeps counting when it is full. */
struct uri_out {
	char *buf;
	size_t size;
	size_t len;
};

static void uri_put(struct uri_out *out, char c)
{
	if (out->len < out->size)
		out->buf[out->len] = c;
	out->len++;
}

static void uri_put_text(struct uri_out *out, const char *text)
{
	for (; *text; text++)
		uri_put(out, *text);
}

static void uri_put_encoded(struct uri_out *out, const char *text)
{
	static const char digits[] = "0123456789ABCDEF";

	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (uri_is_alnum(*text) || strchr("-._~:", *text)) {
			uri_put(out, *text);
			continue;
		}
		uri_put(out, '%');
		uri_put(out, digits[c >> 4]);
		uri_put(out, digits[c & 0xf]);
	}
}

static void uri_put_host(struct uri_out *out, const struct nvme_uri *uri)
{
	const char *scope = strchr(uri->host, '%');

	if (!uri->ipv6) {
		uri_put_text(out, uri->host);
		return;
	}
	uri_put(out, '[');
	for (const char *c = uri->host; *c; c++) {
		uri_put(out, *c);
		/* A scope that itself begins with 25 would be taken for RFC 6874's form. */
		if (c == scope && strncmp(c + 1, "25", 2) == 0)
			uri_put_text(out, "25");
	}
	uri_put(out, ']');
}

static void uri_put_number(struct uri_out *out, char separator, uint32_t number)
{
	char text[16];

	snprintf(text, sizeof(text), "%c%u", separator, number);
	uri_put_text(out, text);
}

int nvme_uri_format(const struct nvme_uri *uri, char *buf, size_t size)
{
	struct uri_out out = {buf, size, 0};

	uri_put_text(&out, nvme_trtype_name((uint8_t)uri->trtype));
	uri_put_text(&out, URI_SCHEME_END);
	uri_put_host(&out, uri);
	uri_put_number(&out, ':', uri->port);
	if (uri->nqn[0]) {
		uri_put(&out, '/');
		uri_put_encoded(&out, uri->nqn);
	}
	if (uri->nsid)
		uri_put_number(&out, '/', uri->nsid);
	for (unsigned i = 0; i < uri->nr_options; i++) {
		uri_put(&out, i == 0 ? '?' : '&');
		uri_put_text(&out, uri->option[i].key);
		uri_put(&out, '=');
		uri_put_encoded(&out, uri->option[i].value);
	}
	if (out.len >= size)
		return -ENOSPC;
	buf[out.len] = '\0';
	return (int)out.len;
}
