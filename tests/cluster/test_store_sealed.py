"""Sealed generations: what containers without the live store read, and what is kept of them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gramary.cluster.store import LiveStore, SealedStore, open_reader, seal
from tests.cluster.store_tools import BUDGET, finish, payload_of, unit

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


def test_sealed_generations_alone_can_be_carried(tmp_path: Path) -> None:
    with LiveStore(tmp_path / "store", BUDGET) as store:
        store.put([unit(1)])
        seal(store)
    shutil.copytree(tmp_path / "store" / "sealed", tmp_path / "image" / "sealed")
    with open_reader(tmp_path / "image") as reader:
        assert reader.mode == "sealed"
        assert bytes(reader.get(unit(1).key)) == unit(1).payload  # type: ignore[arg-type]


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
