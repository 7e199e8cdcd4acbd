/* SPDX-License-Identifier: MIT */
/*
 * Responses against values that Python's hashlib and hmac computed, and both sides of a DH exchange
 * against each other.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "proto/auth/dhchap.h"
#include "proto/base/compiler.h"

#define HOST   "nqn.2014-08.org.nvmexpress:uuid:befdec4c-2234-11b2-a85c-ca77c773af36"
#define SUBSYS "nqn.2024-01.com.example:disks"

/* The challenge is 100, 101 ..., S 01020304h, T_ID BEEFh, the shared secret 3, 10, 17 ... */
static const struct vector {
	uint8_t hash;
	const char *secret;
	bool shared;
	const char *host;
	const char *ctrl;
} vectors[] = {
	{1, "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:",
		false, "2b288fdfa4d2170d805979a2c94f234c1cf29d27e5a0bc30a5935df97373c0c7",
		"0e2e8045f2837f9e54b15924157a9444767c33d6041fc62f37ed5369a26e5400"},
	{1, "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+P4zODhA=:",
		true, "dc2d2ae08e96520eba6f88399c3625bd676a5edab159d84051d74fa30a1816b9",
		"943b8b1512ec8fc473b683393b839061daed91f5e5f3c4de427e6f621c626ea5"},
	{1, "DHHC-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:", false,
		"55f86a21c7d928d99202259efe84a048e6b78355f8d9307ae24dab384bb4836e",
		"ef63588e4d03289e9d5c4c9e60b1e889ee1d6522e5474993e0552f6edc9b6b4d"},
	{1, "DHHC-1:03:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:",
		true, "d11f0f427fbfe138d49aa9cb5061290f22ac2d451333de23448c0153d362bf97",
		"bee7da01df2033f7ea3031ab81b32c44ad56d714d5f760221c9f01c63faacf62"},
	{2, "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+P4zODhA=:",
		false,
		"2a93231034b07f580f265639569556364b71cd3ecc412ed056053ecc1a267f19364e005bbf056c2d107741f890b7dbff",
		"c8e343789f6470c1af87466edbce00cb62aec6e8e399eb6a6b5f2d1a0ba9936939f4f4059acf63646b85eedfd2cb2c70"},
	{2, "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:", true,
		"14e5d346196f24e5dc20439987c369278daf9b895fb2f805b7dea112a34e3453328792e98755f83b6d3e46b08436f57b",
		"9851106aebf8ecfd86c74f986212a079e3377f8c6b1c4999ce6be4a46ec58b3b6bc428d13b034930712b11599690fa1e"},
	{2, "DHHC-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:",
		false,
		"4ab2a8877b9bd948faca24e29c99f96b3ff4f3d1ab218f068d5e09ec3833c5c52bac295dae165475f6585e95846087fb",
		"b66db9d3a604368095e1284a1f202960a230960dee0c39cc8d1d25371914f4c6542e34eee3c22812a33a87527ad9574d"},
	{2, "DHHC-1:03:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+P4zODhA=:",
		true,
		"dff30c0952c9c9f34b3964056970d7a52ce7e8071296625719607f742a9f390410dc261aa6eae9154314621db62a422a",
		"e6c931ea572461fe5b79a2aa455574d401ff343e8f587ee68a5005dff1a5d1f414c2e23c552dba6c8ede477aafd2412d"},
	{3, "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:", false,
		"937cff29243d0b6761d003652fc7cee157e9ea5a92959a22029b65a1eb5a75439def411910d01ec9614d45ecd10e153a9e068342cdafb8665d4ab966d042ae95",
		"f7d4f4c9d1be963ee059c46e1f7afad5e5d46dc4093d27a9174dd209b750f0931632ab2c7f52958f65b517058b1751f405dbd2d51d0d777b66ee92db071b4dad"},
	{3, "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:",
		true,
		"d8001f9de931987573388ab4f13d15fd4581993afedc311cc2cce91713df4b1a22ca601a62c0f4a438901242fd4e6dff6473698171b43ccb3e6206ccb141dd35",
		"241f78aa009a1d87a9f3de0243a3a9324d03fe73af65c43c776e2c6f9a8d55e339649ce2b413aecdbea695c1b923506f9464134ab307774406f94f2850dc0e68"},
	{3, "DHHC-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+P4zODhA=:",
		false,
		"fcc5593f0f0f545c672c9abbd6a7534b23ff0f10bb4063b31f4093d8252a8e07c396654c0d9bb2f39fc9506b1be0a6136a621d433e69d39a05dc5817ecafbb81",
		"2bd44c37b9be69df0e106480cd0755b5e0bc1118090fe565077071a8308b220829efe434e895f38eb265a281d61df035581500397417e92334b053ec3e2d86c0"},
	{3, "DHHC-1:03:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:", true,
		"bff05c520a51a99227cc5ac010a24a63995f9fab67b9e5ae1789bb6ea7056fd9de5b04c3d0a3811bb12842f6041924eec6123fe75eee01bb528baf64990354bb",
		"5bf1c617af5f29bb0f6f4892c6469e92ddf7bab6fa222d40ca5e8b70a4777e43becc7b6ba2b81187b17632d024722279c9b4dc40cacc9badba9a3646b1a56708"},
};

