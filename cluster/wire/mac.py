"""The cluster's MAC: who vouches for values whose content cannot prove that it belongs to its key.

A mask entry's key does not follow from its bytes, nor a manifest's from its source: only somebody who built it knows.
Whoever builds one signs it with the cluster's key; whoever receives one checks that. Units and tokenizers need none:
their digests are derived again.
"""

from __future__ import annotations

import hmac
import secrets
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

from blake3 import blake3

from gramary.cluster.records import Kind, Record
from gramary.cluster.wire.errors import InvalidSecurity

KEY_BYTES = 32
VOUCHED = frozenset({Kind.ENTRY, Kind.MANIFEST})
"""Kinds of values that need a MAC."""


class Mac:
    """Keyed BLAKE3. The first key signs, all of them verify: to rotate, add the new key last everywhere, then make it
    first everywhere, then take the old one away.
    """

    def __init__(self, keys: Sequence[bytes] | Callable[[], Sequence[bytes]]) -> None:
        """`keys`: 32 bytes each, or what gives them at any moment: so they can be rotated without a restart."""
        self._given = keys
        self._check(self._keys)

    @property
    def _keys(self) -> Sequence[bytes]:
        return self._given() if callable(self._given) else self._given

    @staticmethod
    def _check(keys: Sequence[bytes]) -> None:
        if not keys:
            raise InvalidSecurity("a MAC needs a key: 32 random bytes (gramary.cluster.wire.mac.Mac.new_key())")
        for key in keys:
            if len(key) != KEY_BYTES:
                raise InvalidSecurity(f"a MAC key has {KEY_BYTES} bytes, not {len(key)}")
        if len(set(keys)) != len(keys):
            raise InvalidSecurity("the same MAC key is given twice")

    def __repr__(self) -> str:
        return f"Mac({len(self._keys)} keys)"

    @staticmethod
    def new_key() -> bytes:
        """A fresh key."""
        return secrets.token_bytes(KEY_BYTES)

    @classmethod
    def from_file(cls, path: Path) -> Mac:
        """Keys from a file: one a line, 64 hexadecimal digits each; the first signs."""
        try:
            lines = path.read_text("ascii").split()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidSecurity(f"{path} cannot be read: {error}", path=str(path)) from None
        try:
            return cls([bytes.fromhex(line) for line in lines])
        except (ValueError, InvalidSecurity) as error:
            why = error.message if isinstance(error, InvalidSecurity) else "a line is not hexadecimal"
            raise InvalidSecurity(f"{path}: {why}", path=str(path)) from None

    def sign(self, key: bytes, payload: bytes) -> bytes:
        """The MAC of an encoded key and a payload."""
        return keyed_hash(self._keys[0], key, payload)

    def verify(self, key: bytes, payload: bytes, mac: bytes) -> bool:
        """Whether a MAC is one that a holder of one of the keys made."""
        return any(hmac.compare_digest(keyed_hash(secret, key, payload), mac) for secret in self._keys)

    def seal(self, record: Record) -> Record:
        """The record with its MAC, if its kind needs one."""
        if record.key.kind not in VOUCHED:
            return record
        mac = self.sign(record.key.encode(), record.payload)
        return Record(record.key, record.payload, record.cost_ns, mac, record.origin)

    def check(self, record: Record) -> bool:
        """Whether a record needs no MAC, or has a good one."""
        return record.key.kind not in VOUCHED or self.verify(record.key.encode(), record.payload, record.mac)


def keyed_hash(secret: bytes, key: bytes, payload: bytes) -> bytes:
    """What is signed: an encoded key, with its length, and a payload."""
    hasher = blake3(struct.pack(">I", len(key)) + key, key=secret)
    hasher.update(payload)
    return hasher.digest()
