"""Records as chunks and chunks as records: packing, bounds, hashes.

Nothing that arrives is believed: a chunk is checked against its header, a header against the limits before anything is
allocated for it, and a payload against its hash before it is handed on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from blake3 import blake3

from gramary.cluster.records import DIGEST_BYTES, Key, Kind, Record
from gramary.cluster.wire.errors import CorruptData, InvalidRequest
from gramary.cluster.wire.limits import CHUNK_BYTES, ROOM_BYTES, WireLimits
from gramary.cluster.wire.pb import values_pb2 as pb

try:
    import zstandard
except ImportError:  # the core install: payloads travel as they are
    zstandard = None  # type: ignore[assignment]

BLAKE3 = pb.DIGEST_FUNCTION_BLAKE3
IDENTITY = pb.COMPRESSOR_IDENTITY
ZSTD = pb.COMPRESSOR_ZSTD
ZSTD_LEVEL = 1
WORTH_PACKING = 512
"""Payloads below this many bytes are not compressed: a frame's overhead eats the gain."""
HEADER_ROOM = 512
"""What a chunk takes beside its data, at most."""
MOST_MAC_BYTES = 32

_local = threading.local()


def compressors() -> list[pb.Compressor.ValueType]:
    """What this process packs and unpacks."""
    return [IDENTITY] if zstandard is None else [IDENTITY, ZSTD]


def accepts_zstd(accept: Iterable[int]) -> bool:
    """Whether chunks for somebody who takes `accept` may be compressed here."""
    return zstandard is not None and ZSTD in accept


def check_digest_function(value: int) -> None:
    """Refuse a digest function that is not spoken here."""
    if value not in (pb.DIGEST_FUNCTION_UNSPECIFIED, BLAKE3):
        raise InvalidRequest(
            f"the digest function {value} is not known; use DIGEST_FUNCTION_BLAKE3", field="digest_function"
        )


def decode_keys(encoded: Sequence[bytes], place: str, limits: WireLimits) -> list[Key]:
    """Keys of a request; raises `InvalidRequest`."""
    check_count(len(encoded), place, limits)
    try:
        return [Key.decode(data) for data in encoded]
    except ValueError as error:
        raise InvalidRequest(f"{place} has what is no key: {error}", field=place) from None


def check_digests(digests: Sequence[bytes], place: str, limits: WireLimits) -> list[bytes]:
    """Digests of a request; raises `InvalidRequest`."""
    check_count(len(digests), place, limits)
    for digest in digests:
        if len(digest) != DIGEST_BYTES:
            raise InvalidRequest(f"{place} has a digest of {len(digest)} bytes; digests have 32", field=place)
    return list(digests)


def check_count(count: int, place: str, limits: WireLimits) -> None:
    """Refuse a request with too many items."""
    if count > limits.items:
        raise InvalidRequest(f"{place} has {count} items; send at most {limits.items} in one request", field=place)


def _write_header(header: pb.RecordHeader, record: Record) -> None:
    header.key = record.key.encode()
    header.payload.hash = blake3(record.payload).digest()
    header.payload.size_bytes = len(record.payload)
    header.cost_ns = record.cost_ns
    header.mac = record.mac


def _parts(record: Record, zstd: bool, offset: int) -> Iterator[tuple[pb.RecordChunk, bytes | memoryview]]:
    """A record in pieces, from `offset` of its payload on: chunks without their data, and the data."""
    payload = record.payload if len(record.payload) <= CHUNK_BYTES else memoryview(record.payload)
    first = True
    while first or offset < len(payload):
        data: bytes | memoryview = payload[offset : offset + CHUNK_BYTES]
        chunk = pb.RecordChunk(offset=offset, plain_bytes=len(data))
        if first:
            _write_header(chunk.header, record)
            first = False
        offset += len(data)
        data, chunk.compressor = _packed(data, zstd)
        yield chunk, data


def chunks(record: Record, *, zstd: bool, offset: int = 0) -> Iterator[pb.RecordChunk]:
    """A record in pieces, from `offset` of its payload on."""
    for chunk, data in _parts(record, zstd, offset):
        chunk.data = bytes(data)
        yield chunk


