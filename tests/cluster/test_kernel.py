"""Units, manifests and mask entries as bytes: what goes out comes in as the same, and lies are found."""

import json
from typing import Any

import numpy as np
import pytest

from gramary.cluster.kernel import Lowering, Manifest, Source, inspect_unit, verify_units
from gramary.compiler import Compiler, InvalidSchema, Tokenizer, TokenizerError, Vocabulary

RECURSIVE = {
    "$ref": "#/$defs/tree",
    "$defs": {
        "tree": {
            "type": "object",
            "properties": {
                "children": {"type": "array", "items": {"$ref": "#/$defs/leaf"}},
                "name": {"type": "string"},
            },
        },
        "leaf": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "string", "maxLength": 9}]},
    },
}
SCHEMAS: list[Any] = [
    True,
    {"type": "string", "minLength": 2, "maxLength": 300},
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", 1, None]}}, "required": ["b"]},
    {"type": "array", "items": {"type": "string", "format": "date"}, "maxItems": 40},
    RECURSIVE,
    {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    {"type": "object", "properties": {"a": {"type": "integer"}}, "minProperties": 3},
]
Units = list[tuple[bytes, bytes]]


def lowered(schema: Any, **options: Any) -> tuple[Source, bytes, Units]:
    source = Source("json_schema", json.dumps(schema), **options)
    return (source, *Lowering().lower(source))


def compilers() -> tuple[Any, Any]:
    tokens = Tokenizer.from_bytes()
    return Compiler(tokens).core, Compiler(tokens).core


@pytest.mark.parametrize("order", ["declared", "any"])
@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda s: json.dumps(s)[:40])
def test_a_source_goes_from_one_process_to_another(schema: Any, order: str) -> None:
    source, data, units = lowered(schema, property_order=order)
    manifest = Manifest.parse(data)
    assert [d for d, _ in units] == manifest.units
    assert manifest.root in manifest.units
    assert manifest.to_bytes() == data
    assert verify_units(units) == []
    here, there = compilers()
    assert here.missing_units([data]) == manifest.units
    assert [s.key for s in here.missing_sources([source])] == [source.key]
    here.install([(source, data)], units)
    assert here.missing_units([data]) == []
    assert here.missing_sources([source]) == []
    ours = here.compile_json_schema(source.text, property_order=order)
    theirs = there.compile_json_schema(source.text, property_order=order)
    assert here.stats()["source_misses"] == 0
    assert ours.digest == theirs.digest
    assert here.export(source) == (data, units)


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [(SCHEMAS[-2], '["a", "b"]', '["a", "a"]'), (SCHEMAS[-1], '{"a": 1, "b": 2, "c": 3}', '{"a": 1, "b": 2, "b": 3}')],
)
def test_strings_stay_distinct_elsewhere(schema: Any, good: str, bad: str) -> None:
    source, data, units = lowered(schema)
    here, _ = compilers()
    here.install([(source, data)], units)
    grammar = here.compile_json_schema(source.text)
    assert here.stats()["source_misses"] == 0
    for text, whole in ((good, True), (bad, False)):
        matcher = grammar.matcher()
        assert (matcher.accept_bytes(text) and matcher.is_complete()) == whole


def test_sources_are_at_hand_before_their_text_is_seen() -> None:
    here, _ = compilers()
    for schema in SCHEMAS:
        source, data, units = lowered(schema)
        here.install_ahead([(source.key, data)], units)
        assert here.missing_sources([source]) == []
        assert here.compile_json_schema(source.text).digest
    assert here.stats()["source_misses"] == 0
    assert here.stats()["sources"] == len(SCHEMAS)


def test_keys_tell_sources_apart() -> None:
    text = json.dumps(SCHEMAS[2])
    keys = {
        Source("json_schema", text).key,
        Source("json_schema", text, property_order="any").key,
        Source("json_schema", text, whitespace="compact").key,
        Source("json_schema", text, lenient=True).key,
        Source("json_schema", text + " ").key,
        Source("regex", text).key,
    }
    assert len(keys) == 6
    source = Source("json_schema", text, property_order="any")
    again = Source.from_parts(source.kind, source.options, source.text)
    assert again.key == source.key
    # The same on every machine: a change here loses every stored manifest, so raise FORMAT_VERSION or
    # LOWERING_VERSION with it.
    assert Source("regex", "a+").key.hex() == "9b02b363ee13d93fb5bc679c71f944e7092ccd3991fb8043f55e836074d7e47e"
    with pytest.raises(ValueError, match="no kind of source"):
        Source.from_parts("poem", "{}", b"")
    with pytest.raises(ValueError, match="options"):
        Source.from_parts("json_schema", '{"colour": 1}', b"")


