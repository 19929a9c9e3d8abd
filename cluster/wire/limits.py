"""How large things on the wire may be, and how many of them at once."""

from __future__ import annotations

from dataclasses import dataclass

from gramary.cluster.records import Kind

CHUNK_BYTES = 256 << 10
"""Plain bytes of a payload in one chunk; part of the protocol."""

MESSAGE_BYTES = 1 << 20
"""Largest message; part of the protocol."""

ROOM_BYTES = MESSAGE_BYTES - (64 << 10)
"""What a message is filled up to, so that headers and statuses fit beside the data."""

SHORT_TEXT = 1024
"""Longest text of an error that is sent: errors travel in HTTP/2 trailers, which are small."""


@dataclass(frozen=True, slots=True)
class WireLimits:
    """What a server takes and how much of it at once; a client checks what it receives by the same numbers."""

    unit_bytes: int = 32 << 20
    entry_bytes: int = 8 << 20
    manifest_bytes: int = 8 << 20
    tokenizer_bytes: int = 64 << 20
    source_bytes: int = MESSAGE_BYTES - (128 << 10)
    items: int = 4096
    """Keys, digests or sources in one request."""
    records_per_put: int = 1_000_000
    """Records in one PutShards stream."""

    connections: int = 4096
    calls: int = 4096
    """Calls of every kind at once, over all connections: the last line of defence."""
    calls_per_connection: int = 1024
    reads: int = 256
    """Calls that read at once; the fields below are the same for other kinds of calls."""
    streams: int = 64
    writes: int = 8
    compiles: int = 64
    waits: int = 1024
    watches: int = 256
    queue: int = 512
    """Calls of one kind that wait for their turn; further ones are refused with the advice to come back."""
    retry_after_s: float = 0.5
    """How long that is advised to take."""
    longest_call_s: float = 600.0
    """Deadline of calls that come without one, and the most that others get."""
    idle_message_s: float = 30.0
    """How long a client that streams to the server may stay silent."""
    handshake_s: float = 10.0
    """How long a connection may take to say what it is."""
    idle_connection_s: float = 600.0
    """How long a connection without calls is kept."""

    def payload_bytes(self, kind: Kind) -> int:
        """The largest payload of a kind of value."""
        return {
            Kind.UNIT: self.unit_bytes,
            Kind.ENTRY: self.entry_bytes,
            Kind.MANIFEST: self.manifest_bytes,
            Kind.TOKENIZER: self.tokenizer_bytes,
        }[kind]
