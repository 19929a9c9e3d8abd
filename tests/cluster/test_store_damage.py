"""Files that are not what they were: what is damaged is a miss or an error, never a wrong value and never a crash."""

import json
import os
import random
import shutil
from pathlib import Path

import lmdb
import pytest

from gramary.cluster.store import LiveStore, StoreDamaged, StoreUnavailable, open_reader
from gramary.cluster.store.paths import live_name
from tests.cluster.store_tools import BUDGET, TOKENIZER, digest, entry, payload_of, unit


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
    assert (filled / "live-000001" / "data.mdb").exists()


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