@pytest.mark.parametrize("schema", [RECURSIVE, SCHEMAS[-1], SCHEMAS[-2]], ids=["recursive", "names", "items"])
def test_a_changed_unit_is_found(schema: Any) -> None:
    _, _, units = lowered(schema)
    for i, (digest, data) in enumerate(units):
        for at in range(0, len(data), max(1, len(data) // 40)):
            bad = bytearray(data)
            bad[at] ^= 0x10
            changed = [*units[:i], (digest, bytes(bad)), *units[i + 1 :]]
            assert digest in [d for d, _ in verify_units(changed)], (i, at)


def test_a_unit_under_anothers_digest_is_found() -> None:
    _, _, units = lowered(SCHEMAS[2])
    (first, a), (second, b) = units[0], units[-1]
    assert {d for d, _ in verify_units([(first, b), (second, a)])} == {first, second}
    assert verify_units([(bytes(32), b"nonsense"), (first, a)])[0][0] == bytes(32)


def test_each_unit_proves_itself() -> None:
    # Also one of a circle, whose other members may be with other nodes.
    _, _, units = lowered(RECURSIVE)
    assert all(verify_units([unit]) == [] for unit in units)


def test_install_is_all_or_nothing() -> None:
    source, data, units = lowered(SCHEMAS[2])
    here, _ = compilers()
    with pytest.raises(ValueError, match="neither given nor in memory"):
        here.install([(source, data)], units[:-1])
    with pytest.raises(ValueError, match="another digest"):
        here.install([(source, data)], [(units[0][0], units[1][1]), *units[1:]])
    with pytest.raises(ValueError, match="not a manifest"):
        here.install([(source, data[:-1])], units)
    assert here.missing_units([data]) == Manifest.parse(data).units
    assert here.missing_sources([source]) != []
    here.install([(source, data)], units)


def test_errors_of_sources_are_those_of_the_compiler() -> None:
    with pytest.raises(InvalidSchema):
        Lowering().lower(Source("json_schema", '{"type": "strin"}'))


def walk(grammar: Any, text: str) -> list[bytes]:
    matcher, rows = grammar.matcher(), []
    for char in text:
        row = np.zeros((1, 9), dtype=np.int32)
        matcher.fill_bitmask(row)
        rows.append(row.tobytes())
        assert matcher.accept_bytes(char)
    return rows


TEXT = '{"children": [{"name": "x"}, "abc"], "name": "y\\n", "other": [1.5e3, null]}'


def test_entries_go_from_one_process_to_another() -> None:
    source, data, units = lowered(RECURSIVE)
    here, there = compilers()
    here.record_entries(1000)
    expected = walk(here.compile_json_schema(source.text), TEXT)
    taken = here.take_entries()
    assert taken
    assert here.take_entries() == []
    assert all(here.verify_entry(unit, slot, entry) for unit, slot, entry, _ in taken)
    assert [e[:3] for e in taken if e not in here.export_entries([e[0]])] == []
    there.install([(source, data)], units)
    assert there.offer_entries([e[:3] for e in taken]) == len(taken)
    assert walk(there.compile_json_schema(source.text), TEXT) == expected
    stats = there.stats()
    assert stats["entries_offered"] == len(taken)
    assert stats["entries_refused"] == 0


def test_bad_entries_are_refused_and_built() -> None:
    source, _, _ = lowered(RECURSIVE)
    here, there = compilers()
    here.record_entries(1000)
    expected = walk(here.compile_json_schema(source.text), TEXT)
    taken, built = here.take_entries(), here.stats()["entries_built"]
    cut = [(unit, slot, entry[:-1]) for unit, slot, entry, _ in taken]
    assert there.offer_entries(cut) == len(cut)
    assert there.offer_entries([(taken[0][0], b"", b""), (taken[0][0], b"\x07\0\0\0\0", b"")]) == 0
    assert walk(there.compile_json_schema(source.text), TEXT) == expected
    # Each that had to be built here, and the two without a slot. What is right for several registers is built once, and
    # what was offered for the others is not looked at.
    assert there.stats()["entries_refused"] == built + 2
    assert there.stats()["entries_offered"] == 0
    unit, slot, entry, _ = taken[0]
    assert here.verify_entry(unit, slot, entry[:-1]) is False
    assert here.verify_entry(bytes(32), slot, entry) is None
    _, elsewhere = compilers()
    assert elsewhere.verify_entry(unit, slot, entry) is None
    _, _, units = lowered(RECURSIVE)
    assert elsewhere.verify_entry(unit, slot, entry, closure=units) is True
    assert elsewhere.stats()["units"] == 0


def test_entries_are_built_from_units_alone() -> None:
    source, data, units = lowered(SCHEMAS[3])
    here, there = compilers()
    built = here.build_entries(units, [d for d, _ in units])
    assert {e[0] for e in built} <= {d for d, _ in units}
    assert here.stats()["sources"] == 0
    there.install([(source, data)], units)
    there.offer_entries([e[:3] for e in built])
    walk(there.compile_json_schema(source.text), '["2024-02-29", "1999-12-31"]')
    assert there.stats()["entries_offered"] > 0
    assert here.build_entries(units, [d for d, _ in units], min_cost_us=1e9) == [e for e in built if e[1][0] == 1]


def test_the_recorder_is_bounded() -> None:
    here, _ = compilers()
    here.record_entries(3)
    walk(here.compile_json_schema(json.dumps(RECURSIVE)), TEXT)
    assert len(here.take_entries()) <= 3


def test_tools_are_split_into_sources() -> None:
    here, _ = compilers()
    tools = [
        {"name": "a", "parameters": SCHEMAS[2]},
        {"type": "function", "function": {"name": "b", "parameters": SCHEMAS[2]}},
        {"name": "c"},
    ]
    sources = here.sources_of_tools(tools)
    assert len(sources) == 2
    for s in sources:
        manifest, units = Lowering().lower(s)
        here.install([(s, manifest)], units)
    before = here.stats()["source_misses"]
    here.compile_tools(tools)
    assert here.stats()["source_misses"] == before


def test_vocabularies_as_bytes() -> None:
    vocabulary = Tokenizer.from_bytes().vocabulary
    data = vocabulary.to_bytes()
    assert Vocabulary.from_bytes(data).fingerprint == vocabulary.fingerprint
    for bad in (b"", data[:-8], data[:40] + bytes(32) + data[72:]):
        with pytest.raises(TokenizerError):
            Vocabulary.from_bytes(bad)


def test_equal_units_are_equal_bytes(catalogue: list[dict[str, Any]]) -> None:
    lowering, known = Lowering(), dict[bytes, bytes]()
    for tool in catalogue[:400]:
        # A fresh one now and then: what was lowered before would come out as it was.
        lowering = Lowering() if len(known) % 50 == 0 else lowering
        _, units = lowering.lower(Source("json_schema", json.dumps(tool["parameters"])))
        for digest, data in units:
            assert known.setdefault(digest, data) == data
    digest, data = next(iter(known.items()))
    assert inspect_unit(data)["states"] > 0
    with pytest.raises(ValueError, match="not a unit"):
        inspect_unit(data[:-4])
    assert verify_units(list(known.items())) == []


def test_what_of_a_list_of_tools_is_missing() -> None:
    here, _ = compilers()
    tools = [{"name": "a", "parameters": SCHEMAS[2]}, {"name": "b", "parameters": SCHEMAS[4]}, {"name": "c"}]
    text = here.tools_text(tools)
    assert json.loads(text) == tools
    number, missing = here.missing_of_tools(text)
    assert number == len(missing) == 3
    assert [s.key for s in missing] == [s.key for s in here.sources_of_tools(tools)]
    here.compile_tools(text)
    assert here.missing_of_tools(tools) == (3, [])
