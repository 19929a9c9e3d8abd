"""The store among processes that are killed, forked and contained, and on disks that are full or lie."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import lmdb
import pytest

from gramary.cluster.records import Key, Kind, Record
from gramary.cluster.store import (
    DiskFull,
    LiveStore,
    SealedStore,
    StoreDamaged,
    StoreFull,
    StoreLocked,
    StoreUnavailable,
    open_reader,
    seal,
)
from gramary.cluster.store.paths import live_name
from gramary.cluster.store.room import Room
from tests.cluster.store_tools import TOKENIZER, digest, entry, payload_of, start, unit

BUDGET = 1 << 28
MIB = 1 << 20

WRITER = """
import sys
from gramary.cluster.store import LiveStore
from tests.cluster.store_tools import unit
first = int(sys.argv[2])
with LiveStore(sys.argv[1], 1 << 28, sync_every_s=0.05) as store:
    for number in range(first, first + 100_000):
        store.put([unit((number, part), 10 + 7919 * number % 60_000) for part in range(3)])
        if number % 5 == 4:
            store.remove([unit((number - 2, 1)).key])
        print(number, flush=True)
"""

READER = """
import sys, time
from gramary.cluster.store import open_reader
from tests.cluster.store_tools import payload_of, unit
seconds, seed = float(sys.argv[2]), int(sys.argv[3])
reader = open_reader(sys.argv[1])
print("ready", flush=True)
ends, hits, wrong, held = time.monotonic() + seconds, 0, 0, []
number = seed
while time.monotonic() < ends:
    number = (number * 1103515245 + 12345) % 400
    for part in range(3):
        name = (number, part)
        blob = reader.get(unit(name).key)
        if blob is not None:
            hits += 1
            wrong += bytes(blob) != payload_of(name, len(blob))
            held.append((name, blob.view, time.monotonic()))
    while held and (held[0][2] < time.monotonic() - 0.7 or len(held) > 200):
        name, view, _ = held.pop(0)
        wrong += bytes(view) != payload_of(name, len(view))
    if number % 7 == 0:
        for blob in reader.blobs(list(reader.keys())[:20]):
            hits += blob is not None
