"""The store on disk: names of files, keys as LMDB sees them, and the header in front of every payload.

Everything is little-endian. docs/store.md shows the layout; `LAYOUT_VERSION` changes when it does.

Payloads are 16-byte aligned in the mapping, however small they are. LMDB puts large values at page + 16 and fills leaf
pages with small ones from the page's end downwards, each node being 8 bytes, the key, and the value (or 8 bytes of page
number). So it is enough that every node has a size that is a multiple of 16: keys are padded to multiples of 16, small
values to 8 more than one, and the payload starts where that makes it aligned.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass

import xxhash

from gramary.cluster.records import Key, Kind, Record

LAYOUT_VERSION = 1
"""Of directories, keys and headers. The kernel's `FORMAT_VERSION` is part of each key instead."""

MAGIC = b"GRMY"
ALIGNMENT = 16
MOST_PAYLOAD_BYTES = 1 << 30
MOST_MAC_BYTES = 64
MOST_ORIGIN_BYTES = 255

PAGE_BYTES = min(mmap.PAGESIZE, 1 << 15)
"""Of the environments that this machine makes."""
# LMDB moves a value out of the leaf page when its node is larger than this: at least two nodes fit into a page.
_LARGEST_NODE = (((PAGE_BYTES - 16) // 2) & -2) - 2
_NODE_HEADER = 8

VALUES = b"values"
"""The named database of keys and values."""
GROUPS = b"groups"
"""The named database of what the writer remembers about each group of values (see `group_of`)."""

# magic, header version, kind, flags, payload's offset, length of MAC, length of origin, reserved, cost, payload's
# length, its XXH3-128; then XXH3-64 of all that, MAC, origin and the encoded key.
_HEADER = struct.Struct("<4sBBHHBBIQQ16s")
_SEAL = struct.Struct("<Q")
HEADER_BYTES = _HEADER.size + _SEAL.size

_FIXED_ENTRY_BYTES = 5 + 32 + 32
_FIXED_OTHER_BYTES = 5 + 32
_FIRST_GROUP = 10  # of a slot's bytes: 69 + 10 and a marker make 80
_NEXT_GROUP = 15


class HeaderError(ValueError):
    """A stored value whose header does not fit its key or its length."""


def _tails() -> list[bytes]:
    """By the length of an encoded key of up to 79 bytes: what is to be added to it."""
    tails = [b""] * (_FIXED_ENTRY_BYTES + _FIRST_GROUP + 1)
    tails[_FIXED_OTHER_BYTES] = bytes(11)
    for used in range(_FIRST_GROUP + 1):
        tails[_FIXED_ENTRY_BYTES + used] = bytes(_FIRST_GROUP - used) + bytes([used])
    return tails


_TAILS = _tails()
_SHORT = len(_TAILS)


def stored_key(raw: bytes) -> bytes:
    """An encoded key as LMDB gets it: padded to a multiple of 16 bytes such that the order stays the same.

    A slot is cut into groups of 10, 15, 15, ... bytes, each followed by a marker: how many of its bytes are used, or
    one more than fit where another group follows.
    """
    if len(raw) < _SHORT:
        return raw + _TAILS[len(raw)]
    parts = [raw[: _SHORT - 1], bytes([_FIRST_GROUP + 1])]
    for start in range(_SHORT - 1, len(raw), _NEXT_GROUP):
        group = raw[start : start + _NEXT_GROUP]
        more = start + _NEXT_GROUP < len(raw)
        parts.append(group.ljust(_NEXT_GROUP, b"\0") + bytes([_NEXT_GROUP + 1 if more else len(group)]))
    return b"".join(parts)


def encoded_key(stored: bytes) -> bytes:
    """The inverse of `stored_key`; raises `ValueError` for what it never gives."""
    if stored[:1] != bytes([Kind.ENTRY]):
        raw = stored[:_FIXED_OTHER_BYTES]
    else:
        raw = stored[:_FIXED_ENTRY_BYTES]
        at, size, used = _FIXED_ENTRY_BYTES, _FIRST_GROUP, _FIRST_GROUP + 1
        while used > size:
            if at > _FIXED_ENTRY_BYTES:
                size = _NEXT_GROUP
            if at + size >= len(stored):
                raise ValueError("not a stored key: it ends within a group")
            used = stored[at + size]
            raw += stored[at : at + min(used, size)]
            at += size + 1
    if stored_key(raw) != stored:
        raise ValueError("not a stored key: its padding is wrong")
    return raw


def group_of(stored: bytes) -> bytes:
    """What lives and dies together: a shard's entries, or one unit, manifest or tokenizer."""
    return stored[:_FIXED_ENTRY_BYTES] if stored[0] == Kind.ENTRY else stored[:_FIXED_OTHER_BYTES]


def page_bytes_of(stored: bytes, length: int) -> int:
    """What a value of `length` bytes, header included, takes in pages, roughly."""
    node = _NODE_HEADER + len(stored) + length
    if node <= _LARGEST_NODE:
        return node + 2
    return -(-(16 + length) // PAGE_BYTES) * PAGE_BYTES + _NODE_HEADER + len(stored) + 10


@dataclass(frozen=True, slots=True)
class Header:
    """What stands in front of a payload."""

    kind: Kind
    offset: int
    length: int
    cost_ns: int
    mac: bytes
    origin: str
    checksum: bytes


def encode_value(record: Record, raw: bytes, stored: bytes) -> bytes:
    """Header, payload and padding. `raw`: the encoded key, `stored`: the same as LMDB gets it.

    Raises `ValueError` for what no header can say.
    """
    payload = record.payload
    origin = record.origin.encode()
    if len(payload) > MOST_PAYLOAD_BYTES or len(record.mac) > MOST_MAC_BYTES or len(origin) > MOST_ORIGIN_BYTES:
        raise ValueError(
            f"a payload has at most {MOST_PAYLOAD_BYTES} bytes, a MAC {MOST_MAC_BYTES}, an origin {MOST_ORIGIN_BYTES}"
        )
    head = HEADER_BYTES + len(record.mac) + len(origin)
    key_node = _NODE_HEADER + len(stored)
    offset = _up(head - 8) + 8  # in a leaf page the value starts 8 bytes after a multiple of 16
    total = _up(offset + len(payload) - 8) + 8
    if key_node + total > _LARGEST_NODE:
        offset = _up(head)  # on pages of its own it starts at one
        total = max(offset + len(payload), _LARGEST_NODE - key_node + 1)
    fields = _HEADER.pack(
        MAGIC,
        LAYOUT_VERSION,
        record.key.kind,
        0,
        offset,
        len(record.mac),
        len(origin),
        0,
        min(record.cost_ns, (1 << 64) - 1),
        len(payload),
        xxhash.xxh3_128_digest(payload),
    )
    seal = _SEAL.pack(xxhash.xxh3_64_intdigest(fields + record.mac + origin + raw))
    start = (fields + seal + record.mac + origin).ljust(offset, b"\0")
    return b"".join((start, payload, bytes(total - offset - len(payload))))


def _up(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def decode_header(value: memoryview | bytes, raw: bytes) -> Header:
    """The header of a stored value, checked against its key and its length, but not against the payload.

    Raises `HeaderError`.
    """
    if len(value) < HEADER_BYTES:
        raise HeaderError(f"a value of {len(value)} bytes has no header")
    fields = bytes(value[: _HEADER.size])
    magic, version, kind, _, offset, mac_bytes, origin_bytes, _, cost_ns, length, checksum = _HEADER.unpack(fields)
    if magic != MAGIC or version != LAYOUT_VERSION:
        raise HeaderError(f"not a value of layout {LAYOUT_VERSION}")
    end = HEADER_BYTES + mac_bytes + origin_bytes
    if end > offset or offset + length > len(value):
        raise HeaderError("the value is shorter than its header says")
    names = bytes(value[HEADER_BYTES:end])
    (seal,) = _SEAL.unpack_from(value, _HEADER.size)
    if seal != xxhash.xxh3_64_intdigest(fields + names + raw) or kind != raw[0]:
        raise HeaderError("the header is not that of this key")
    try:
        origin = names[mac_bytes:].decode()
    except UnicodeDecodeError as error:
        raise HeaderError("the origin is not UTF-8") from error
    return Header(Kind(kind), offset, length, cost_ns, names[:mac_bytes], origin, checksum)


def is_sound(value: memoryview | bytes, header: Header) -> bool:
    """Whether the payload is what its checksum says."""
    return xxhash.xxh3_128_digest(value[header.offset : header.offset + header.length]) == header.checksum


def decode_record(key: Key, value: memoryview | bytes, header: Header) -> Record:
    """A copy of a stored value."""
    payload = bytes(value[header.offset : header.offset + header.length])
    return Record(key, payload, header.cost_ns, header.mac, header.origin)
