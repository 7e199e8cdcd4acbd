/* SPDX-License-Identifier: MIT */
/*
 * Who this host is: the NQN and the identifier that targets know it by. They must stay the same
 * from run to run, and both belong together: a target may refuse one NQN with two identifiers.
 */
#include "initiator/host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "proto/nvme/endian.h"
#include "proto/nvme/name.h"
#include "proto/nvme/siphash.h"

/* The first line of a small file without white space at its end; false: there is none. */
static bool host_read_line(const char *path, char *line, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return false;
	n = read(fd, line, size - 1);
	close(fd);
	line[n > 0 ? n : 0] = '\0';
	line[strcspn(line, " \t\r\n")] = '\0';
	return line[0] != '\0';
}

/* One-way in its key: the machine id is not to be seen on the network. */
static uint64_t host_hash(const uint64_t key[2], uint64_t word)
{
	const le64_t bytes = le64(word);

	return nvme_siphash(key, &bytes, sizeof(bytes));
}

static bool host_machine_key(uint64_t key[2])
{
	char line[64];
	unsigned long long high, low;

	if (!host_read_line("/etc/machine-id", line, sizeof(line)) || strlen(line) != 32)
		return false;
	if (sscanf(line, "%16llx%16llx", &high, &low) != 2)
		return false;
	key[0] = high;
	key[1] = low;
	return true;
}

/* From the machine id; without one a new identity each time, which is better than a shared one. */
static struct nvme_uuid host_make_uuid(void)
{
	uint64_t key[2] = {0, 0}, hash[2];

	if (!host_machine_key(key) && getrandom(key, sizeof(key), 0) != sizeof(key))
		key[0] = (uint64_t)getpid();
	hash[0] = host_hash(key, 0x68617568); /* "hauh" */
	hash[1] = host_hash(key, 0x68617569);
	return nvme_uuid_from_hash((const uint8_t *)hash);
}

static void host_default_nqn(char ret_nqn[NVME_NQN_MAX + 1])
{
	char line[512], text[NVME_UUID_TEXT];
	struct nvme_uuid uuid;

	if (host_read_line("/etc/nvme/hostnqn", line, sizeof(line)) &&
		!nvme_nqn_check(line, strlen(line), NVME_NQN_OURS, NULL)) {
		strcpy(ret_nqn, line);
		return;
	}
	uuid = host_make_uuid();
	nvme_uuid_format(&uuid, text);
	snprintf(ret_nqn, NVME_NQN_MAX + 1, "%s%s", NVME_NQN_UUID_PREFIX, text);
}

/* The UUID in the NQN, so that one names the other; else one made from the NQN itself. */
static struct nvme_uuid host_id_of_nqn(const char *nqn)
{
	uint64_t key[2] = {0x6c756168, 0x74736f68}, hash[2] = {0, 0};
	size_t prefix = strlen(NVME_NQN_UUID_PREFIX);
	struct nvme_uuid uuid;

	if (!strncmp(nqn, NVME_NQN_UUID_PREFIX, prefix) && !nvme_uuid_parse(nqn + prefix, &uuid))
		return uuid;
	for (size_t i = 0; nqn[i]; i++) {
		hash[0] = host_hash(key, hash[0] ^ (uint8_t)nqn[i]);
		hash[1] = host_hash(key, hash[1] ^ hash[0]);
	}
	return nvme_uuid_from_hash((const uint8_t *)hash);
}

/* The file belongs to the NQN of the file beside it, not to one that the caller gave. */
static bool host_id_from_file(bool nqn_given, struct nvme_uuid *ret)
{
	char line[64];

	return !nqn_given && host_read_line("/etc/nvme/hostid", line, sizeof(line)) &&
	       !nvme_uuid_parse(line, ret);
}

int host_identity(const char *nqn, const char *id, char ret_nqn[NVME_NQN_MAX + 1],
	struct nvme_uuid *ret_id, char *why, size_t why_size)
{
	const char *reason;

	if (nqn && nvme_nqn_check(nqn, strlen(nqn), NVME_NQN_OURS, &reason)) {
		snprintf(why, why_size, "the host NQN is wrong: %s", reason);
		return -EINVAL;
	}
	if (nqn)
		strcpy(ret_nqn, nqn);
	else
		host_default_nqn(ret_nqn);
	if (id && nvme_uuid_parse(id, ret_id)) {
		snprintf(why, why_size,
			"the host id is not a UUID such as "
			"01234567-89ab-cdef-0123-456789abcdef");
		return -EINVAL;
	}
	if (!id && !host_id_from_file(nqn != NULL, ret_id))
		*ret_id = host_id_of_nqn(ret_nqn);
	return 0;
}