print(hits, wrong, reader.reads.damaged)
"""


def last_line(process: "subprocess.Popen[str]") -> int:
    """Kill a process and return the last number that it printed whole."""
    process.send_signal(signal.SIGKILL)
    assert process.stdout is not None
    lines = [line for line in process.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
    _, err = process.communicate()
    assert lines, err
    return int(lines[-1])


def finish(process: "subprocess.Popen[str]", given: str = "") -> str:
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


def read_lines(process: "subprocess.Popen[str]", count: int) -> None:
    """Wait until a process has printed so many lines."""
    assert process.stdout is not None
    for _ in range(count):
        assert process.stdout.readline(), process.communicate()[1]


def test_nothing_acknowledged_is_lost_when_the_writer_is_killed(tmp_path: Path) -> None:
    first, dice = 0, random.Random(1)
    acknowledged: list[tuple[int, int]] = []
    for _ in range(4):
        writer = start(WRITER, tmp_path, first)
        read_lines(writer, 1)
        time.sleep(0.1 + 0.3 * dice.random())
        acknowledged.append((first, last_line(writer)))
        first = acknowledged[-1][1] + 10
        with open_reader(tmp_path) as reader:
            check_acknowledged(reader, acknowledged)
    with LiveStore(tmp_path, BUDGET) as store:
        assert store.counters.wiped == 0
        assert store.scrub() == 0
        check_acknowledged(store, acknowledged)


def check_acknowledged(store: object, acknowledged: list[tuple[int, int]]) -> None:
    for first, last in acknowledged:
        for number in range(first + 1, last + 1):
            for part in (0, 2):
                blob = store.get(unit((number, part)).key)  # type: ignore[attr-defined]
                assert blob is not None, number
                assert bytes(blob) == payload_of((number, part), 10 + 7919 * number % 60_000)


def test_readers_beside_a_writer_that_deletes_compacts_and_dies(tmp_path: Path) -> None:
    LiveStore(tmp_path, BUDGET).close()
    readers = [start(READER, tmp_path, 2, seed) for seed in range(2)]
    victim = start(READER, tmp_path, 60, 9)
    writer = start(WRITER, tmp_path, 0)
    read_lines(writer, 30)
    for reader in [*readers, victim]:
        read_lines(reader, 1)
    writer.kill()
    writer.communicate()
    with LiveStore(tmp_path, BUDGET, check="never") as store:
        for number in range(200, 330):
            store.put([unit((number, part), 20_000) for part in range(3)])
            store.remove([unit((number - 10, part)).key for part in range(3)])
            if number % 40 == 0:
                store.compact()
            if number == 230:
                victim.kill()
                victim.wait()
            store.maintain()
        results = [finish(reader) for reader in readers]
        assert store.counters.compactions > 2
        victim.communicate()
        store.maintain()
        assert store.stats().readers == 0
    for out in results:
        hits, wrong, damaged = map(int, out.split())
        assert hits > 100
        assert (wrong, damaged) == (0, 0)


def test_a_dead_reader_does_not_hold_pages_for_ever(tmp_path: Path) -> None:
    with LiveStore(tmp_path, BUDGET) as store:
        store.put([unit("a", 100_000)])
        holder = start(
            "import sys, time\n"
            "from gramary.cluster.store import open_reader\n"
            "from tests.cluster.store_tools import unit\n"
            "blob = open_reader(sys.argv[1]).get(unit('a').key)\n"
            "print(len(blob), flush=True)\n"
            "time.sleep(60)\n",
            tmp_path,
        )
        assert holder.stdout is not None
        assert holder.stdout.readline() == "100000\n"
        for number in range(40):
            store.put([unit(number, 100_000)])
            store.remove([unit(number).key])
        assert store.stats().reader_lag > 40
        held = store.stats().file_bytes
        assert held > 4 * MIB
        holder.kill()
        holder.communicate()
        store.maintain()
        assert store.counters.stale_readers == 1
        for number in range(40):
            store.put([unit(number, 100_000)])
            store.remove([unit(number).key])
        assert store.stats().file_bytes <= held + MIB


FORK = """
import os, sys
from gramary.cluster.store import LiveStore, StoreClosed, StoreUnavailable, open_reader
from tests.cluster.store_tools import unit, payload_of
path, case = sys.argv[1], sys.argv[2]
reader = open_reader(path)
if case != "unopened":
    assert bytes(reader.get(unit("a").key)) == payload_of("a", 100_000)
blob = reader.get(unit("a").key) if case == "holding" else None
view = blob.view if blob is not None else None
child = os.fork()
if child == 0:
    try:
        if case == "holding":
            try:
                blob.view
                raise AssertionError("the parent's blob was readable")
            except StoreClosed:
                pass
            try:
                reader.get(unit("a").key)
                raise AssertionError("opened beside what the parent holds")
            except StoreUnavailable as error:
                assert "fork" in str(error), error
        else:
            assert bytes(reader.get(unit("a").key)) == payload_of("a", 100_000)
            held = reader.get(unit("a").key)
            assert open_reader(path).get(unit("a").key) is not None
        del blob, view
        code = 0
    except BaseException as error:
        print(repr(error), flush=True)
        code = 1
    if case == "unopened":
        os._exit(code)
    sys.exit(code)  # with all that the interpreter finalizes at its end
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print("child", code, flush=True)
sys.stdin.readline()  # the writer works meanwhile
if view is not None:
    assert bytes(view) == payload_of("a", 100_000), "overwritten under the parent's view"
