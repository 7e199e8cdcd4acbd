# SPDX-License-Identifier: MIT
"""The host's side of DH-HMAC-CHAP (NVMe base 2.0 8.13), with nothing but Python's hmac and pow()."""
import base64
import hashlib
import hmac
import os
import struct
import zlib

import nvme

HASHES = {1: "sha256", 2: "sha384", 3: "sha512"}
NULL = 0
# RFC 7919: bits of each prime, and the number that its formula needs.
GROUPS = {1: (2048, 560316), 2: (3072, 2625351), 3: (4096, 5736041), 4: (6144, 15705020), 5: (8192, 10965728)}
NEGOTIATE, CHALLENGE, REPLY, SUCCESS1, SUCCESS2, FAILURE2, FAILURE1 = 0, 1, 2, 3, 4, 0xF0, 0xF1
COMMON, DHCHAP = 0, 1
FAILED, PROTOCOL, CONCAT, NO_HASH, NO_GROUP, PAYLOAD, MESSAGE = range(1, 8)     # reason code explanations
WHAT = 0xE9 << 24 | 0x0101 << 8     # SECP, SPSP1, SPSP0
ATR = 1 << 17                       # of Connect's answer
AUTH_REQUIRED = 0x191


def euler(bits):
    """The first BITS binary digits of e behind the point, as an integer with 2 in front."""
    total, term, n = 0, 1 << (bits + 64), 1
    while term:
        total += term
        term //= n
        n += 1
    return total >> 64


def prime(group):
    bits, x = GROUPS[group]
    return (1 << bits) - (1 << (bits - 64)) + ((euler(bits - 130) + x) << 64) - 1


def secret(key, transform=0):
    """As nvme gen-dhchap-key writes it."""
    return f"DHHC-1:{transform:02}:{base64.b64encode(key + struct.pack('<I', zlib.crc32(key))).decode()}:"


def transformed(text, nqn):
    _, transform, encoded, _ = text.split(":")
    key = base64.b64decode(encoded)[:-4]
    if transform == "00":
        return key
    return hmac.new(key, nqn.encode() + b"NVMe-over-Fabrics", HASHES[int(transform)]).digest()


def response(host, *, role, own_secret, own, other, challenge, seqnum):
    digest = HASHES[host.hash]
    if host.shared:
        challenge = hmac.new(hashlib.new(digest, host.shared).digest(), challenge, digest).digest()
    text = (challenge + struct.pack("<IHB", seqnum, host.t_id, 0) + role + own.encode() + b"\0" + other.encode())
    return hmac.new(transformed(own_secret, own), text, digest).digest()


class Failure(Exception):
    """The controller has sent AUTH_Failure1."""

    def __init__(self, message):
        super().__init__(message.hex())
        kind, number, self.t_id, code, self.why = struct.unpack_from("<BB2xHBB", message)
        assert (kind, number, code) == (COMMON, FAILURE1, 1)


class Host:
    """A transaction on QUEUE, step by step."""

    def __init__(self, queue, *, key, hostnqn, subnqn, ctrl_key=None, hashes=(1, 2, 3), groups=(0, 1, 2, 3, 4, 5), t_id=0x1234):
        self.queue, self.key, self.ctrl_key, self.hostnqn, self.subnqn = queue, key, ctrl_key, hostnqn, subnqn
        self.hashes, self.groups, self.t_id, self.shared, self.dh = hashes, groups, t_id, b"", b""
        self.seqnum, self.own_challenge = 0x01020304, b""

    def send_cqe(self, message, **kw):
        return self.queue.command(nvme.FABRICS, nsid=nvme.AUTH_SEND, cdw=(WHAT, kw.pop("length", len(message))),
                                  **(kw or {"write": message}))[0]

    def send(self, message, **kw):
        cqe = self.send_cqe(message, **kw)
        assert cqe.status == 0, cqe

    def send_inline(self, message):
        """Of any length: what is fetched over TCP is a multiple of four."""
        self.send(message, inline=message)

    def receive_cqe(self, length=4096):
        return self.queue.command(nvme.FABRICS, nsid=nvme.AUTH_RECV, cdw=(WHAT, length), read=length)

    def receive(self, length=4096):
        cqe, data = self.receive_cqe(length)
        assert cqe.status == 0, cqe
        assert len(data) == length
        if data[1] == FAILURE1:
            raise Failure(data)
        return data

    def header(self, kind, number):
        return struct.pack("<BB2xH", kind, number, self.t_id)

    def negotiate_message(self, *, sc_c=0, authid=1):
        offer = bytes([authid, 0, len(self.hashes), len(self.groups)])
        offer += bytes(self.hashes).ljust(30, b"\0") + bytes(self.groups).ljust(30, b"\0")
        return self.header(COMMON, NEGOTIATE) + bytes([sc_c, 1]) + offer

    def negotiate(self, **kw):
        self.send(self.negotiate_message(), **kw)

    def challenged(self, **kw):
        data = self.receive(**kw)
        kind, number, t_id, hash_len, self.hash, self.group, dh_len, self.s1 = struct.unpack_from("<BB2xHBxBBHI", data)
        assert (kind, number, t_id) == (DHCHAP, CHALLENGE, self.t_id)
        assert hash_len == hashlib.new(HASHES[self.hash]).digest_size and self.s1
        assert dh_len == (GROUPS[self.group][0] // 8 if self.group else 0)
        self.c1, value = data[16:16 + hash_len], data[16 + hash_len:16 + hash_len + dh_len]
        assert not any(data[16 + hash_len + dh_len:])
        if self.group:
            p, exponent = prime(self.group), int.from_bytes(os.urandom(50), "big")
            self.dh = pow(2, exponent, p).to_bytes(dh_len, "big")
            self.shared = pow(int.from_bytes(value, "big"), exponent, p).to_bytes(dh_len, "big")
        return data

    def reply_message(self):
        size = len(self.c1)
        right = response(self, role=b"HostHost", own_secret=self.key, own=self.hostnqn, other=self.subnqn,
                         challenge=self.c1, seqnum=self.s1)
        self.own_challenge = os.urandom(size) if self.ctrl_key else bytes(size)
        return (self.header(DHCHAP, REPLY) + struct.pack("<BxBxHI", size, bool(self.ctrl_key), len(self.dh), self.seqnum)
                + right + self.own_challenge + self.dh)

    def reply(self, **kw):
        self.send(self.reply_message(), **kw)

    def succeeded(self):
        data = self.receive()
        kind, number, t_id, size, valid = struct.unpack_from("<BB2xHBxB", data)
        assert (kind, number, t_id, size, valid) == (DHCHAP, SUCCESS1, self.t_id, len(self.c1), bool(self.ctrl_key))
        if self.ctrl_key:
            assert data[16:16 + size] == response(self, role=b"Controller", own_secret=self.ctrl_key, own=self.subnqn,
                                                  other=self.hostnqn, challenge=self.own_challenge, seqnum=self.seqnum)
        return data

    def confirm(self):
        self.send(self.header(DHCHAP, SUCCESS2) + bytes(10))

    def run(self):
        """All of it."""
        self.negotiate()
        self.challenged()
        self.reply()
        self.succeeded()
        if self.ctrl_key:
            self.confirm()
        return self
