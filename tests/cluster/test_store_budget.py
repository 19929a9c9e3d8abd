"""What is evicted, what is not, and when."""

import itertools
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gramary.cluster.records import Key, Kind, Record
from gramary.cluster.store import LiveStore, Reads, StoreFull, open_reader, seal
from gramary.cluster.store import reader as reading
from gramary.cluster.store.layout import group_of, stored_key
from gramary.cluster.store.ledger import Ledger
from tests.cluster.store_tools import MIB, TOKENIZER, children, digest, entry, manifest, unit


def group(record: Record) -> bytes:
    return group_of(stored_key(record.key.encode()))


def advance(store: LiveStore, seconds: float) -> None:
    store._books._clock_start -= seconds


def kept(store: LiveStore) -> set[Key]:
    return set(store.keys())


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    with LiveStore(tmp_path, 4 * MIB, grace_s=0, cost_bonus_s=0) as store:
        records = [unit(number, 90_000) for number in range(30)]
        for record in records:
            store.put([record])
            advance(store, 10)
        store.touch([records[0].key])
        reader = open_reader(tmp_path)
        assert reader.get(records[1].key) is not None
        store.touch(reader.touched())
        assert reader.touched() == []
        advance(store, 10)
        store.put([unit(number, 90_000) for number in range(100, 112)])
        store.maintain()
        assert store.stats().live_bytes < 0.76 * store.budget_bytes
        gone = set(records) - {record for record in records if record.key in kept(store)}
        assert gone == set(records[2 : 2 + len(gone)])
        assert gone


def test_the_dear_stay_longer(tmp_path: Path) -> None:
    with LiveStore(tmp_path, 4 * MIB, grace_s=0) as store:
        cheap = [entry(number, 1, 90_000, cost_ns=1_000) for number in range(20)]
        dear = [entry(-number, 1, 90_000, cost_ns=2_000_000_000) for number in range(1, 11)]
        store.put(dear)
        advance(store, 60)
        store.put(cheap)
        store.put([entry(100 + number, 1, 90_000) for number in range(12)])
        store.maintain()
        assert {record.key for record in dear} <= kept(store)
        assert not {record.key for record in cheap} <= kept(store)


def test_manifests_pin_their_units_and_shards(tmp_path: Path) -> None:
    with LiveStore(tmp_path, 3 * MIB, children=children, grace_s=0, cost_bonus_s=0) as store:
        pinned = [unit("a", 200_000), entry("a", 1, 200_000), entry("a", 2, 100_000)]
        source = manifest("source", [digest("a"), digest("shared")])
        store.put([*pinned, source, unit("shared", 100_000)])
        for number in range(60):
            advance(store, 10)
            store.touch([source.key])
            store.put([unit(number, 90_000)])
            store.maintain()
        assert {record.key for record in [*pinned, source]} <= kept(store)
        other = manifest("other", [digest("shared")])
        store.put([other])
        for number in range(60):  # nobody uses the first source any more
            advance(store, 10)
            store.touch([other.key])
            store.put([unit(1000 + number, 90_000)])
            store.maintain()
        left = kept(store)
        assert not {record.key for record in [*pinned, source]} & left
        assert {other.key, unit("shared").key} <= left
    with LiveStore(tmp_path, 3 * MIB, children=children, grace_s=0) as store:
        store.evict(MIB, grace_s=0)
        assert store.ledger.is_pinned(group(unit("shared")))


def test_tokenizers_stay_while_they_have_entries(tmp_path: Path) -> None:
    tokenizer = Record(Key(Kind.TOKENIZER, TOKENIZER), bytes(500_000))
    with LiveStore(tmp_path, 4 * MIB, grace_s=0, cost_bonus_s=0) as store:
        store.put([tokenizer])
        for number in range(50):
            advance(store, 10)
            store.put([entry(number, 1, 90_000)])
            store.maintain()
        assert tokenizer.key in kept(store)
        store.remove([key for key in kept(store) if key.kind is Kind.ENTRY])
        store.evict(MIB, grace_s=0)
        assert kept(store) == set()


