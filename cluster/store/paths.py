"""The files of a store's directory, and how they are replaced: written aside, synced, renamed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from gramary.cluster.store.errors import StoreDamaged, StoreUnavailable
from gramary.cluster.store.layout import LAYOUT_VERSION

LOCK = "LOCK"
"""Locked by the writer for as long as it lives."""
CURRENT = "CURRENT"
"""JSON: layout version, and the name of the live environment's directory."""
WRITER = "WRITER"
"""JSON: the writer that opened the store last: process, PID namespace, boot."""
CLEAN = "CLEAN"
"""There while no writer has the store open, if the last one closed it in order."""
QUARANTINE = "QUARANTINE"
"""JSON: origins whose records are refused."""
BALLAST = "BALLAST"
"""Bytes to let go of when the disk is full, so that there is room to evict."""
SEALED = "sealed"
"""Directory of sealed generations, with a CURRENT of its own: layout version, files from newest to oldest."""
_MOST_BYTES = 1 << 20


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a small JSON file; `None` if it is not there. Raises `StoreDamaged` or `StoreUnavailable`."""
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(_MOST_BYTES))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be read: {error.strerror}", path=str(path)) from error
    except ValueError as error:
        raise StoreDamaged(f"{path} is no JSON: remove the store, it can be built again", path=str(path)) from error
    if not isinstance(found, dict):
        raise StoreDamaged(f"{path} is no JSON object: remove the store, it can be built again", path=str(path))
    return found


def read_current(path: Path) -> dict[str, Any] | None:
    """`read_json` of a CURRENT file, with its layout version checked."""
    found = read_json(path)
    if found is not None and found.get("layout") != LAYOUT_VERSION:
        raise StoreDamaged(
            f"{path} has layout {found.get('layout')!r}, this version reads {LAYOUT_VERSION}: use another directory",
            path=str(path),
        )
    return found


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Replace a file such that readers see the old content or the new, after a crash too."""
    aside = path.with_name(f".{path.name}.new")
    with aside.open("w") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    aside.rename(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make renames in a directory last."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def live_name(path: Path) -> str:
    """Name of the live environment's directory. Raises `StoreUnavailable` where no writer has made one."""
    current = read_current(path / CURRENT)
    if current is None:
        raise StoreUnavailable(f"there is no store at {path}: gramary serve or gramary agent makes one", path=str(path))
    name = current.get("live")
    if not isinstance(name, str) or not name.startswith("live-") or "/" in name:
        raise StoreDamaged(f"{path / CURRENT} names no environment", path=str(path))
    return name


def boot_id() -> str:
    """Of the running kernel; empty where it does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def pid_namespace() -> str:
    """Of this process; empty where it cannot be told."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
