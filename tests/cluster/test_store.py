"""The store against a model: what was put is there, in order, aligned, and nothing else."""

import gc
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from gramary.cluster.records import Key, Kind, Record, shard_prefix
from gramary.cluster.store import LiveStore, StoreClosed, StoreLocked, StoreUnavailable, environment, open_reader, seal
from gramary.cluster.store.layout import (
    HeaderError,
    decode_header,
    decode_record,
    encode_value,
    encoded_key,
    is_sound,
    stored_key,
)
from tests.cluster.store_tools import BUDGET, TOKENIZER, digest, entry, payload_of, unit

SLOTS = st.one_of(
    st.binary(min_size=1, max_size=64), st.lists(st.sampled_from(b"\0\1\xff"), min_size=1, max_size=64).map(bytes)
)
DIGESTS = st.sampled_from([digest(number) for number in range(3)])
VERSIONS = st.sampled_from([1, 2])
KEYS = st.one_of(
    st.builds(
        Key, st.sampled_from([Kind.UNIT, Kind.MANIFEST, Kind.TOKENIZER]), DIGESTS, version=st.sampled_from([1, 2])
    ),
    st.builds(Key, st.just(Kind.ENTRY), DIGESTS, DIGESTS, SLOTS, st.sampled_from([1, 2])),
)
RECORDS = st.builds(
    Record,
    KEYS,
    st.integers(0, 9000).map(lambda size: payload_of(size, size)),
    st.integers(0, 1 << 40),
    st.binary(max_size=64),
    st.text(max_size=20),
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LiveStore]:
    with LiveStore(tmp_path / "store", BUDGET) as store:
        yield store


@given(st.lists(KEYS, min_size=2, max_size=20))
def test_stored_keys_keep_the_order(keys: list[Key]) -> None:
    raw = sorted(key.encode() for key in keys)
    stored = [stored_key(one) for one in raw]
    assert stored == sorted(stored)
    assert [encoded_key(one) for one in stored] == raw
    assert len(set(stored)) == len(set(raw))
    assert all(len(one) % 16 == 0 for one in stored)


@given(st.binary(max_size=150))
def test_no_bytes_upset_the_decoding_of_keys(data: bytes) -> None:
    try:
        raw = encoded_key(data)
    except ValueError:
        return
    assert stored_key(raw) == data


@given(RECORDS)
def test_header_round_trip(record: Record) -> None:
    raw = record.key.encode()
    value = memoryview(encode_value(record, raw, stored_key(raw)))
    header = decode_header(value, raw)
    assert is_sound(value, header)
    assert decode_record(record.key, value, header) == record


@given(RECORDS, st.data())
def test_any_changed_byte_is_found(record: Record, data: st.DataObject) -> None:
    raw = record.key.encode()
    value = bytearray(encode_value(record, raw, stored_key(raw)))
    place = data.draw(st.integers(0, len(value) - 1))
    value[place] ^= data.draw(st.integers(1, 255))
    try:
        header = decode_header(memoryview(value), raw)
    except HeaderError:
        return
    if is_sound(memoryview(value), header):  # padding
        assert decode_record(record.key, memoryview(value), header) == record


def test_the_header_belongs_to_its_key() -> None:
    one, other = unit(1), unit(2)
    value = memoryview(encode_value(one, one.key.encode(), stored_key(one.key.encode())))
    with pytest.raises(HeaderError, match="not that of this key"):
        decode_header(value, other.key.encode())