def test_victims_have_a_grace_period(tmp_path: Path) -> None:
    with LiveStore(tmp_path, 4 * MIB, grace_s=60) as store:
        records = [unit(number, 90_000) for number in range(43)]
        store.put(records)
        store.maintain()
        assert len(kept(store)) == 43
        assert store.stats().marked_bytes > 0
        saved = next(record for record in records if group(record) in store.ledger.marked)
        store.touch([saved.key])
        advance(store, 61)
        store.maintain()
        assert store.stats().live_bytes < 0.8 * store.budget_bytes
        assert saved.key in kept(store)


def test_without_room_a_put_evicts_at_once_or_fails(tmp_path: Path) -> None:
    with LiveStore(tmp_path, 2 * MIB, children=children, grace_s=3600) as store:
        store.put([unit(number, 90_000) for number in range(20)])
        store.put([unit(100 + number, 90_000) for number in range(10)])
        assert store.stats().live_bytes <= store.budget_bytes
        assert unit(109).key in kept(store)
        with pytest.raises(StoreFull, match="budget"):
            store.put([unit("huge", 3 * MIB)])
        assert store.stats().full == 1
        assert store.put([unit("small")]).stored == 1


def test_last_uses_survive_a_restart_and_clocks_that_jump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.repeat(2_000_000_000.0)
    monkeypatch.setattr(time, "time", lambda: next(clock))
    with LiveStore(tmp_path, 4 * MIB, grace_s=0, cost_bonus_s=0) as store:
        records = [unit(number, 90_000) for number in range(30)]
        for record in records:
            store.put([record])
            advance(store, 1)
        store.touch([records[0].key])
    clock = itertools.repeat(1_000.0)  # the battery of the clock is empty
    with LiveStore(tmp_path, 4 * MIB, grace_s=0, cost_bonus_s=0) as store:
        assert store.clock() >= 2_000_000_000
        advance(store, 10)
        store.put([unit("new", 90_000)])
        store.evict(500_000, grace_s=0)
        left = kept(store)
        assert records[0].key in left
        assert unit("new").key in left
        assert records[1].key not in left
        assert records[-1].key in left


def test_what_is_recorded_of_groups_is_what_is_stored(tmp_path: Path) -> None:
    with LiveStore(tmp_path, 64 * MIB) as store:
        store.put([entry(number % 7, number, 10 + 97 * number) for number in range(100)])
        store.remove([entry(number % 7, number).key for number in range(0, 100, 3)])
        recorded = {one: (figures.size, figures.count) for one, figures in store.ledger.groups.items()}
    with LiveStore(tmp_path, 64 * MIB) as store:
        assert {one: (figures.size, figures.count) for one, figures in store.ledger.groups.items()} == recorded
        assert sum(count for _, count in recorded.values()) == store.stats().values
        size = sum(size for size, _ in recorded.values())
        assert size <= store.stats().live_bytes <= 1.5 * size + 100_000


def test_compaction_gives_room_back(tmp_path: Path) -> None:
    with LiveStore(tmp_path, 64 * MIB) as store:
        store.put([unit(number, 90_000) for number in range(200)])
        reader = open_reader(tmp_path)
        view = reader.get(unit(7).key).view  # type: ignore[union-attr]
        store.remove([unit(number).key for number in range(150)])
        before = store.stats().file_bytes
        assert store.compact() > 0.6 * before
        assert bytes(view) == unit(7, 90_000).payload
        assert store.get(unit(199).key) is not None
        reader._follow_at = 0.0
        assert reader.get(unit(199).key) is not None
        assert reader.reads.switches == 1
        assert len(list(tmp_path.glob("live-*"))) == 1


def test_scans_go_on_while_the_store_is_compacted(tmp_path: Path) -> None:
    with LiveStore(tmp_path, 64 * MIB) as store:
        records = [unit(number, 300) for number in range(1500)]
        store.put(records)
        expected = sorted(record.key.encode() for record in records)
        reader = open_reader(tmp_path)
        scans = [store.keys(), reader.keys()]
        found = [[next(scan) for _ in range(300)] for scan in scans]
        store.compact()
        reader._follow_at = 0.0
        assert reader.get(records[0].key) is not None  # follows
        seal(store)
        for scan, keys in zip(scans, found, strict=True):
            keys.extend(scan)
            assert [key.encode() for key in keys] == expected
        reader.close()


