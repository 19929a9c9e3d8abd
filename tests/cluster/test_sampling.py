"""Samples of what peers send are built again, from the units of the node's own store."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

from gramary.cluster.kernel import Lowering, Source
from gramary.cluster.peer import PeerError
from gramary.cluster.records import Key, Kind, Record
from gramary.cluster.store import LiveStore
from gramary.cluster.store.rebuild import Rebuilder
from gramary.compiler import Compiler, Tokenizer

SCHEMA = '{"type": "object", "properties": {"when": {"type": "string", "format": "date"}, "n": {"enum": [1, 22, 333]}}}'


def test_true_and_false_entries_are_told_apart(tmp_path: Path) -> None:
    vocabulary = Tokenizer.from_bytes().vocabulary
    _, units = Lowering().lower(Source("json_schema", SCHEMA))
    built = Compiler(vocabulary).core.build_entries(units, [digest for digest, _ in units])
    records = [
        Record(Key(Kind.ENTRY, unit, vocabulary.fingerprint, slot), data, cost) for unit, slot, data, cost in built
    ]
    with LiveStore(tmp_path, 64 << 20) as store:
        sample = Rebuilder(store, tails=False)
        assert sample(records[0]) is None, "nothing is stored to build it from"
        store.put([Record(Key(Kind.TOKENIZER, vocabulary.fingerprint), vocabulary.to_bytes())])
        assert sample(records[0]) is None
        store.put([Record(Key(Kind.UNIT, digest), data) for digest, data in units])
        verdicts = [sample(record) for record in records]
        assert True in verdicts
        assert False not in verdicts
        true = [record for record, verdict in zip(records, verdicts, strict=True) if verdict]
        other = next(r for r in true if r.payload != true[0].payload)
        assert sample(replace(true[0], payload=other.payload)) is False
        assert sample(replace(true[0], payload=b"nonsense")) is False
        assert sample(Record(Key(Kind.UNIT, units[0][0]), units[0][1])) is None


def test_errors_of_peers_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(PeerError("10.0.0.1:7171", "too slow", retryable=False)))
    assert (error.peer, error.reason, error.retryable) == ("10.0.0.1:7171", "too slow", False)