static void as_hex(const uint8_t *bytes, size_t len, char *ret)
{
	for (size_t i = 0; i < len; i++)
		snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
}

static void check_response(const struct dhchap *dhchap, const struct vector *vector,
	enum dhchap_side side, const char *right)
{
	uint8_t challenge[NVME_AUTH_HASH_MAX_BYTES];
	uint8_t response[NVME_AUTH_HASH_MAX_BYTES];
	struct nvme_auth_secret secret;
	char text[2 * NVME_AUTH_HASH_MAX_BYTES + 1];

	for (size_t i = 0; i < sizeof(challenge); i++)
		challenge[i] = (uint8_t)(100 + i);
	assert_int_equal(
		nvme_auth_secret_parse(vector->secret, strlen(vector->secret), &secret, NULL), 0);
	assert_int_equal(
		dhchap_response(dhchap, side, &secret, challenge, 0x01020304, response), 0);
	as_hex(response, nvme_auth_hash_bytes(vector->hash), text);
	assert_string_equal(text, right);
}

static void responses_are_as_computed_elsewhere(void **state)
{
	uint8_t shared[256];

	(void)state;
	for (size_t i = 0; i < sizeof(shared); i++)
		shared[i] = (uint8_t)(7 * i + 3);
	for (size_t i = 0; i < ARRAY_SIZE(vectors); i++) {
		const struct dhchap dhchap = {
			.hash = vectors[i].hash,
			.t_id = 0xbeef,
			.hostnqn = HOST,
			.subnqn = SUBSYS,
			.shared = shared,
			.shared_len = vectors[i].shared ? sizeof(shared) : 0,
		};

		check_response(&dhchap, &vectors[i], DHCHAP_HOST, vectors[i].host);
		check_response(&dhchap, &vectors[i], DHCHAP_CTRL, vectors[i].ctrl);
	}
}

static void both_sides_share_a_secret_in_each_group(void **state)
{
	(void)state;
	for (uint8_t group = NVME_AUTH_FFDHE2048; group <= NVME_AUTH_FFDHE8192; group++) {
		uint8_t value[2][NVME_AUTH_GROUP_MAX_BYTES], shared[2][NVME_AUTH_GROUP_MAX_BYTES];
		struct dhchap_dh *one, *other;
		size_t len = nvme_auth_group_bytes(group);

		assert_int_equal(dhchap_dh_create(group, &one, value[0]), 0);
		assert_int_equal(dhchap_dh_create(group, &other, value[1]), 0);
		assert_memory_not_equal(value[0], value[1], len);
		assert_int_equal(dhchap_dh_derive(one, value[1], shared[0]), 0);
		assert_int_equal(dhchap_dh_derive(other, value[0], shared[1]), 0);
		assert_memory_equal(shared[0], shared[1], len);
		dhchap_dh_free(one);
		dhchap_dh_free(other);
	}
}