assert bytes(reader.get(unit("b").key)) == payload_of("b", 50)
print("done", flush=True)
"""


@pytest.mark.parametrize("case", ["unopened", "opened", "holding"])
def test_a_forked_child_opens_its_own(tmp_path: Path, case: str) -> None:
    with LiveStore(tmp_path, BUDGET) as store:
        store.put([unit("a", 100_000)])
        parent = start(FORK, tmp_path, case)
        assert parent.stdout is not None
        line = parent.stdout.readline()
        assert line == "child 0\n", line + parent.communicate()[1]
        if case == "holding":  # the child's end must not have cleared the parent's slot
            assert store.stats().readers == 1
        store.remove([unit("a").key])
        store.put([unit("b", 50)])
        for number in range(60):
            store.put([unit(number, 100_000)])
            store.remove([unit(number).key])
        assert finish(parent, "\n") == "done\n"


def test_a_writer_is_no_writer_after_a_fork(tmp_path: Path) -> None:
    code = """
import os, sys
from gramary.cluster.store import LiveStore, StoreClosed, StoreLocked, open_reader
from tests.cluster.store_tools import unit
store = LiveStore(sys.argv[1], 1 << 28)
store.put([unit("a")])
child = os.fork()
if child == 0:
    for act in (lambda: store.put([unit("b")]), lambda: store.get(unit("a").key), store.stats):
        try:
            act()
            os._exit(1)
        except StoreClosed:
            pass
    try:
        LiveStore(sys.argv[1], 1 << 28)
        os._exit(2)
    except StoreLocked:
        pass
    if open_reader(sys.argv[1]).get(unit("a").key) is None:
        os._exit(3)
    store.close()
    sys.exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
