"""What the store's tests share: records, and processes that are started, watched and killed."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from gramary.cluster.records import Key, Kind, Record

TOKENIZER = bytes(range(32))

MIB = 1 << 20
BUDGET = 256 * MIB
"""Of a store that is to keep everything."""


def digest(name: object) -> bytes:
    """32 bytes that depend on `name`."""
    return hashlib.sha256(repr(name).encode()).digest()


def payload_of(name: object, size: int) -> bytes:
    """`size` bytes that depend on `name`: whoever reads a value can tell whether it is right."""
    return hashlib.shake_128(repr(name).encode()).digest(size)


def unit(name: object, size: int = 100) -> Record:
    return Record(Key(Kind.UNIT, digest(name)), payload_of(name, size), 1000, origin="here")


def entry(name: object, slot: int = 0, size: int = 100, tokenizer: bytes = TOKENIZER, cost_ns: int = 1000) -> Record:
    key = Key(Kind.ENTRY, digest(name), tokenizer, slot.to_bytes(4, "big"))
    return Record(key, payload_of((name, slot), size), cost_ns, b"m" * 32, "here")


def manifest(name: object, units: list[bytes]) -> Record:
    return Record(Key(Kind.MANIFEST, digest(name)), b"".join(units))


def children(payload: bytes) -> list[bytes]:
    """Of a manifest as `manifest` makes it."""
    return [payload[start : start + 32] for start in range(0, len(payload), 32)]


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Run Python code in a process of its own, with `sys.argv[1:]` = arguments."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=root
    )


def finish(process: subprocess.Popen[str], given: str = "") -> str:
    """Wait for the end of a process of which lines were read; the rest of what it printed."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        process.stdin.write(given)
        process.stdin.close()
        out, err = process.stdout.read(), process.stderr.read()
    assert process.returncode == 0, f"{process.returncode}: {err}"
    return out
