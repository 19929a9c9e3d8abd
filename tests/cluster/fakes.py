"""A kernel that does what the text of its source says, so that workers can be made to fail on purpose.

A source is a JSON object: `units` (names), and at most one of `sleep`, `spin` (seconds), `grow` (bytes), `raise` (an
error's name), `exit` (a status), `kill` (a signal).
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from blake3 import blake3

from gramary.cluster.executor.base import BuildTask, Built, Lowered, LowerTask, Result, Task
from gramary.cluster.executor.errors import UnknownTokenizer
from gramary.cluster.peer import SourceItem
from gramary.compiler import errors


def digest(name: str) -> bytes:
    return blake3(name.encode()).digest()


def source(*units: str, **what: Any) -> SourceItem:
    text = json.dumps({"units": units, **what}).encode()
    return SourceItem(blake3(text).digest(), "fake", "{}", text)


def unit_bytes(name: str) -> bytes:
    return b"unit " + name.encode()


def entries_of(unit: bytes, tokenizer: bytes) -> list[tuple[bytes, bytes, bytes, int]]:
    """Two entries a unit; none for units whose name begins with "-". ("slow" ones take `FakeBench` a moment.)"""
    name = unit.removeprefix(b"unit ")
    if name.startswith(b"-"):
        return []
    return [(blake3(name).digest(), bytes([slot]), b"entry %d of " % slot + name, 1000) for slot in (1, 2)]


class FakeBench:
    def __init__(self) -> None:
        self.tokenizers: set[bytes] = set()
        self.hoard: list[bytearray] = []

    def learn(self, fingerprint: bytes, vocabulary: bytes | Path) -> None:
        data = vocabulary if isinstance(vocabulary, bytes) else vocabulary.read_bytes()
        if blake3(data).digest() != fingerprint:
            raise errors.TokenizerError("not the vocabulary of this fingerprint")
        self.tokenizers.add(fingerprint)

    def run(self, task: Task, seconds: float) -> Result:
        if isinstance(task, LowerTask):
            return self.lower(task, seconds)
        return self.build(task)

    def lower(self, task: LowerTask, seconds: float) -> Lowered:
        started = time.perf_counter_ns()
        what = json.loads(task.source.text)
        if "sleep" in what:
            time.sleep(what["sleep"])
        if "obedient" in what:
            time.sleep(min(seconds, what["obedient"]))
            if seconds < what["obedient"]:
                raise errors.LimitExceeded("too long", limit="seconds", value=seconds)
        if "spin" in what:
            end = time.monotonic() + what["spin"]
            while time.monotonic() < end:
                pass
        if "grow" in what:
            for _ in range(what["grow"] >> 20):
                self.hoard.append(bytearray(os.urandom(1 << 10) * (1 << 10)))
                time.sleep(0.001)
            self.hoard.clear()
        if "raise" in what:
            raise getattr(errors, what["raise"], RuntimeError)("on purpose")
        if "exit" in what:
            os._exit(what["exit"])
        if "kill" in what:
            os.kill(os.getpid(), what["kill"])
            time.sleep(10)
        if "once" in what and not Path(what["once"]).exists():
            Path(what["once"]).touch()
            os._exit(9)
        units = [(digest(name), unit_bytes(name)) for name in what["units"]]
        manifest = json.dumps([d.hex() for d, _ in units]).encode()
        return Lowered(manifest, units, time.perf_counter_ns() - started)

    def build(self, task: BuildTask) -> Built:
        if task.tokenizer not in self.tokenizers:
            raise UnknownTokenizer("not learnt")
        time.sleep(0.05 * sum(b"slow" in task.closure[unit] for unit in task.wanted))
        return Built([e for unit in task.wanted for e in entries_of(task.closure[unit], task.tokenizer)])


def manifest_units(manifest: bytes) -> list[bytes]:
    return [bytes.fromhex(text) for text in json.loads(manifest)]