class Model(RuleBasedStateMachine):
    """A writer, its readers (live and sealed), and a dictionary."""

    known = Bundle("known")

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        # Keys name contents, so a reader may be half a second behind a removal; this model puts other contents.
        self.patch.setattr(environment, "EPOCH_SECONDS", 0.0)
        self.directory = Path(tempfile.mkdtemp())
        self.store = LiveStore(self.directory / "store", BUDGET)
        self.reader = open_reader(self.directory / "store")
        self.model: dict[Key, Record] = {}
        self.held: list[tuple[bytes, memoryview]] = []

    @rule(target=known, records=st.lists(RECORDS, min_size=1, max_size=12))
    def put(self, records: list[Record]) -> Key:
        result = self.store.put(records)
        refused = 0
        for record in records:
            there = self.model.setdefault(record.key, record)
            refused += there.payload != record.payload
        assert len(result.refused) == refused
        assert result.stored + result.known + refused == len(records)
        return records[0].key

    @rule(key=known)
    def hold(self, key: Key) -> None:
        blob = self.reader.get(key)
        if blob is not None:
            self.held.append((bytes(blob), blob.view))

    @rule(key=known)
    def remove(self, key: Key) -> None:
        assert self.store.remove([key]) == (self.model.pop(key, None) is not None)

    @rule()
    def compact(self) -> None:
        self.store.compact()
        self.reader._follow_at = 0.0

    @rule()
    def seal(self) -> None:
        seal(self.store)
        with open_reader(self.directory / "store", mode="sealed") as sealed:
            for key, record in self.model.items():
                blob = sealed.get(key)
                assert blob is not None
                assert blob.record() == record

    @rule()
    def reopen(self) -> None:
        self.reader.close()
        self.store.close()
        self.store = LiveStore(self.directory / "store", BUDGET)
        self.reader = open_reader(self.directory / "store")

    @invariant()
    def same(self) -> None:
        assert [key.encode() for key in list(self.reader.keys())] == sorted(key.encode() for key in self.model)
        assert self.reader.missing(list(self.model)) == []
        for key, record in self.model.items():
            blob = self.reader.get(key)
            assert blob is not None
            assert blob.record() == record
            assert len(blob) == len(record.payload)
            assert blob.array.ctypes.data % 16 == 0
            assert not blob.array.flags.writeable
        for first in DIGEST_PAIRS:
            expected = sorted(
                key.encode() for key in self.model if key.encode().startswith(shard_prefix(*first, version=1))
            )
            assert [blob.key.encode() for blob in self.reader.shard(*first, 1)] == expected

    @invariant()
    def held_views_stay(self) -> None:
        assert all(bytes(view) == expected for expected, view in self.held)

    def teardown(self) -> None:
        self.reader.close()
        self.store.close()
        self.held_views_stay()
        self.held.clear()
        self.patch.undo()
        shutil.rmtree(self.directory)


