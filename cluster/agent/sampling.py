"""Building again what a peer says it built, and comparing: for the verifier's samples."""

from __future__ import annotations

import threading

from gramary.cluster.kernel import Vocabulary, inspect_unit
from gramary.cluster.records import Key, Kind, Record
from gramary.cluster.store import Reads
from gramary.runtime._core import Compiler

CACHE_BYTES = 64 << 20
MOST_TOKENIZERS = 4
MOST_UNITS = 4096


class Sampler:
    """Tells whether a mask entry allows what building it again allows. Thread-safe: samples are taken in turn."""

    def __init__(self, store: Reads) -> None:
        self._store = store
        self._compilers: dict[bytes, Compiler] = {}
        self._lock = threading.Lock()

    def __call__(self, record: Record) -> bool | None:
        """`None`: it cannot be told here, since the tokenizer or a unit is not stored."""
        if record.key.kind is not Kind.ENTRY:
            return None
        with self._lock:
            compiler = self._compiler(record.key.tokenizer)
            closure = self._closure(record.key.digest)
            if compiler is None or closure is None:
                return None
            return compiler.verify_entry(record.key.digest, record.key.slot, record.payload, closure=closure)

    def _compiler(self, fingerprint: bytes) -> Compiler | None:
        known = self._compilers.get(fingerprint)
        if known is None:
            blob = self._store.get(Key(Kind.TOKENIZER, fingerprint))
            if blob is None:
                return None
            if len(self._compilers) >= MOST_TOKENIZERS:
                self._compilers.clear()
            known = Compiler(Vocabulary.from_bytes(bytes(blob)), cache_bytes=CACHE_BYTES)
            self._compilers[fingerprint] = known
        return known

    def _closure(self, unit: bytes) -> list[tuple[bytes, bytes]] | None:
        """The unit and all that it refers to, from the store."""
        found: dict[bytes, bytes] = {}
        open_: list[bytes] = [unit]
        while open_:
            digest = open_.pop()
            if digest in found:
                continue
            blob = self._store.get(Key(Kind.UNIT, digest))
            if blob is None or len(found) >= MOST_UNITS:
                return None
            found[digest] = bytes(blob)
            told = inspect_unit(found[digest])
            open_ += [*told["callees"], *told["holes"]]
        return list(found.items())
