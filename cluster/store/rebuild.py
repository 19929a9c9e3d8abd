"""Building stored mask entries again, with what the store itself holds, to see whether they are what they should be."""

from __future__ import annotations

from gramary.cluster import kernel
from gramary.cluster.records import Key, Kind, Record
from gramary.cluster.store.reader import Reads
from gramary.runtime._core import Compiler


class Rebuilder:
    """`verify(store, rebuild=Rebuilder(store))`: a compiler for each tokenizer stored, units as needed."""

    def __init__(self, store: Reads) -> None:
        self._store = store
        self._compilers: dict[bytes, Compiler | None] = {}
        self._manifests: dict[bytes, Key] | None = None  # one that names the unit

    def __call__(self, record: Record) -> bool | None:
        """Whether a mask entry allows what building it again allows; `None` if tokenizer or unit are not stored."""
        compiler = self._compiler(record.key.tokenizer)
        if compiler is None or not self._install(compiler, record.key.digest):
            return None
        return compiler.verify_entry(record.key.digest, record.key.slot, record.payload)

    def _compiler(self, fingerprint: bytes) -> Compiler | None:
        if fingerprint not in self._compilers:
            blob = self._store.get(Key(Kind.TOKENIZER, fingerprint))
            self._compilers[fingerprint] = None if blob is None else Compiler(kernel.Vocabulary.from_bytes(bytes(blob)))
        return self._compilers[fingerprint]

    def _install(self, compiler: Compiler, unit: bytes) -> bool:
        if self._manifests is None:
            self._manifests = {}
            for key in self._store.keys(Kind.MANIFEST, version=kernel.FORMAT_VERSION):
                blob = self._store.get(key)
                if blob is not None:
                    for digest in kernel.Manifest.parse(bytes(blob)).units:
                        self._manifests.setdefault(digest, key)
        if unit not in self._manifests:
            return False
        key = self._manifests[unit]
        blob = self._store.get(key)
        if blob is None:
            return False
        manifest = bytes(blob)
        units = []
        for digest in compiler.missing_units([manifest]):
            found = self._store.get(Key(Kind.UNIT, digest))
            if found is None:
                return False
            units.append((digest, bytes(found)))
        compiler.install_ahead([(key.digest, manifest)], units)
        return True