DIGEST_PAIRS = [(digest(one), digest(other)) for one in range(2) for other in range(2)]
TestModel = Model.TestCase
TestModel.settings = settings(
    max_examples=12, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_put_is_idempotent_and_refuses_another_payload(store: LiveStore) -> None:
    record = unit("a")
    assert store.put([record]).stored == 1
    assert store.put([record, record]).known == 2
    other = Record(record.key, b"something else")
    assert store.put([other]).refused == [(record.key, "conflict")]
    blob = store.get(record.key)
    assert blob is not None
    assert bytes(blob) == record.payload
    stats = store.stats()
    assert (stats.stored, stats.known, stats.conflicts) == (1, 2, 1)


def test_a_shard_can_be_resumed(store: LiveStore) -> None:
    records = [entry("u", slot, 3000) for slot in range(600)]
    store.put([*records, entry("other")])
    found = [blob.record() for blob in store.shard(TOKENIZER, digest("u"))]
    assert found == records
    after = records[299].key.encode()
    assert [blob.record() for blob in store.shard(TOKENIZER, digest("u"), after=after)] == records[300:]
    before = min(digest("u"), digest("zzz")) == digest("zzz")
    behind = [blob.record() for blob in store.shard(TOKENIZER, digest("u"), after=entry("zzz").key.encode())]
    assert behind == (found if before else [])
    with pytest.raises(ValueError, match="key"):
        list(store.shard(TOKENIZER, digest("u"), after=b"nonsense"))


def test_keys_by_kind_version_and_tokenizer(store: LiveStore) -> None:
    other = bytes(32)
    old = Record(Key(Kind.UNIT, digest("a"), version=1), b"old format")
    new = Record(Key(Kind.UNIT, digest("a"), version=2), b"new format")
    store.put([old, new, entry("a"), entry("a", tokenizer=other), entry("b", tokenizer=other)])
    assert len(list(store.keys())) == 5
    assert [key.version for key in store.keys(Kind.UNIT)] == [1, 2]
    assert [key.version for key in store.keys(Kind.UNIT, version=2)] == [2]
    assert len(list(store.keys(Kind.ENTRY, tokenizer=other))) == 2
    assert store.get(old.key).record() == old  # type: ignore[union-attr]
    assert store.get(new.key).record() == new  # type: ignore[union-attr]
    assert store.missing([old.key, unit("nothing").key, new.key]) == [unit("nothing").key]


@pytest.mark.parametrize("size", [0, 1, 100, 1900, 1990, 2100, 4096, 70_000])
def test_views_hold_what_they_show(store: LiveStore, size: int) -> None:
    record = unit("a", size)
    store.put([record])
    reader = open_reader(store.path)
    blob = reader.get(record.key)
    assert blob is not None
    views = [blob.view, blob.view[size // 2 :], memoryview(np.asarray(blob.array)[1:][1:])]
    arrays = [np.frombuffer(blob.view, np.uint8), blob.array[3:].view(np.uint8)[2:]] if size > 10 else []
    expected = [bytes(view) for view in views] + [array.tobytes() for array in arrays]
    assert blob.view.readonly
    del blob
    store.remove([record.key])
    for number in range(30):  # would reuse the pages
        store.put([unit(number, max(size, 5000))])
    reader.close()
    store.compact()
    gc.collect()
    assert [bytes(view) for view in views] + [array.tobytes() for array in arrays] == expected


def test_pages_are_free_again_when_views_are_gone(store: LiveStore) -> None:
    """An epoch ends with its last view, without the reader doing anything."""
    reader = open_reader(store.path)
    store.put([unit("a", 50_000)])
    blob = reader.get(unit("a").key)
    assert blob is not None
    assert store.stats().readers == 1
    view = blob.view[7:]
    del blob
    assert store.stats().readers == 1
    del view
    assert store.stats().readers == 0


def test_closing(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = LiveStore(path, BUDGET)
    store.put([unit("a")])
    reader = open_reader(path)
    blob = reader.get(unit("a").key)
    reader.close()
    with pytest.raises(StoreClosed):
        reader.get(unit("a").key)
    store.close()
    store.close()
    with pytest.raises(StoreClosed):
        store.put([unit("b")])
    with pytest.raises(StoreClosed):
        store.get(unit("a").key)
    assert blob is not None
    assert bytes(blob) == unit("a").payload
    with LiveStore(path, BUDGET) as again:  # beside the view that is held
        assert bytes(again.get(unit("a").key)) == unit("a").payload  # type: ignore[arg-type]
        assert bytes(blob) == unit("a").payload


def test_one_writer(store: LiveStore) -> None:
    with pytest.raises(StoreLocked) as error:
        LiveStore(store.path, BUDGET)
    assert error.value.pid is not None
    assert "open_reader" in str(error.value)


def test_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="no store"):
        open_reader(tmp_path / "nothing")
    with pytest.raises(StoreUnavailable, match="no sealed generation"):
        open_reader(tmp_path, mode="sealed")


def test_threads_read_while_one_writes(store: LiveStore) -> None:
    records = [unit(number, 2000 + number) for number in range(300)]
    reader = open_reader(store.path)
    wrong: list[Key] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            for record in records:
                blob = reader.get(record.key)
                if blob is not None and bytes(blob) != record.payload:
                    wrong.append(record.key)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for start in range(0, 300, 10):
        store.put(records[start : start + 10])
        store.remove([records[start].key])
        store.put([records[start]])
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_feed_tells_what_was_committed(tmp_path: Path) -> None:
    with LiveStore(tmp_path, BUDGET, feed_keys=5) as store:
        heard: list[int] = []
        stop = store.feed.listen(heard.append)
        store.put([unit(1), unit(2)])
        store.put([unit(1), unit(3)])
        news = store.watch(0)
        assert (news.keys, news.sequence, news.lost) == ([unit(1).key, unit(2).key, unit(3).key], 3, False)
        assert store.watch(0, most=2).sequence == 2
        assert store.watch(2).keys == [unit(3).key]
        assert store.watch(3).keys == []
        stop()
        store.put([unit(number) for number in range(10, 14)])
        assert heard == [2, 3]
        assert store.watch(0).lost
        assert store.watch(0).sequence == 7
        assert store.watch(99).lost
        assert store.feed.wait(6, 0.0)
        assert not store.feed.wait(7, 0.01)


def test_origins_in_quarantine(tmp_path: Path) -> None:
    with LiveStore(tmp_path, BUDGET) as store:
        liar = Record(unit("a").key, b"x", origin="liar")
        store.put([liar, unit("b")])
        assert store.quarantine("liar") == 1
        assert store.put([liar, unit("c")]).refused == [(liar.key, "quarantined")]
    with LiveStore(tmp_path, BUDGET) as store:
        assert store.quarantined == {"liar"}
        assert store.put([liar]).refused == [(liar.key, "quarantined")]
        store.pardon("liar")
        assert store.put([liar]).stored == 1
        assert {key.digest for key in list(store.keys())} == {digest(name) for name in "abc"}


def test_too_long_things_are_refused(store: LiveStore) -> None:
    for record in (Record(unit("a").key, b"", mac=bytes(65)), Record(unit("a").key, b"", origin="x" * 256)):
        with pytest.raises(ValueError, match="at most"):
            store.put([record])
    assert list(store.keys()) == []
