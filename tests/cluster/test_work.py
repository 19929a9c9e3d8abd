"""The real kernel behind the executors."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gramary.cluster.executor import Executor, Failed, InProcess, Lowered, ProcessPool
from gramary.cluster.executor.errors import decode_error
from gramary.cluster.kernel import Manifest, Source, Vocabulary, verify_units
from gramary.cluster.peer import SourceItem
from gramary.compiler.errors import InvalidSchema, UnsatisfiableSchema

SCHEMAS = [
    '{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"}},"required":["a"]}',
    '{"type":"array","items":{"type":"number"}}',
    '{"enum":["x","y"]}',
]


def item(text: str, kind: str = "json_schema") -> SourceItem:
    source = Source(kind, text)
    return SourceItem(source.key, source.kind, source.options, source.text)


def vocabulary() -> Vocabulary:
    words = [bytes([i]) for i in range(256)] + [b'{"', b'":', b"ab", b"true", b'", "']
    return Vocabulary.from_tokens([*words, b"</s>"], [len(words)])


async def work(executor: Executor) -> tuple[list[Any], list[Any]]:
    known = vocabulary()
    await executor.register_tokenizer(known.fingerprint, known.to_bytes())
    sources = [item(text) for text in SCHEMAS]
    sources += [item("{"), item('{"type":"string","minLength":3,"maxLength":2}'), item("a+b?", "regex")]
    results = await executor.lower(sources)
    entries = []
    for result in results:
        if isinstance(result, Lowered):
            wanted = [digest for digest, _ in result.units]
            entries.append(await executor.build(known.fingerprint, dict(result.units), wanted))
    await executor.close()
    return results, entries


@pytest.mark.parametrize("make", [InProcess, ProcessPool])
def test_units_and_entries(make: Any) -> None:
    results, entries = asyncio.run(work(make(2)))
    good = [result for result in results if isinstance(result, Lowered)]
    assert [isinstance(result, Lowered) for result in results] == [True, True, True, False, False, True]
    for result in good:
        assert [digest for digest, _ in result.units] == Manifest.parse(result.manifest).units
        assert verify_units(result.units) == []
        assert result.cost_ns > 0
    bad = [decode_error(result.error) for result in results if isinstance(result, Failed)]
    assert [type(error) for error in bad] == [InvalidSchema, UnsatisfiableSchema]
    assert all(len(records) > 0 for records in entries)
    for records, result in zip(entries, good, strict=True):
        assert {record.key.digest for record in records} <= {digest for digest, _ in result.units}
    again, same = asyncio.run(work(InProcess(1)))
    assert [r.units for r in again if isinstance(r, Lowered)] == [r.units for r in good]
    assert [[r.payload for r in records] for records in same] == [[r.payload for r in records] for records in entries]