store.put([unit("c")])
store.close()
"""
    out, err = start(code, tmp_path).communicate()
    assert out == "0\n", err
    with LiveStore(tmp_path, BUDGET) as store:
        assert store.missing([unit(name).key for name in "abc"]) == [unit("b").key]


def test_two_writers(tmp_path: Path) -> None:
    writer = start(WRITER, tmp_path, 0)
    read_lines(writer, 1)
    with pytest.raises(StoreLocked) as error:
        LiveStore(tmp_path, BUDGET)
    assert error.value.pid == writer.pid
    writer.kill()
    writer.communicate()
    LiveStore(tmp_path, BUDGET).close()


# Files that are not what they were


def data_file(path: Path) -> Path:
    return path / live_name(path) / "data.mdb"


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    with LiveStore(tmp_path, BUDGET) as store:
        store.put([unit(number, 50 + 3 * number) for number in range(400)])
        store.put([entry("u", slot, 30_000) for slot in range(20)])
    return tmp_path


def test_a_truncated_file_is_not_mapped(filled: Path) -> None:
    os.truncate(data_file(filled), data_file(filled).stat().st_size // 2)
    with pytest.raises(StoreDamaged, match="truncated"):
        open_reader(filled).get(unit(1).key)
    with LiveStore(filled, BUDGET) as store:
        assert store.counters.wiped == 1
        assert list(store.keys()) == []
        assert store.put([unit(1)]).stored == 1
    with open_reader(filled) as reader:
        assert reader.get(unit(1).key) is not None


@pytest.mark.parametrize("content", [b"", b"garbage" * 10_000, bytes(100_000)])
def test_a_file_that_is_no_store(filled: Path, content: bytes) -> None:
    data_file(filled).write_bytes(content)
    with pytest.raises(StoreDamaged):
        open_reader(filled).get(unit(1).key)
    with LiveStore(filled, BUDGET) as store:
        assert store.counters.wiped == 1
        assert store.put([unit(1)]).stored == 1


def test_an_lmdb_file_of_somebody_else(filled: Path) -> None:
    data_file(filled).unlink()
    with lmdb.open(str(data_file(filled).parent), map_size=1 << 20) as other, other.begin(write=True) as txn:
        txn.put(b"key", b"value")
    with pytest.raises(StoreDamaged):
        open_reader(filled).get(unit(1).key)
    with LiveStore(filled, BUDGET) as store:
        assert store.put([unit(1)]).stored == 1


def test_another_layout_is_left_alone(filled: Path) -> None:
    (filled / "CURRENT").write_text(json.dumps({"layout": 2, "live": "live-000001"}))
    with pytest.raises(StoreDamaged, match="layout 2"):
        LiveStore(filled, BUDGET)
    with pytest.raises(StoreDamaged, match="layout 2"):
        open_reader(filled)
    assert data_file_of(filled, "live-000001").exists()


def data_file_of(path: Path, name: str) -> Path:
    return path / name / "data.mdb"


@pytest.mark.parametrize("name", ["CURRENT", "WRITER", "QUARANTINE"])
@pytest.mark.parametrize("content", ["", "[]", '{"live": 7, "layout": 1}', '{"origins": 7, "pid": "x", "layout": 1}'])
def test_small_files_that_say_nonsense(filled: Path, name: str, content: str) -> None:
    (filled / name).write_text(content)
    try:
        with open_reader(filled) as reader:
            reader.get(unit(1).key)
    except (StoreDamaged, StoreUnavailable):
        pass
    if name == "CURRENT":
        with pytest.raises(StoreDamaged):
            LiveStore(filled, BUDGET)
    else:
        with LiveStore(filled, BUDGET) as store:
            assert store.missing([unit(1).key]) == []


def test_flipped_bits_are_misses_and_are_removed(filled: Path) -> None:
    target = entry("u", 3, 30_000)
    data = bytearray(data_file(filled).read_bytes())
    at = data.find(target.payload)
    data[at + 12_345] ^= 4
    data_file(filled).write_bytes(data)
    reader = open_reader(filled)
    assert reader.get(target.key) is None
    assert [blob.key.slot[-1] for blob in reader.shard(TOKENIZER, digest("u"))] == [
        slot for slot in range(20) if slot != 3
    ]
    assert reader.reads.damaged == 2
    reported = reader.damaged()
    assert reported == [target.key]
    reader.close()
    with LiveStore(filled, BUDGET) as store:
        assert store.recheck([*reported, unit(1).key]) == 1  # a reader may be wrong
        assert store.missing([target.key, unit(1).key]) == [target.key]
        assert store.put([target]).stored == 1
        assert store.counters.damaged == 1


def test_a_put_heals_what_is_damaged(filled: Path) -> None:
    target = entry("u", 3, 30_000)
    data = bytearray(data_file(filled).read_bytes())
    data[data.find(target.payload)] ^= 1
    data_file(filled).write_bytes(data)
    with LiveStore(filled, BUDGET) as store:
        store.put([target])
        assert store.counters.healed == 1
        assert bytes(store.get(target.key)) == target.payload  # type: ignore[arg-type]


def test_flips_anywhere_serve_nothing_wrong(filled: Path) -> None:
    """The file's structure is checked before it is mapped, every payload before it is given out."""
    good = data_file(filled).read_bytes()
    expected = {unit(number, 50 + 3 * number).key: payload_of(number, 50 + 3 * number) for number in range(400)}
    for seed in range(6):
        dice = random.Random(seed)
        data = bytearray(good)
        for _ in range(1 + seed):
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        path = filled / f"flipped{seed}"
        shutil.copytree(filled, path, ignore=shutil.ignore_patterns("flipped*"))
        data_file(path).write_bytes(data)
        with LiveStore(path, BUDGET, check="always") as store:
            for key, payload in expected.items():
                blob = store.get(key)
                assert blob is None or bytes(blob) == payload


# No room


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


def test_sealed_generations_alone_can_be_carried(tmp_path: Path) -> None:
    with LiveStore(tmp_path / "store", BUDGET) as store:
        store.put([unit(1)])
        seal(store)
    shutil.copytree(tmp_path / "store" / "sealed", tmp_path / "image" / "sealed")
    with open_reader(tmp_path / "image") as reader:
        assert reader.mode == "sealed"
        assert bytes(reader.get(unit(1).key)) == unit(1).payload  # type: ignore[arg-type]


# Other containers