def test_threads_read_while_the_store_is_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "FOLLOW_SECONDS", 0.0)
    errors: list[BaseException] = []
    done = threading.Event()
    records = [unit(number, 3000) for number in range(40)]

    def read(store: Reads) -> None:
        try:
            while not done.is_set():
                for record in records:
                    assert bytes(store.get(record.key) or b"") == record.payload
                assert store.missing([record.key for record in records]) == []
                assert store.header(records[0].key) is not None
                if isinstance(store, LiveStore):
                    store.stats()
        except BaseException as error:
            errors.append(error)

    with LiveStore(tmp_path, 64 * MIB) as store, open_reader(tmp_path) as reader:
        store.put(records)
        threads = [threading.Thread(target=read, args=(one,)) for one in (store, store, reader, reader)]
        for thread in threads:
            thread.start()
        for number in range(8):
            store.compact()
            store.put([unit(100 + number, 3000)])
            seal(store, full=number % 2 == 0)
        done.set()
        for thread in threads:
            thread.join()
    assert errors == []


def test_a_reader_of_the_same_process_outlives_the_writer(tmp_path: Path) -> None:
    store = LiveStore(tmp_path, 64 * MIB)
    store.put([unit(1)])
    assert store.get(unit(1).key) is not None
    reader = open_reader(tmp_path)
    assert reader.get(unit(1).key) is not None
    store.close()
    assert bytes(reader.get(unit(1).key) or b"") == unit(1).payload
    with LiveStore(tmp_path, 64 * MIB) as again:
        again.put([unit(2)])
        assert reader.get(unit(2).key) is not None
    reader.close()


NAMES = st.integers(0, 5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("entry"), NAMES, st.integers(1, 9)),
        st.tuples(st.just("unit"), NAMES, st.integers(1, 9)),
        st.tuples(st.just("manifest"), NAMES, st.lists(NAMES, max_size=3)),
        st.tuples(st.just("touch"), NAMES, st.just(0)),
        st.tuples(st.just("evict"), NAMES, st.integers(0, 9000)),
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_no_eviction_breaks_a_manifest(steps: list[tuple[str, int, object]]) -> None:
    """Whatever happens: what a manifest that is there needs is not evicted, and sizes add up."""
    ledger = Ledger()
    needs: dict[bytes, set[bytes]] = {}
    for now, (what, name, value) in enumerate(steps):
        record = {"entry": entry(name), "manifest": manifest(name, [])}.get(what, unit(name))
        if what in ("entry", "unit", "manifest"):
            ledger.add(group(record), 100 * (value if isinstance(value, int) else 1), 5, now)
        if what == "manifest":
            units = [digest(one) for one in value]  # type: ignore[attr-defined]
            ledger.pin(group(record), units)
            needs[group(record)] = {group(one) for number in value for one in (unit(number), entry(number))}  # type: ignore[attr-defined]
        elif what == "touch":
            ledger.touch(group(record), now)
        elif what == "evict":
            assert isinstance(value, int)
            ledger.mark(value, now)
            for victim in ledger.due(now, 3):
                figures = ledger.groups[victim]
                assert not any(victim in needs[one] for one in needs if one in ledger.groups)
                for _ in range(figures.count):
                    ledger.drop(victim, figures.size // figures.count, 0)
                assert victim not in ledger.groups
                needs.pop(victim, None)
        assert set(ledger.marked) <= set(ledger.groups)


def test_one_eviction_takes_a_manifest_with_what_it_pins(tmp_path: Path) -> None:
    with LiveStore(tmp_path, 4 * MIB, children=children, grace_s=0) as store:
        store.put([manifest("m", [digest("a")]), unit("a", 90_000), entry("a", 1, 90_000)])
        store.evict(4 * MIB, grace_s=0)
        assert kept(store) == set()
