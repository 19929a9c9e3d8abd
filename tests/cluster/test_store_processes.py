"""The store among processes that are killed and forked: what was acknowledged stays, and nobody reads a wrong byte."""

import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from gramary.cluster.store import LiveStore, StoreLocked, open_reader
from tests.cluster.store_tools import BUDGET, MIB, finish, payload_of, start, unit

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