def write_single(chunk: pb.RecordChunk, record: Record, *, zstd: bool) -> bool:
    """Write a record as its only chunk, in place in its message; `False` if it is larger than one."""
    if len(record.payload) > CHUNK_BYTES:
        return False
    _write_header(chunk.header, record)
    chunk.plain_bytes = len(record.payload)
    data, chunk.compressor = _packed(record.payload, zstd)
    chunk.data = bytes(data)
    return True


def _packed(data: bytes | memoryview, zstd: bool) -> tuple[bytes | memoryview, pb.Compressor.ValueType]:
    if zstd and len(data) >= WORTH_PACKING:
        packed = _packer().compress(data)
        if len(packed) < len(data):
            return packed, ZSTD
    return data, IDENTITY


def messages(records: Iterable[Record], *, field: int, zstd: bool, offset: int = 0) -> Iterator[bytes]:
    """Records as serialized messages that have nothing but chunks, in `field`: about 256 KiB each, so that small
    records share one.

    Serialized by hand: protobuf would copy every payload four times on the way, and pages of fresh memory are what
    streaming costs. `offset`: where in the first payload to begin.
    """
    tag = _varint(field << 3 | 2)
    pieces: list[bytes | memoryview] = []
    size = 0
    for record in records:
        for chunk, data in _parts(record, zstd, offset):
            head = chunk.SerializeToString() + _DATA_TAG + _varint(len(data))
            if pieces and (size + len(head) + len(data) > ROOM_BYTES or size >= CHUNK_BYTES):
                yield b"".join(pieces)
                pieces, size = [], 0
            pieces += (tag, _varint(len(head) + len(data)), head, data)
            size += len(head) + len(data) + len(tag) + 4
        offset = 0
    if pieces:
        yield b"".join(pieces)


_DATA_TAG = bytes([pb.RecordChunk.DATA_FIELD_NUMBER << 3 | 2])


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _packer() -> zstandard.ZstdCompressor:
    packer: zstandard.ZstdCompressor | None = getattr(_local, "packer", None)
    if packer is None:
        packer = _local.packer = zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_content_size=True)
    return packer


def _unpacker() -> zstandard.ZstdDecompressor:
    unpacker: zstandard.ZstdDecompressor | None = getattr(_local, "unpacker", None)
    if unpacker is None:
        unpacker = _local.unpacker = zstandard.ZstdDecompressor(max_window_size=1 << 23)
    return unpacker


