"""No room: a full map, a full disk, writes that fail in the middle and folders that cannot be written."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gramary.cluster.records import Key, Kind, Record
from gramary.cluster.store import DiskFull, LiveStore, StoreFull, StoreUnavailable
from gramary.cluster.store.room import Room
from tests.cluster.store_tools import BUDGET, MIB, digest, entry, unit


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "none", place], capture_output=True).returncode:
        pytest.skip("this sandbox mounts no tmpfs")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_a_full_map_leaves_everything_readable(tmp_path: Path) -> None:
    with LiveStore(tmp_path, BUDGET, map_bytes=4 * MIB, grace_s=3600, children=lambda _: [digest("u")]) as store:
        pinned = [entry("u", slot, 100_000) for slot in range(20)]
        store.put([Record(Key(Kind.MANIFEST, digest("m")), b"m"), *pinned])
        with pytest.raises(StoreFull):
            store.put([entry("u", 100 + number, 100_000) for number in range(50)])
        assert store.stats().full == 1
        for record in pinned:
            assert bytes(store.get(record.key)) == record.payload  # type: ignore[arg-type]
        assert store.remove([record.key for record in pinned[:10]]) == 10
        assert store.put([unit("fits again", 100_000)]).stored == 1
    with LiveStore(tmp_path, BUDGET, map_bytes=64 * MIB) as store:  # a larger one adopts it
        assert store.put([unit("large", 8 * MIB)]).stored == 1


def test_a_full_disk_leaves_everything_readable(small_disk: Path) -> None:
    store = LiveStore(small_disk / "store", BUDGET, min_free_bytes=2 * MIB, grace_s=3600)
    records = [unit(number, 200_000) for number in range(40)]
    store.put(records)
    filler = small_disk / "filler"
    with filler.open("wb") as file:  # somebody else fills the disk
        os.posix_fallocate(file.fileno(), 0, store.room.free_disk_bytes())
    assert store.room.free_disk_bytes() < 100_000
    with pytest.raises(DiskFull) as error:
        store.put([unit(1000 + number, 300_000) for number in range(60)])
    assert error.value.free_bytes is not None
    assert store.stats().disk_full == 1
    for record in records:
        assert bytes(store.get(record.key)) == record.payload  # type: ignore[arg-type]
    assert store.put([unit(2000, 300_000)]).stored == 1  # in the place of what is evicted
    assert store.counters.evicted > 0
    there = [record for record in records if store.get(record.key) is not None]
    assert store.remove([record.key for record in there[:20]]) == 20
    filler.unlink()
    store.maintain()
    assert store.put([unit("again", 200_000)]).stored == 1
    store.close()
    with LiveStore(small_disk / "store", BUDGET, min_free_bytes=2 * MIB, check="always") as store:
        assert store.counters.wiped == 0
        assert store.get(unit("again").key) is not None


def test_writes_that_fail_in_the_middle(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fills up between the look at it and the write: what was acknowledged is there, and there is a way on."""
    store = LiveStore(small_disk / "store", BUDGET, min_free_bytes=0)
    with monkeypatch.context() as patch:
        patch.setattr(Room, "free_disk_bytes", lambda _: 1 << 40)
        acknowledged = fill(store)
        assert 50 < len(acknowledged) < 240
        for record in acknowledged:
            assert bytes(store.get(record.key)) == record.payload  # type: ignore[arg-type]
        assert store.remove([record.key for record in acknowledged[:19]]) == 19
        assert store.remove([acknowledged[19].key]) == 1  # LMDB uses pages again two commits after they became free
        again = [unit(("again", number), 100_000) for number in range(10)]
        assert store.put(again).stored == 10
    store.close()
    with LiveStore(small_disk / "store", BUDGET, min_free_bytes=0, check="always") as store:
        assert store.counters.wiped == 0
        for record in [*acknowledged[20:], *again]:
            assert bytes(store.get(record.key)) == record.payload  # type: ignore[arg-type]


def fill(store: LiveStore) -> list[Record]:
    """Put until there is no room; what was acknowledged."""
    acknowledged: list[Record] = []
    for number in range(1000):
        record = unit(number, 100_000)
        try:
            store.put([record])
        except DiskFull:
            assert store.counters.disk_full == 1
            return acknowledged
        acknowledged.append(record)
    raise AssertionError("the disk is never full")


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreUnavailable, match="cannot be written"):
        LiveStore(tmp_path / "file" / "store", BUDGET)
