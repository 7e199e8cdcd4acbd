# SPDX-License-Identifier: MIT
"""NVMe wire formats as the conformance tests see them.

Written from the specification alone and sharing nothing with the C code, so that the two check
each other. Numbers in comments are byte offsets.
"""
import struct

# Fabrics command types (NVMe base 2.0, figure 386).
PROPERTY_SET, CONNECT, PROPERTY_GET, AUTH_SEND, AUTH_RECV, DISCONNECT = 0, 1, 4, 5, 6, 8
FABRICS = 0x7F

# Admin opcodes.
GET_LOG, IDENTIFY, ABORT, SET_FEATURES, GET_FEATURES, ASYNC_EVENT, KEEP_ALIVE = (
    0x02, 0x06, 0x08, 0x09, 0x0A, 0x0C, 0x18)
# NVM opcodes.
RESV_REGISTER, RESV_REPORT, RESV_ACQUIRE, RESV_RELEASE = 0x0D, 0x0E, 0x11, 0x15
FLUSH, WRITE, READ, WRITE_ZEROES, DSM = 0x00, 0x01, 0x02, 0x08, 0x09
WRITE_UNCORRECTABLE, COMPARE, VERIFY, COPY = 0x04, 0x05, 0x0C, 0x19

# Property offsets.
CAP, VS, CC, CSTS = 0x00, 0x08, 0x14, 0x1C

DISCOVERY_NQN = "nqn.2014-08.org.nvmexpress.discovery"

# Status: (SCT << 8) | SC.
SUCCESS = 0x000
INVALID_OPCODE = 0x001
INVALID_FIELD = 0x002
SEQUENCE_ERROR = 0x00C
INVALID_NAMESPACE = 0x00B
FUSED_FAILED = 0x009
FUSED_MISSING = 0x00A
SGL_SEGMENT_INVALID, SGL_NUMBER_INVALID = 0x00D, 0x00E
SGL_LENGTH_INVALID = 0x00F
SGL_TYPE_INVALID, SGL_OFFSET_INVALID = 0x011, 0x016
ATOMIC_UNIT_EXCEEDED = 0x014
TRANSIENT_TRANSPORT = 0x022
ABORT_PREEMPTED = 0x01B
HOSTID_FORMAT = 0x018
OPERATION_DENIED = 0x015
RESERVATION_CONFLICT = 0x083
LBA_OUT_OF_RANGE = 0x080
CAPACITY_EXCEEDED = 0x081
AER_LIMIT = 0x105
INVALID_LOG_PAGE = 0x109
NOT_SAVEABLE = 0x10D
CONNECT_FORMAT = 0x180
CONTROLLER_BUSY = 0x181
CONNECT_INVALID = 0x182
CONNECT_INVALID_HOST = 0x184
COMMAND_SIZE_LIMIT = 0x183
UNRECOVERED_READ_ERROR = 0x281
COMPARE_FAILURE = 0x285

SGL_IN_CAPSULE = 0x01   # data block, subtype offset
SGL_TRANSPORT = 0x5A    # transport SGL data block, subtype transport-specific


class Cqe:
    """A 16-byte completion queue entry."""

    def __init__(self, raw):
        (self.dw0, self.dw1, self.sqhd, self.sqid, self.cid, word) = struct.unpack("<IIHHHH", raw)
        self.raw = raw
        self.status = (word >> 1) & 0x7FF   # SCT and SC
        self.dnr = bool(word & 0x8000)
        self.more = bool(word & 0x4000)

    def __repr__(self):
        return f"Cqe(cid={self.cid} status={self.status:#05x} dnr={self.dnr} dw0={self.dw0:#x})"


def sgl(kind, address, length):
    """A data block descriptor without key."""
    return struct.pack("<QI3xB", address, length, kind)


def command(opcode, *, cid=0, nsid=0, flags=0x40, dptr=bytes(16), cdw=()):
    """A 64-byte command; CDW are dwords 10 and up."""
    words = list(cdw) + [0] * (6 - len(cdw))
    return struct.pack("<BBHIQQ16s6I", opcode, flags, cid, nsid, 0, 0, dptr,
                       *[w & 0xFFFFFFFF for w in words])


def fabrics(fctype, body, *, cid=0, dptr=bytes(16), flags=0x40):
    """A fabrics command; BODY is bytes 40 to 63."""
    head = struct.pack("<BBHB19s16s", FABRICS, flags, cid, fctype, bytes(19), dptr)
    return head + body.ljust(24, b"\0")


def connect_command(*, cid=0, recfmt=0, qid=0, sqsize=31, cattr=0, kato=0, dptr=bytes(16)):
    return fabrics(CONNECT, struct.pack("<HHHBxI", recfmt, qid, sqsize, cattr, kato),
                   cid=cid, dptr=dptr)


def connect_data(*, hostid=bytes(range(1, 17)), cntlid=0xFFFF, subnqn="", hostnqn=""):
    """1024 bytes; names may be given as bytes to place anything in their fields."""
    def field(name):
        return (name.encode() if isinstance(name, str) else name).ljust(256, b"\0")
    return (hostid + struct.pack("<H", cntlid) + bytes(238) + field(subnqn) + field(hostnqn)
            + bytes(256))


def no_namespace(nsid, nn=1024):
    """Base 2.0 4.1, figure 87: the status of an I/O command for one that is not there."""
    return INVALID_FIELD if 1 <= nsid <= nn or nsid == 0xFFFFFFFF else INVALID_NAMESPACE


def rw_cdw(slba, nlb, *, control=0):
    """Dwords 10 to 12 of Read, Write and Write Zeroes; NLB is a count, 1's based."""
    return (slba & 0xFFFFFFFF, slba >> 32, (nlb - 1) & 0xFFFF | control)