def unpack(chunk: pb.RecordChunk) -> bytes:
    """A chunk's plain bytes; raises `CorruptData`. Never allocates more than a chunk may have."""
    if chunk.plain_bytes > CHUNK_BYTES:
        raise CorruptData(f"a chunk of {chunk.plain_bytes} bytes; chunks have at most {CHUNK_BYTES}", reason="size")
    data = chunk.data
    if chunk.compressor == ZSTD:
        if zstandard is None:
            raise CorruptData("a chunk is compressed by zstd, which is not installed here", reason="compressor")
        try:
            if zstandard.frame_content_size(data) != chunk.plain_bytes:
                raise CorruptData("a zstd frame does not have the size that its chunk says", reason="size")
            data = _unpacker().decompress(data, max_output_size=CHUNK_BYTES, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise CorruptData(f"a chunk is no zstd frame: {error}", reason="compressor") from None
    elif chunk.compressor not in (IDENTITY, pb.COMPRESSOR_UNSPECIFIED):
        raise CorruptData(f"the compressor {chunk.compressor} is not known", reason="compressor")
    if len(data) != chunk.plain_bytes:
        raise CorruptData(f"a chunk has {len(data)} bytes and says {chunk.plain_bytes}", reason="size")
    return data


@dataclass(slots=True)
class Partial:
    """A record of which a beginning arrived."""

    key: Key
    hash: bytes
    size: int
    cost_ns: int
    mac: bytes
    pieces: list[bytes] = field(default_factory=list)
    held: int = 0
    """Bytes of `pieces`."""

    def corrupt(self, message: str, reason: str) -> CorruptData:
        """What is wrong with it, as an error."""
        return CorruptData(message, key=self.key.encode().hex(), reason=reason)


def held_bytes(partial: Partial | None) -> int:
    """How much of a record arrived."""
    return 0 if partial is None else partial.held


class Assembler:
    """Puts records together from the chunks of one stream. Holds at most one payload. Not thread-safe."""

    def __init__(self, limits: WireLimits, *, resume: Partial | None = None) -> None:
        self._limits = limits
        self._resume = resume
        self.partial: Partial | None = None
        """What is not complete yet; a stream that is resumed goes on with it."""

    def feed(self, chunk: pb.RecordChunk) -> Record | None:
        """Take the next chunk; returns the record that it completed. After a `CorruptData` the stream is useless."""
        if chunk.HasField("header"):
            if self.partial is not None:
                raise CorruptData("a record began before the one before it was complete", reason="order")
            self.partial = self._begin(chunk)
        partial = self.partial
        if partial is None:
            raise CorruptData("a chunk came without its record's header", reason="order")
        if chunk.offset != partial.held:
            raise partial.corrupt(f"a chunk begins at {chunk.offset}, not at {partial.held}", "order")
        data = unpack(chunk)
        partial.held += len(data)
        if partial.held > partial.size:
            raise partial.corrupt(f"more than the {partial.size} bytes announced arrived", "size")
        if partial.held < partial.size:
            if len(data) != CHUNK_BYTES:
                raise partial.corrupt(f"a chunk of {len(data)} bytes that is not the last", "size")
            partial.pieces.append(data)
            return None
        payload = b"".join((*partial.pieces, data)) if partial.pieces else data
        self.partial = None
        if blake3(payload).digest() != partial.hash:
            raise partial.corrupt("a payload does not have the hash announced", "hash")
        return Record(partial.key, payload, partial.cost_ns, partial.mac)

    def _begin(self, chunk: pb.RecordChunk) -> Partial:
        head = chunk.header
        try:
            key = Key.decode(head.key)
        except ValueError as error:
            raise CorruptData(f"a record's key is none: {error}", reason="key") from None
        most = self._limits.payload_bytes(key.kind)
        if head.payload.size_bytes > most:
            raise CorruptData(
                f"a payload of {head.payload.size_bytes} bytes; those of kind {key.kind.name} have at most {most}",
                key=head.key.hex(),
                reason="size",
            )
        if len(head.payload.hash) != DIGEST_BYTES:
            raise CorruptData("a payload's hash has not 32 bytes", key=head.key.hex(), reason="hash")
        if len(head.mac) > MOST_MAC_BYTES:
            raise CorruptData("a MAC has more than 32 bytes", key=head.key.hex(), reason="mac")
        new = Partial(key, head.payload.hash, head.payload.size_bytes, head.cost_ns, head.mac)
        resume, self._resume = self._resume, None
        if chunk.offset and resume is not None:
            if (resume.key, resume.hash, resume.size) != (new.key, new.hash, new.size):
                raise CorruptData("a resumed record is not the one that broke off", key=head.key.hex(), reason="resume")
            new.pieces, new.held = resume.pieces, resume.held
        return new

    def finish(self) -> None:
        """The stream ended; raises `CorruptData` if it ended within a record."""
        if self.partial is not None:
            raise CorruptData("the stream ended within a record", key=self.partial.key.encode().hex(), reason="end")


def read_single(chunk: pb.RecordChunk, limits: WireLimits, *, wanted: Key | None = None) -> Record:
    """A record that came as its only chunk; `wanted`: the key that was asked for."""
    assembler = Assembler(limits)
    record = assembler.feed(chunk)
    if record is None:
        raise CorruptData("a record is not whole", reason="end")
    if wanted is not None and record.key != wanted:
        raise CorruptData(
            f"asked for {wanted.encode().hex()}, got another value", key=record.key.encode().hex(), reason="key"
        )
    return record


def kind_of(value: int, place: str) -> Kind:
    """A kind of value in a request."""
    try:
        return Kind(value)
    except ValueError:
        raise InvalidRequest(f"{place} has the kind {value}, which is not known", field=place) from None
