"""What a record must prove before it is believed, when it comes from outside: a file, or a peer.

A unit's digest and a tokenizer's fingerprint are derived again from their content. That a mask entry or a manifest
belongs to its key does not follow from its content: somebody must vouch for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gramary.cluster import kernel
from gramary.cluster.records import Key, Kind, Record

Check = Callable[[Sequence[Record]], dict[Key, str]]
"""From records to those that must be refused, and why."""


def stranger_check(vouched: Callable[[Record], bool] | None = None) -> Check:
    """A check for records that anybody may have made.

    `vouched`: whether somebody who is trusted says that the entry or manifest is what its key names (its MAC is good);
    without it they are all refused. Records of other format versions cannot be checked here, and are refused.
    """

    def check(records: Sequence[Record]) -> dict[Key, str]:
        bad: dict[Key, str] = {}
        units: list[tuple[bytes, bytes]] = []
        for record in records:
            if record.key.version != kernel.FORMAT_VERSION:
                bad[record.key] = f"format version {record.key.version}, not {kernel.FORMAT_VERSION}"
            elif record.key.kind is Kind.UNIT:
                units.append((record.key.digest, record.payload))
            elif record.key.kind is Kind.TOKENIZER:
                reason = _tokenizer_fault(record)
                if reason:
                    bad[record.key] = reason
            elif vouched is None or not vouched(record):
                bad[record.key] = "nobody vouches for it"
            elif record.key.kind is Kind.MANIFEST:
                try:
                    kernel.Manifest.parse(record.payload)
                except ValueError as error:
                    bad[record.key] = str(error)
        for digest, reason in kernel.verify_units(units):
            bad[Key(Kind.UNIT, digest)] = reason
        return bad

    return check


def _tokenizer_fault(record: Record) -> str:
    try:
        fingerprint = kernel.Vocabulary.from_bytes(record.payload).fingerprint
    except Exception as error:  # whatever is wrong with bytes from outside, they are refused
        return f"not a tokenizer: {error}"
    return "" if fingerprint == record.key.digest else f"its fingerprint is {fingerprint.hex()}"


def manifest_units(payload: bytes) -> list[bytes]:
    """Digests of the units that a manifest names: `children` for `LiveStore`. Raises `ValueError`."""
    return kernel.Manifest.parse(payload).units
