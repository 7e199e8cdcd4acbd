/* SPDX-License-Identifier: MIT */
/*
 * DH-HMAC-CHAP with OpenSSL.
 */
#include "proto/auth/dhchap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/dh.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/rand.h>

#include "proto/nvme/name.h"

/* --- hashes ---------------------------------------------------------------------------------- */

struct dhchap_bytes {
	const void *bytes;
	size_t len;
};

static int dhchap_hmac(uint8_t hash, struct dhchap_bytes key, struct dhchap_bytes message,
	uint8_t ret[NVME_AUTH_HASH_MAX_BYTES])
{
	size_t len = 0;
	unsigned char *done =
		EVP_Q_mac(NULL, "HMAC", NULL, nvme_auth_hash_name(hash), NULL, key.bytes, key.len,
			message.bytes, message.len, ret, NVME_AUTH_HASH_MAX_BYTES, &len);

	return done && len == nvme_auth_hash_bytes(hash) ? 0 : -EIO;
}

struct dhchap_text { /* to be hashed */
	uint8_t bytes[NVME_AUTH_HASH_MAX_BYTES + 4 + 2 + 1 + 16 + 2 * NVME_NQN_FIELD];
	size_t len;
};

static void dhchap_text_add(struct dhchap_text *text, const void *bytes, size_t len)
{
	assert(len <= sizeof(text->bytes) - text->len);
	memcpy(text->bytes + text->len, bytes, len);
	text->len += len;
}

static void dhchap_text_add_nqn(struct dhchap_text *text, const char *nqn)
{
	dhchap_text_add(text, nqn, strnlen(nqn, NVME_NQN_MAX));
}

/* NVMe base 2.0 8.13.5.7: the secret is one party's, and hashed with its name if it says so. */
static int dhchap_transform(
	const struct nvme_auth_secret *secret, const char *nqn, struct nvme_auth_secret *ret)
{
	static const char text_end[] = "NVMe-over-Fabrics";
	struct dhchap_bytes key = {secret->bytes, secret->len};
	struct dhchap_text text = {.len = 0};

	*ret = *secret;
	if (!secret->hash)
		return 0;
	dhchap_text_add_nqn(&text, nqn);
	dhchap_text_add(&text, text_end, sizeof(text_end) - 1);
	ret->len = (uint8_t)nvme_auth_hash_bytes(secret->hash);
	return dhchap_hmac(
		secret->hash, key, (struct dhchap_bytes){text.bytes, text.len}, ret->bytes);
}

/* Ca = HMAC(H(shared secret), C), or C without DH. */
static int dhchap_augment(const struct dhchap *dhchap, const uint8_t *challenge,
	uint8_t ret[NVME_AUTH_HASH_MAX_BYTES])
{
	const char *name = nvme_auth_hash_name(dhchap->hash);
	size_t hash_bytes = nvme_auth_hash_bytes(dhchap->hash);
	uint8_t key[NVME_AUTH_HASH_MAX_BYTES];
	size_t len;
	int error = -EIO;

	if (!dhchap->shared_len) {
		memcpy(ret, challenge, hash_bytes);
		return 0;
	}
	if (EVP_Q_digest(NULL, name, NULL, dhchap->shared, dhchap->shared_len, key, &len) == 1 &&
		len == hash_bytes)
		error = dhchap_hmac(dhchap->hash, (struct dhchap_bytes){key, len},
			(struct dhchap_bytes){challenge, hash_bytes}, ret);
	OPENSSL_cleanse(key, sizeof(key));
	return error;
}

/* What is hashed with the secret: Ca, S, T_ID, SC_C, whose answer, and both names, its own first
 * (NVMe base 2.0 8.13.5.4 and 8.13.5.5). */
static int dhchap_message(const struct dhchap *dhchap, enum dhchap_side side,
	const uint8_t *challenge, uint32_t seqnum, struct dhchap_text *text)
{
	const char *role = side == DHCHAP_HOST ? "HostHost" : "Controller";
	const char *own = side == DHCHAP_HOST ? dhchap->hostnqn : dhchap->subnqn;
	const char *other = side == DHCHAP_HOST ? dhchap->subnqn : dhchap->hostnqn;
	le32_t number = le32(seqnum);
	le16_t t_id = le16(dhchap->t_id);
	int error = dhchap_augment(dhchap, challenge, text->bytes);

	text->len = nvme_auth_hash_bytes(dhchap->hash);
	dhchap_text_add(text, &number, sizeof(number));
	dhchap_text_add(text, &t_id, sizeof(t_id));
	dhchap_text_add(text, "", 1); /* SC_C: no secure channel */
	dhchap_text_add(text, role, strlen(role));
	dhchap_text_add_nqn(text, own);
	dhchap_text_add(text, "", 1);
	dhchap_text_add_nqn(text, other);
	return error;
}

int dhchap_response(const struct dhchap *dhchap, enum dhchap_side side,
	const struct nvme_auth_secret *secret, const uint8_t *challenge, uint32_t seqnum,
	uint8_t ret[NVME_AUTH_HASH_MAX_BYTES])
{
	const char *own = side == DHCHAP_HOST ? dhchap->hostnqn : dhchap->subnqn;
	struct nvme_auth_secret key;
	struct dhchap_text text;
	int error = dhchap_transform(secret, own, &key);

	if (!error)
		error = dhchap_message(dhchap, side, challenge, seqnum, &text);
	if (!error)
		error = dhchap_hmac(dhchap->hash, (struct dhchap_bytes){key.bytes, key.len},
			(struct dhchap_bytes){text.bytes, text.len}, ret);
	OPENSSL_cleanse(&key, sizeof(key));
	OPENSSL_cleanse(&text, sizeof(text));
	return error;
}

