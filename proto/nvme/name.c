/* SPDX-License-Identifier: MIT */
/*
 * Names of transports, checks of NQNs, fixed text fields, UUIDs.
 */
#include "proto/nvme/name.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "proto/nvme/fabrics.h"

#define NQN_LABEL_MAX 63 /* of a DNS name */
#define NQN_DATE_LEN  8	 /* yyyy-mm. */

static const struct {
	uint8_t trtype;
	const char *name;
} name_transports[] = {
	{NVME_TRTYPE_RDMA, "rdma"},
	{NVME_TRTYPE_FC, "fc"},
	{NVME_TRTYPE_TCP, "tcp"},
	{NVME_TRTYPE_LOOP, "loop"},
};

const char *nvme_trtype_name(uint8_t trtype)
{
	for (size_t i = 0; i < ARRAY_SIZE(name_transports); i++)
		if (name_transports[i].trtype == trtype)
			return name_transports[i].name;
	return NULL;
}

uint8_t nvme_trtype_by_name(const char *name, size_t len)
{
	for (size_t i = 0; i < ARRAY_SIZE(name_transports); i++)
		if (strlen(name_transports[i].name) == len &&
			!memcmp(name_transports[i].name, name, len))
			return name_transports[i].trtype;
	return 0;
}

/* The C library's classes depend on the locale. */
static bool name_is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool name_is_alnum(char c)
{
	return name_is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool name_is_print(char c)
{
	return c >= ' ' && c <= '~';
}

size_t nvme_utf8_next(const char *text, size_t len, uint32_t *ret_code)
{
	static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
	const uint8_t *s = (const uint8_t *)text;
	uint32_t code;
	size_t n;

	*ret_code = s[0];
	if (s[0] < 0x80)
		return 1;
	n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
	if (s[0] < 0xc2 || s[0] > 0xf4 || n > len)
		return 0;
	code = s[0] & (0x7fu >> n);
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (s[i] & 0x3fu);
	}
	if (code < smallest[n] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
		return 0;
	*ret_code = code;
	return n;
}

static const char *name_check_text(const char *s, size_t len)
{
	uint32_t code;
	size_t n;

	for (size_t i = 0; i < len; i += n) {
		n = nvme_utf8_next(s + i, len - i, &code);
		if (n == 0)
			return "the NQN is not valid UTF-8";
		/* Names go to logs and terminals as they are. 80h to 9Fh are controls, too. */
		if (code < ' ' || (code >= 0x7f && code < 0xa0))
			return "the NQN has a control character";
	}
	return NULL;
}

/* "yyyy-mm." */
static bool name_is_date(const char *s, size_t len)
{
	if (len < NQN_DATE_LEN)
		return false;
	for (size_t i = 0; i < NQN_DATE_LEN - 1; i++) {
		if (i != 4 && !name_is_digit(s[i]))
			return false;
	}
	if (s[4] != '-' || s[7] != '.')
		return false;
	return (s[5] == '0' && s[6] != '0') || (s[5] == '1' && s[6] <= '2');
}

/* Labels of letters, digits and inner hyphens, with dots between them. */
static bool name_is_domain(const char *s, size_t len)
{
	size_t label = 0;

	for (size_t i = 0; i <= len; i++) {
		if (i < len && s[i] != '.') {
			if (!name_is_alnum(s[i]) && (s[i] != '-' || label == 0))
				return false;
			label++;
			continue;
		}
		if (label == 0 || label > NQN_LABEL_MAX || s[i - 1] == '-')
			return false;
		label = 0;
	}
	return true;
}

/* The 36 characters at s. */
static bool name_uuid_decode(const char *s, struct nvme_uuid *ret)
{
	struct nvme_uuid uuid = {0};
	unsigned nibbles = 0;

	for (size_t i = 0; i < NVME_UUID_TEXT - 1; i++) {
		char c = s[i];
		unsigned value;

		if (i == 8 || i == 13 || i == 18 || i == 23) {
			if (c != '-')
				return false;
			continue;
		}
		if (name_is_digit(c))
			value = (unsigned)(c - '0');
		else if (c >= 'a' && c <= 'f')
			value = (unsigned)(c - 'a') + 10;
		else if (c >= 'A' && c <= 'F')
			value = (unsigned)(c - 'A') + 10;
		else
			return false;
		uuid.b[nibbles / 2] = (uint8_t)((unsigned)uuid.b[nibbles / 2] << 4 | value);
		nibbles++;
	}
	*ret = uuid;
	return true;
}

/* What every name must be, of whatever form: it goes into a field, to logs and to terminals. */
static const char *name_check_any(const char *nqn, size_t len)
{
	if (len == 0)
		return "the NQN is empty; it has the form nqn.yyyy-mm.reverse.domain:name";
	if (len > NVME_NQN_MAX)
		return "the NQN is longer than 223 bytes";
	return name_check_text(nqn, len);
}

/* The two forms of NVMe base 2.0 4.5. */
static const char *name_check_form(const char *nqn, size_t len)
{
	const size_t uuid_prefix = sizeof(NVME_NQN_UUID_PREFIX) - 1;
	struct nvme_uuid uuid;
	const char *domain, *colon;

	if (len < 4 || memcmp(nqn, "nqn.", 4) != 0)
		return "the NQN does not begin with \"nqn.\" as in nqn.yyyy-mm.reverse.domain:name";
	if (!name_is_date(nqn + 4, len - 4))
		return "the NQN has no valid date (yyyy-mm.) after \"nqn.\"";
	if (len == sizeof(NVME_DISCOVERY_NQN) - 1 && memcmp(nqn, NVME_DISCOVERY_NQN, len) == 0)
		return NULL;

	domain = nqn + 4 + NQN_DATE_LEN;
	colon = memchr(domain, ':', len - (size_t)(domain - nqn));
	if (!colon)
		return "the NQN has no \":\" and name after its reverse domain";
	if (!name_is_domain(domain, (size_t)(colon - domain)))
		return "the NQN has no valid reverse domain (such as org.example) after its date";
	if (colon + 1 == nqn + len)
		return "the NQN has no name after the \":\"";
	if (len < uuid_prefix || memcmp(nqn, NVME_NQN_UUID_PREFIX, uuid_prefix) != 0)
		return NULL;
	if (len != uuid_prefix + NVME_UUID_TEXT - 1 || !name_uuid_decode(nqn + uuid_prefix, &uuid))
		return "the NQN has no valid UUID after \"uuid:\"";
	return NULL;
}

int nvme_nqn_check(const char *nqn, size_t len, enum nvme_nqn_owner owner, const char **ret_why)
{
	const char *why = name_check_any(nqn, len);

	if (!why && owner == NVME_NQN_OURS)
		why = name_check_form(nqn, len);
	if (!why)
		return 0;
	if (ret_why)
		*ret_why = why;
	return -EINVAL;
}

int nvme_field_set(char *field, size_t size, const char *text)
{
	size_t len = strnlen(text, size + 1);

	if (len > size)
		return -EINVAL;
	for (size_t i = 0; i < len; i++) {
		if (!name_is_print(text[i]))
			return -EINVAL;
	}
	memcpy(field, text, len);
	memset(field + len, ' ', size - len);
	return 0;
}

void nvme_field_get(const char *field, size_t size, char *ret_text)
{
	while (size > 0 && (field[size - 1] == ' ' || field[size - 1] == '\0'))
		size--;
	for (size_t i = 0; i < size; i++)
		ret_text[i] = name_is_print(field[i]) ? field[i] : '?';
	ret_text[size] = '\0';
}

int nvme_uuid_parse(const char *text, struct nvme_uuid *ret)
{
	if (strnlen(text, NVME_UUID_TEXT) != NVME_UUID_TEXT - 1 || !name_uuid_decode(text, ret))
		return -EINVAL;
	return 0;
}

void nvme_uuid_format(const struct nvme_uuid *uuid, char ret_text[NVME_UUID_TEXT])
{
	static const char digits[] = "0123456789abcdef";
	char *to = ret_text;

	for (size_t i = 0; i < sizeof(uuid->b); i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*to++ = '-';
		*to++ = digits[uuid->b[i] >> 4];
		*to++ = digits[uuid->b[i] & 0xf];
	}
	*to = '\0';
}

struct nvme_uuid nvme_uuid_from_hash(const uint8_t hash[16])
{
	struct nvme_uuid uuid;

	memcpy(uuid.b, hash, sizeof(uuid.b));
	uuid.b[6] = (uint8_t)((uuid.b[6] & 0x0f) | 0x80);
	uuid.b[8] = (uint8_t)((uuid.b[8] & 0x3f) | 0x80);
	return uuid;
}