/* 0, 1, p - 1 and beyond would make the shared secret known to everybody. The primes begin and end
 * with 64 bits that are 1 (RFC 7919). */
static void values_that_give_the_secret_away_are_refused(void **state)
{
	uint8_t value[NVME_AUTH_GROUP_MAX_BYTES] = {0}, shared[NVME_AUTH_GROUP_MAX_BYTES];
	struct dhchap_dh *dh;

	(void)state;
	assert_int_equal(dhchap_dh_create(NVME_AUTH_FFDHE2048, &dh, value), 0);
	memset(value, 0, 256);
	assert_int_equal(dhchap_dh_derive(dh, value, shared), -EINVAL);
	value[255] = 1;
	assert_int_equal(dhchap_dh_derive(dh, value, shared), -EINVAL);
	value[255] = 2;
	assert_int_equal(dhchap_dh_derive(dh, value, shared), 0);
	memset(value, 0xff, 256);
	assert_int_equal(dhchap_dh_derive(dh, value, shared), -EINVAL);
	dhchap_dh_free(dh);
	dhchap_dh_free(NULL);
}

/* The prime of ffdhe2048 (RFC 7919 A.1), less one: the only other value of a small order. */
static void value_of_order_two_is_refused(void **state)
{
	uint8_t value[NVME_AUTH_GROUP_MAX_BYTES], shared[NVME_AUTH_GROUP_MAX_BYTES];
	static const char prime[] =
		"ffffffffffffffffadf85458a2bb4a9aafdc5620273d3cf1d8b9c583ce2d3695"
		"a9e13641146433fbcc939dce249b3ef97d2fe363630c75d8f681b202aec4617a"
		"d3df1ed5d5fd65612433f51f5f066ed0856365553ded1af3b557135e7f57c935"
		"984f0c70e0e68b77e2a689daf3efe8721df158a136ade73530acca4f483a797a"
		"bc0ab182b324fb61d108a94bb2c8e3fbb96adab760d7f4681d4f42a3de394df4"
		"ae56ede76372bb190b07a7c8ee0a6d709e02fce1cdf7e2ecc03404cd28342f61"
		"9172fe9ce98583ff8e4f1232eef28183c3fe3b1b4c6fad733bb5fcbc2ec22005"
		"c58ef1837d1683b2c6f34a26c1b2effa886b423861285c97ffffffffffffffff";
	struct dhchap_dh *dh;

	(void)state;
	assert_int_equal(dhchap_dh_create(NVME_AUTH_FFDHE2048, &dh, value), 0);
	for (size_t i = 0; i < 256; i++) {
		unsigned byte;

		assert_int_equal(sscanf(prime + 2 * i, "%2x", &byte), 1);
		value[i] = (uint8_t)byte;
	}
	value[255]--; /* p - 1 */
	assert_int_equal(dhchap_dh_derive(dh, value, shared), -EINVAL);
	value[255]--; /* p - 2 */
	assert_int_equal(dhchap_dh_derive(dh, value, shared), 0);
	dhchap_dh_free(dh);
}

static void random_bytes_differ(void **state)
{
	uint8_t one[32], other[32];

	(void)state;
	assert_int_equal(dhchap_random(one, sizeof(one)), 0);
	assert_int_equal(dhchap_random(other, sizeof(other)), 0);
	assert_false(dhchap_is_same(one, other, sizeof(one)));
	dhchap_wipe(one, sizeof(one));
	memset(other, 0, sizeof(other));
	assert_true(dhchap_is_same(one, other, sizeof(one)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(responses_are_as_computed_elsewhere),
		cmocka_unit_test(both_sides_share_a_secret_in_each_group),
		cmocka_unit_test(values_that_give_the_secret_away_are_refused),
		cmocka_unit_test(value_of_order_two_is_refused),
		cmocka_unit_test(random_bytes_differ),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