/* --- Diffie-Hellman -------------------------------------------------------------------------- */

struct dhchap_dh {
	EVP_PKEY *key;
	uint8_t group;
};

static EVP_PKEY *dhchap_dh_generate(uint8_t group)
{
	/* OpenSSL only reads it. */
	char *name = (char *)(uintptr_t)nvme_auth_group_name(group);
	const OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, name, 0),
		OSSL_PARAM_construct_end(),
	};
	EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_name(NULL, "DH", NULL);
	EVP_PKEY *key = NULL;

	if (context && EVP_PKEY_keygen_init(context) == 1 &&
		EVP_PKEY_CTX_set_params(context, params) == 1 &&
		EVP_PKEY_generate(context, &key) != 1)
		key = NULL;
	EVP_PKEY_CTX_free(context);
	return key;
}

/* With zeros in front, so that each value of a group has the same length. */
static int dhchap_dh_public(const EVP_PKEY *key, uint8_t group, uint8_t *ret)
{
	int bytes = (int)nvme_auth_group_bytes(group);
	BIGNUM *value = NULL;
	int written = -1;

	if (EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_PUB_KEY, &value) == 1)
		written = BN_bn2binpad(value, ret, bytes);
	BN_free(value);
	return written == bytes ? 0 : -EIO;
}

int dhchap_dh_create(
	uint8_t group, struct dhchap_dh **ret, uint8_t ret_public[NVME_AUTH_GROUP_MAX_BYTES])
{
	struct dhchap_dh *dh = calloc(1, sizeof(*dh));

	assert(nvme_auth_group_bytes(group));
	if (!dh)
		return -ENOMEM;
	dh->group = group;
	dh->key = dhchap_dh_generate(group);
	if (!dh->key || dhchap_dh_public(dh->key, group, ret_public)) {
		dhchap_dh_free(dh);
		ERR_clear_error();
		return -EIO;
	}
	*ret = dh;
	return 0;
}

/* NULL: OpenSSL cannot, or it is out of range. */
static EVP_PKEY *dhchap_dh_peer(uint8_t group, const uint8_t *value)
{
	BIGNUM *number = BN_bin2bn(value, (int)nvme_auth_group_bytes(group), NULL);
	EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_name(NULL, "DH", NULL);
	OSSL_PARAM_BLD *build = OSSL_PARAM_BLD_new();
	OSSL_PARAM *params = NULL;
	EVP_PKEY *key = NULL;

	if (number && context && build &&
		OSSL_PARAM_BLD_push_utf8_string(
			build, OSSL_PKEY_PARAM_GROUP_NAME, nvme_auth_group_name(group), 0) == 1 &&
		OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_PUB_KEY, number) == 1)
		params = OSSL_PARAM_BLD_to_param(build);
	if (params && EVP_PKEY_fromdata_init(context) == 1 &&
		EVP_PKEY_fromdata(context, &key, EVP_PKEY_PUBLIC_KEY, params) != 1)
		key = NULL;
	OSSL_PARAM_free(params);
	OSSL_PARAM_BLD_free(build);
	EVP_PKEY_CTX_free(context);
	BN_free(number);
	return key;
}

/* 2 to p - 2. These primes are safe, and no key is used twice: more need not be checked (NIST SP
 * 800-56A 5.6.2.3.1 and RFC 7919 5.1), and a check of the subgroup would take many times as long
 * as all else. */
static bool dhchap_dh_value_ok(EVP_PKEY *key)
{
	EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL);
	bool ok = context && EVP_PKEY_public_check_quick(context) == 1;

	EVP_PKEY_CTX_free(context);
	return ok;
}

static int dhchap_dh_compute(EVP_PKEY *own, EVP_PKEY *peer, uint8_t *ret, size_t bytes)
{
	EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_pkey(NULL, own, NULL);
	size_t len = bytes;
	int error = -EIO;

	if (context && EVP_PKEY_derive_init(context) == 1 &&
		EVP_PKEY_CTX_set_dh_pad(context, 1) == 1 &&
		EVP_PKEY_derive_set_peer_ex(context, peer, 0) == 1 &&
		EVP_PKEY_derive(context, ret, &len) == 1 && len == bytes)
		error = 0;
	EVP_PKEY_CTX_free(context);
	return error;
}

int dhchap_dh_derive(const struct dhchap_dh *dh, const uint8_t *peer,
	uint8_t ret_shared[NVME_AUTH_GROUP_MAX_BYTES])
{
	EVP_PKEY *key = dhchap_dh_peer(dh->group, peer);
	int error = -EINVAL;

	if (key && dhchap_dh_value_ok(key))
		error = dhchap_dh_compute(
			dh->key, key, ret_shared, nvme_auth_group_bytes(dh->group));
	EVP_PKEY_free(key);
	ERR_clear_error();
	return error;
}

void dhchap_dh_free(struct dhchap_dh *dh)
{
	if (!dh)
		return;
	EVP_PKEY_free(dh->key);
	free(dh);
}

/* --- small ----------------------------------------------------------------------------------- */

int dhchap_random(void *bytes, size_t len)
{
	return RAND_bytes(bytes, (int)len) == 1 ? 0 : -EIO;
}

bool dhchap_is_same(const void *one, const void *other, size_t len)
{
	return !CRYPTO_memcmp(one, other, len);
}

void dhchap_wipe(void *bytes, size_t len)
{
	OPENSSL_cleanse(bytes, len);
}