CONTAINER = """
import json, os, sys, time
from gramary.cluster.store import open_reader
from tests.cluster.store_tools import payload_of, unit
reader = open_reader(sys.argv[1])
held = [(number, reader.get(unit(number).key).view) for number in range(50)]
print(reader.mode, os.getpid(), flush=True)
sys.stdin.readline()
wrong = sum(bytes(view) != payload_of(number, 20_000) for number, view in held)
ends = time.monotonic() + 10
while reader.get(unit("new").key) is None and time.monotonic() < ends:
    time.sleep(0.05)
new = reader.get(unit("new").key)
print(wrong, new is not None and bytes(new) == payload_of("new", 100), reader.reads.damaged, flush=True)
"""


def contained(path: Path, code: str, *, read_only: bool = True) -> "subprocess.Popen[str]":
    """Run code as process 1 of a PID namespace, with the store mounted read-only."""
    root = Path(__file__).parents[2]
    script = "mount -t proc proc /proc && "
    if read_only:
        script += f"mount --bind {path} {path} && mount -o remount,ro,bind {path} && "
    script += 'exec "$0" -c "$1" "$2"'
    command = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "sh",
        "-c",
        script,
        sys.executable,
        code,
        str(path),
    ]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=root
    )


@pytest.fixture(scope="module")
def containers() -> None:
    tried = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "sh", "-c", "mount -t proc proc /proc"], capture_output=True
    )
    if tried.returncode:
        pytest.skip("this sandbox gives no PID and mount namespaces (unshare)")


@pytest.mark.usefixtures("containers")
def test_other_containers_read_sealed_generations(tmp_path: Path) -> None:
    with LiveStore(tmp_path, BUDGET) as store:
        store.put([unit(number, 20_000) for number in range(50)])
        assert seal(store)
        readers = [contained(tmp_path, CONTAINER) for _ in range(3)]
        for reader in readers:
            assert reader.stdout is not None
            line = reader.stdout.readline()
            assert line == "sealed 1\n", reader.communicate()[1]
        store.remove([unit(number).key for number in range(50)])
        store.put([unit("new", 100), *(unit(100 + number, 20_000) for number in range(50))])
        store.compact()
        seal(store, full=True)  # unlinks what they have mapped
        assert len(list((tmp_path / "sealed").glob("*.mdb"))) == 1
        for reader in readers:
            assert finish(reader, "\n") == "0 True 0\n"


@pytest.mark.usefixtures("containers")
def test_without_a_sealed_generation_they_are_told_so(tmp_path: Path) -> None:
    code = """
import sys
from gramary.cluster.store import StoreUnavailable, open_reader
for mode in ("auto", "live"):
    try:
        open_reader(sys.argv[1], mode=mode)
    except StoreUnavailable as error:
        print(error)
"""
    with LiveStore(tmp_path, BUDGET):
        out, err = contained(tmp_path, code, read_only=False).communicate()
        assert out.count("the writer runs in another PID namespace") == 2, err
        assert "no sealed generation" in out


def test_generations_are_deltas_until_a_full_one_pays(tmp_path: Path) -> None:
    with LiveStore(tmp_path, BUDGET) as store:
        store.put([unit(number, 50_000) for number in range(100)])
        assert seal(store)
        assert not seal(store)
        sealed = SealedStore(tmp_path)
        sizes = []
        for number in range(12):
            store.put([unit(1000 + number, 5_000)])
            seal(store)
            sizes.append(len(list((tmp_path / "sealed").glob("*.mdb"))))
            sealed._follow_at = 0.0
            assert bytes(sealed.get(unit(1000 + number).key)) == payload_of(1000 + number, 5_000)  # type: ignore[arg-type]
        assert sizes == [2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4]
        assert list(sealed.keys()) == list(store.keys())
        store.remove([unit(1003).key])  # and it must not be there any more for other containers either
        seal(store)
        assert len(list((tmp_path / "sealed").glob("*.mdb"))) == 1
        sealed._follow_at = 0.0
        assert sealed.get(unit(1003).key) is None
    with LiveStore(tmp_path, BUDGET) as store:  # which keys are sealed is not known any more
        seal(store)
        assert len(list((tmp_path / "sealed").glob("*.mdb"))) == 1
