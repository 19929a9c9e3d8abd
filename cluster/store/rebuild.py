"""Building mask entries again, with the units of the store itself, to see whether they are what they should be."""

from __future__ import annotations

import threading

from gramary.cluster import kernel
from gramary.cluster.records import Key, Kind, Record
from gramary.cluster.store.reader import Reads
from gramary.runtime._core import Compiler

CACHE_BYTES = 64 << 20
MOST_TOKENIZERS = 4
MOST_UNITS = 4096


class Rebuilder:
    """Tells whether a mask entry allows what building it again allows. Thread-safe: entries are built in turn.

    `tails`: also entries of tails, which are found in objects only; for that, every manifest of the store is read
    once. For `verify`; a node that samples what peers send leaves them out.
    """

    def __init__(self, store: Reads, *, tails: bool = True) -> None:
        self._store = store
        self._tails = tails
        self._compilers: dict[bytes, Compiler] = {}
        self._manifests: dict[bytes, Key] | None = None  # one that names the unit
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
            asked = (record.key.digest, record.key.slot, record.payload)
            verdict = compiler.verify_entry(*asked, closure=closure)
            if verdict is None and self._tails and self._install(compiler, record.key.digest):
                verdict = compiler.verify_entry(*asked)
            return verdict

    def _compiler(self, fingerprint: bytes) -> Compiler | None:
        known = self._compilers.get(fingerprint)
        if known is None:
            blob = self._store.get(Key(Kind.TOKENIZER, fingerprint))
            if blob is None:
                return None
            if len(self._compilers) >= MOST_TOKENIZERS:
                self._compilers.clear()
            known = Compiler(kernel.Vocabulary.from_bytes(bytes(blob)), cache_bytes=CACHE_BYTES)
            self._compilers[fingerprint] = known
        return known

    def _closure(self, unit: bytes) -> list[tuple[bytes, bytes]] | None:
        """The unit and all that it refers to, from the store."""
        found: dict[bytes, bytes] = {}
        left = [unit]
        while left:
            digest = left.pop()
            if digest in found:
                continue
            blob = self._store.get(Key(Kind.UNIT, digest))
            if blob is None or len(found) >= MOST_UNITS:
                return None
            found[digest] = bytes(blob)
            told = kernel.inspect_unit(found[digest])
            left += [*told["callees"], *told["holes"]]
        return list(found.items())

    def _install(self, compiler: Compiler, unit: bytes) -> bool:
        """Have a source that needs the unit in memory, if one is stored whole."""
        if self._manifests is None:
            self._manifests = {}
            for key in self._store.keys(Kind.MANIFEST, version=kernel.FORMAT_VERSION):
                blob = self._store.get(key)
                if blob is not None:
                    for digest in kernel.Manifest.parse(bytes(blob)).units:
                        self._manifests.setdefault(digest, key)
        source = self._manifests.get(unit)
        blob = None if source is None else self._store.get(source)
        if source is None or blob is None:
            return False
        manifest = bytes(blob)
        units = []
        for digest in compiler.missing_units([manifest]):
            found = self._store.get(Key(Kind.UNIT, digest))
            if found is None:
                return False
            units.append((digest, bytes(found)))
        compiler.install_ahead([(source.digest, manifest)], units)
        return True
