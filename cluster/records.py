"""What the cluster moves and keeps: keys and records.

The cluster knows nothing of what is inside a value beyond its kind, its key and its length; the kernel does
(`gramary.cluster.kernel`). Four kinds of value exist:

========= ============================== ==================================================================
kind      `digest`                       the value
========= ============================== ==================================================================
UNIT      the unit's structural hash     one sub-grammar's FSM, flat; the digest can be derived from it again
ENTRY     the unit's structural hash     one mask entry, for `tokenizer`; `slot` says which entry of the unit
MANIFEST  the source key                 root digest and the digests of every unit that the source needs
TOKENIZER the vocabulary's fingerprint   the prepared vocabulary (id -> bytes and kind, and the trie)
========= ============================== ==================================================================

The *shard* of a unit and a tokenizer is all of its ENTRY records: their encoded keys share the prefix `shard_prefix`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from gramary.runtime._core import FORMAT_VERSION

DIGEST_BYTES = 32
MOST_SLOT_BYTES = 64


class Kind(IntEnum):
    """What a value is; the numbers are part of the stored and the wire format."""

    UNIT = 1
    ENTRY = 2
    MANIFEST = 3
    TOKENIZER = 4


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """The identity of a value. `version` is the kernel's `FORMAT_VERSION`: several live side by side in one store."""

    kind: Kind
    digest: bytes
    tokenizer: bytes = b""
    slot: bytes = b""
    version: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        wanted = DIGEST_BYTES if self.kind is Kind.ENTRY else 0
        if len(self.digest) != DIGEST_BYTES:
            raise ValueError(f"the digest of a key has 32 bytes, not {len(self.digest)}")
        if len(self.tokenizer) != wanted:
            raise ValueError(
                f"a key of kind {self.kind.name} has a tokenizer of {wanted} bytes, not {len(self.tokenizer)}"
            )
        if not (0 < len(self.slot) <= MOST_SLOT_BYTES if self.kind is Kind.ENTRY else not self.slot):
            raise ValueError("entries have a slot of 1 to 64 bytes, other kinds have none")
        if not 0 <= self.version < 1 << 32:
            raise ValueError(f"the format version {self.version} is not a 32-bit number")

    def encode(self) -> bytes:
        """The key's bytes: kind, version (big-endian), tokenizer, digest, slot. At most 133 bytes; sorts by shard."""
        return struct.pack(">BI", self.kind, self.version) + self.tokenizer + self.digest + self.slot

    @classmethod
    def decode(cls, data: bytes) -> Key:
        """The inverse of `encode`; raises `ValueError` for anything else."""
        if len(data) < 5 + DIGEST_BYTES:
            raise ValueError(f"a key has at least {5 + DIGEST_BYTES} bytes, not {len(data)}")
        number, version = struct.unpack_from(">BI", data)
        kind = _KINDS.get(number) or Kind(number)  # the call takes longer than all the rest
        rest = data[5:]
        if kind is Kind.ENTRY:
            return cls(kind, rest[32:64], rest[:32], rest[64:], version)
        return cls(kind, rest, version=version)


_KINDS = {kind.value: kind for kind in Kind}


def shard_prefix(tokenizer: bytes, unit: bytes, version: int = FORMAT_VERSION) -> bytes:
    """What the encoded keys of a unit's mask entries begin with."""
    return struct.pack(">BI", Kind.ENTRY, version) + tokenizer + unit


@dataclass(frozen=True, slots=True)
class Record:
    """A key and its value, in memory.

    `cost_ns`: what it took to build (0: unknown), which eviction and fetching weigh. `mac`: keyed hash of key and
    payload by somebody who holds the cluster's key (entries only; empty: not vouched for). `origin`: name of the node
    that built it, for quarantine; never trusted from a peer.
    """

    key: Key
    payload: bytes
    cost_ns: int = 0
    mac: bytes = b""
    origin: str = ""
