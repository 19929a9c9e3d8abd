"""Who writes a store, and whether what the last writer left can be trusted."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gramary.cluster.store import paths
from gramary.cluster.store.environment import Environment
from gramary.cluster.store.errors import StoreDamaged, StoreLocked
from gramary.cluster.store.layout import LAYOUT_VERSION
from gramary.cluster.store.structure import check_structure

log = logging.getLogger(__name__)

CheckAt = Literal["dirty", "always", "never"]
"""When a store's file is verified as it is opened: after an unclean end, always, never."""


@dataclass
class Opened:
    """The environment to write to."""

    environment: Environment
    wiped: bool
    """What was there was not sound, and was thrown away."""
    scrub: bool
    """The machine went down with the store open: pages may be missing, so every checksum is to be checked."""


class Claim:
    """The writer's lock on a store's directory. Raises `StoreLocked` if another writer has it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path / paths.LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.drop()
            pid = self.told(paths.WRITER).get("pid")
            raise StoreLocked(
                f"{path} has a writer (process {pid or 'unknown'}): read it with open_reader, or stop that one",
                path=str(path),
                pid=pid if isinstance(pid, int) else None,
            ) from error

    def drop(self) -> None:
        """Let go of the lock; in a forked child, of the copy of it."""
        handle, self._file = self._file, -1
        if handle >= 0:
            os.close(handle)

    def told(self, name: str) -> dict[str, Any]:
        """What one of the small files says; nothing if it is not there, or damaged."""
        try:
            return paths.read_json(self.path / name) or {}
        except StoreDamaged as error:
            log.warning("%s", error)
            return {}

    def open(self, check: CheckAt, map_bytes: int) -> Opened:
        """Find the live environment, verify it as `check` says, or make a new one.

        Raises `StoreDamaged` for a directory of another layout, which is left alone.
        """
        current = paths.read_current(self.path / paths.CURRENT)
        name = paths.live_name(self.path) if current is not None else ""
        clean = bool(self.told(paths.CLEAN))
        crashed = not clean and self.told(paths.WRITER).get("boot") != paths.boot_id()
        for stray in self.path.glob("live-*"):
            if stray.name != name:
                shutil.rmtree(stray, ignore_errors=True)
        there = bool(name) and (self.path / name / "data.mdb").exists()
        wiped = False
        if there and (check == "always" or (check == "dirty" and not clean)):
            problems = check_structure(self.path / name / "data.mdb")
            if problems:
                log.error("%s is not sound (%s): starting with an empty one", self.path / name, problems[0])
                there, wiped = False, True
        if not there:
            name = self._make(name, map_bytes)
        (self.path / paths.CLEAN).unlink(missing_ok=True)
        paths.write_json(
            self.path / paths.WRITER,
            {"pid": os.getpid(), "pid_namespace": paths.pid_namespace(), "boot": paths.boot_id(), "time": time.time()},
        )
        try:
            environment = Environment.open(self.path / name, writable=True, map_bytes=map_bytes)
        except StoreDamaged as error:
            log.error("%s; starting with an empty one", error)
            there, wiped = False, True
            name = self._make(name, map_bytes)
            environment = Environment.open(self.path / name, writable=True, map_bytes=map_bytes)
        return Opened(environment, wiped, there and check != "never" and (check == "always" or crashed))

    def _make(self, old: str, map_bytes: int) -> str:
        name = next_name(old)
        shutil.rmtree(self.path / name, ignore_errors=True)
        (self.path / name).mkdir()
        Environment.open(self.path / name, writable=True, map_bytes=map_bytes).close()
        self.switch(name)
        if old:
            shutil.rmtree(self.path / old, ignore_errors=True)
        return name

    def switch(self, name: str) -> None:
        """Make an environment the one that readers open."""
        paths.write_json(self.path / paths.CURRENT, {"layout": LAYOUT_VERSION, "live": name})

    def mark_clean(self) -> None:
        """What is there was synced, and nobody writes any more."""
        paths.write_json(self.path / paths.CLEAN, {"time": time.time()})

    def quarantine(self) -> set[str]:
        """Origins that nothing is taken from."""
        found = self.told(paths.QUARANTINE).get("origins")
        return {origin for origin in found if isinstance(origin, str)} if isinstance(found, list) else set()


def next_name(name: str) -> str:
    """Of the environment after the one with this name."""
    number = name.removeprefix("live-")
    return f"live-{int(number) + 1 if number.isdigit() else 1:06}"
