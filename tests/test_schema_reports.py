"""The real reports that JSON Schema support must get right, each as a test of its whole kind."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from gramary.compiler.errors import LimitExceeded, UnsatisfiableSchema
from gramary.runtime._core import CompiledGrammar, Compiler, Limits, Matcher, Vocabulary

from .judge import Judge, exactly

TOKENS = [*(bytes([b]) for b in range(256)), b"aa", b'a"', b'": ', b"</s>"]
STOP = len(TOKENS) - 1


def new_compiler() -> Compiler:
    return Compiler(Vocabulary.from_tokens(TOKENS, special=[STOP]), stop_token_ids=[STOP])


COMPILER = new_compiler()


def compiled(schema: Any, **options: Any) -> CompiledGrammar:
    return COMPILER.compile_json_schema(schema, **options)


def accepts(grammar: CompiledGrammar, text: str | bytes) -> bool:
    matcher = grammar.matcher()
    return matcher.accept_bytes(text) and matcher.is_complete()


def escaped(text: str, which: int) -> str:
    """The JSON spelling of `text` in which bit i of `which` has character i written as `\\uXXXX`."""
    return '"' + "".join(f"\\u{ord(c):04x}" if which >> i & 1 else c for i, c in enumerate(text)) + '"'


# ------------------------------------------------------------------------------------------------ 1: strings combine


@pytest.mark.parametrize("wrap", [lambda s: s, lambda s: {"type": "array", "items": s}, lambda s: {"allOf": [s, {}]}])
@pytest.mark.parametrize(
    ("constraint", "right", "wrong"),
    [
        ({"pattern": "^[a-z]+$", "maxLength": 3}, ["a", "abc"], ["", "abcd", "aB", "ab1"]),
        ({"pattern": "^[a-z]+$", "minLength": 2}, ["ab", "abcd"], ["a", "AB"]),
        ({"pattern": "b", "maxLength": 3}, ["b", "abc"], ["abcb", "ac"]),
        ({"format": "email", "maxLength": 7}, ["a@b.org"], ["aa@b.org", "a.b.org"]),
        ({"format": "date", "pattern": "^2024"}, ["2024-02-29"], ["2023-02-01", "2024-02-30", "2024"]),
        ({"format": "ipv4", "pattern": "^10\\.", "maxLength": 8}, ["10.0.0.1"], ["10.0.0.11", "11.0.0.1"]),
        ({"allOf": [{"pattern": "^a"}, {"pattern": "c$"}], "maxLength": 3}, ["ac", "abc"], ["abbc", "ab"]),
    ],
)
def test_1_all_constraints_of_a_string_hold_together(
    wrap: Any, constraint: dict[str, Any], right: list[str], wrong: list[str]
) -> None:
    schema = wrap({"type": "string", **constraint})
    grammar = compiled(schema)

    def value(s: str) -> Any:
        return [s] if "items" in schema else s

    for text in right:
        assert accepts(grammar, json.dumps(value(text))), text
    for text in wrong:
        assert not accepts(grammar, json.dumps(value(text))), text


# ------------------------------------------------------------------------------------------------ 2: escapes count


@pytest.mark.parametrize("text", ['a\n"b"', "\t\\/", "ä€😀", "\x00\x1f", '"""', "a" * 12, ""])
@pytest.mark.parametrize("room", [-1, 0, 3])
def test_2_lengths_count_characters_however_escaped(text: str, room: int) -> None:
    size = len(text) + room
    if size < 0:
        return
    grammar = compiled({"type": "string", "maxLength": size})
    for spelling in (json.dumps(text), json.dumps(text, ensure_ascii=False), json.dumps(text).replace("/", "\\/")):
        assert accepts(grammar, spelling) == (room >= 0), spelling


@pytest.mark.parametrize("schema", [{"type": "string", "maxLength": 12}, {"type": "string"}, True, {"pattern": "^"}])
def test_2_no_raw_control_character(schema: Any) -> None:
    grammar = compiled(schema)
    for control in (*range(32),):
        assert not accepts(grammar, b'"a' + bytes([control]) + b'b"')
        assert accepts(grammar, f'"a\\u{control:04x}b"')


# ------------------------------------------------------------------------------------------------ 3: siblings of anyOf


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
@pytest.mark.parametrize("order", ["declared", "any"])
def test_3_alternatives_apply_together_with_their_siblings(keyword: str, order: str) -> None:
    schema = {
        keyword: [{"required": ["a"]}, {"required": ["b"]}],
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    }
    grammar, judge = compiled(schema, property_order=order), Judge(schema)
    values: list[Any] = [1, "x", None]
    for a, b, c in itertools.product([..., *values], [..., *values], [..., 1]):
        value = {k: v for k, v in (("a", a), ("b", b), ("c", c)) if v is not ...}
        assert accepts(grammar, json.dumps(value)) == judge.is_valid(value), value
    for value in values:
        assert accepts(grammar, json.dumps(value)) == judge.is_valid(value)


# ------------------------------------------------------------------------------------------------ 4: siblings of $ref


SIBLINGS: list[tuple[dict[str, Any], list[Any]]] = [
    ({"maxLength": 2}, ["abc"]),
    ({"enum": ["x", "yy"]}, ["z"]),
    ({"pattern": "^a"}, ["b"]),
    ({"not": {"const": "a"}}, ["a"]),
    ({"type": "integer"}, ["a"]),
]


@pytest.mark.parametrize(("sibling", "wrong"), SIBLINGS)
@pytest.mark.parametrize("draft", ["2020-12", "2019-09"])
def test_4_siblings_of_a_reference_apply(sibling: dict[str, Any], wrong: list[Any], draft: str) -> None:
    schema = {
        "$schema": f"https://json-schema.org/draft/{draft}/schema",
        "$ref": "#/$defs/s",
        **sibling,
        "$defs": {"s": {"type": "string"}},
    }
    judge = Judge(schema)
    try:
        grammar = compiled(schema)
    except UnsatisfiableSchema:
        grammar = None
    for value in ["", "a", "aa", "abc", "x", "yy", "z", "b", 1, None, *wrong]:
        valid = judge.is_valid(value)
        assert (grammar is not None and accepts(grammar, json.dumps(value))) == valid, value
        assert not (valid and value in wrong)


@pytest.mark.parametrize(("sibling", "wrong"), SIBLINGS)
@pytest.mark.parametrize("draft", ["draft-04", "draft-06", "draft-07"])
def test_4_siblings_of_a_reference_are_ignored_with_a_note(
    sibling: dict[str, Any], wrong: list[Any], draft: str
) -> None:
    schema = {
        "$schema": f"http://json-schema.org/{draft}/schema#",
        "properties": {"v": {"$ref": "#/definitions/s", **sibling}},
        "definitions": {"s": {"type": "string"}},
    }
    grammar = compiled(schema)
    for value in wrong:
        assert accepts(grammar, json.dumps({"v": value}))
    assert not accepts(grammar, '{"v": 1}')
    assert [w["pointer"] for w in grammar.warnings] == ["/properties/v/$ref"]


# ------------------------------------------------------------------------------------------------ 5: oneOf nests


def _apart(depth: int, path: str = "") -> Any:
    """Two branches told apart by a constant, nested."""
    if depth == 0:
        return {"type": "object", "properties": {"leaf": {"const": path}}, "required": ["leaf"]}
    return {
        "oneOf": [
            {
                "type": "object",
                "properties": {"kind": {"const": kind}, "next": _apart(depth - 1, path + kind) if kind == "l" else {}},
                "required": ["kind", "next"],
            }
            for kind in "lr"
        ]
    }


def _by_type(depth: int) -> Any:
    if depth == 0:
        return {"type": "string"}
    inner = _by_type(depth - 1)
    return {"oneOf": [{"type": "object", "properties": {"x": inner}}, {"type": "array", "items": inner}]}


def _overlapping(depth: int, path: str = "") -> Any:
    """2^depth schemas, any two of which may hold at once."""
    if depth == 0:
        return {"type": "object", "properties": {"z" + path: {"type": "integer"}}}
    return {"oneOf": [_overlapping(depth - 1, path + "0"), _overlapping(depth - 1, path + "1")]}


def _patterns(depth: int, path: str = "") -> Any:
    if depth == 0:
        return {"type": "string", "pattern": "^" + path}
    return {"oneOf": [_patterns(depth - 1, path + "0"), _patterns(depth - 1, path + "1")]}


def _comb(depth: int) -> Any:
    if depth == 0:
        return {"type": "object", "required": ["k"]}
    return {"oneOf": [_comb(depth - 1), {"type": "object", "properties": {"a": _comb(depth - 1)}}]}


@pytest.mark.parametrize("make", [_apart, _by_type])
def test_5_nested_one_of_compiles(make: Any) -> None:
    """Bounded by states, not by time."""
    grammar = compiled(make(12), limits=Limits(seconds=3600.0))
    assert accepts(grammar, '{"kind": "r", "next": 1}' if make is _apart else '["s"]'.replace('"s"', "[]"))


@pytest.mark.parametrize("make", [_overlapping, _patterns, _comb])
def test_5_nested_one_of_ends_at_its_limit(make: Any) -> None:
    """What multiplies ends by counting: the error names the states (or combinations), never the seconds."""
    with pytest.raises(LimitExceeded) as caught:
        compiled(make(12), limits=Limits(seconds=3600.0))
    assert caught.value.limit in ("fsm_states", "items_per_set")


@pytest.mark.parametrize("depth", range(1, 4))
def test_5_shallow_overlapping_one_of_is_exact(depth: int) -> None:
    for make in (_apart, _by_type, _patterns):
        schema = make(depth)
        grammar, judge = compiled(schema), Judge(schema)
        for value in [
            "",
            "0",
            "01",
            "000",
            "0101",
            "1",
            {},
            [],
            {"x": []},
            {"x": "s"},
            [["s"]],
            {"kind": "r", "next": 1},
        ]:
            assert accepts(grammar, json.dumps(value)) == judge.is_valid(value), (make, value)


# ------------------------------------------------------------------------------------------------ 6: deep arrays


@pytest.mark.parametrize("depth", [1, 10, 990])
@pytest.mark.parametrize("kind", ["array", "object", "tuple"])
def test_6_deep_nesting_costs_a_unit_a_level(depth: int, kind: str) -> None:
    schema: Any = {"type": "integer"}
    for _ in range(depth):
        schema = {
            "array": {"type": "array", "items": schema},
            "object": {"type": "object", "properties": {"a": schema}, "required": ["a"], "additionalProperties": False},
            "tuple": {"type": "array", "prefixItems": [schema], "items": False, "minItems": 1},
        }[kind]
    opening, closing = ('{"a":', "}") if kind == "object" else ("[", "]")
    fresh = new_compiler()
    grammar = fresh.compile_json_schema(schema, limits=Limits(fsm_states=100 * depth + 1_000))
    for n in (depth - 1, depth, depth + 1):
        assert accepts(grammar, opening * n + "1" + closing * n) == (n == depth)
    assert fresh.stats()["units"] <= 4 * depth + 10


# ------------------------------------------------------------------------------------------------ 7: long strings


def test_7_a_mask_costs_the_same_wherever_in_a_string() -> None:
    most = _entries_along({"type": "string", "minLength": 200, "maxLength": 100_000}, 200, 100_000)
    assert most == _entries_along({"type": "string", "minLength": 20, "maxLength": 1_000}, 20, 1_000)


def _entries_along(schema: Any, least: int, most: int) -> int:
    """How many mask entries are built on the way through a string; every mask is checked."""
    fresh = new_compiler()
    matcher = fresh.compile_json_schema(schema).matcher()
    row = np.zeros((1, (len(TOKENS) + 31) // 32), dtype=np.int32)

    def built() -> int:
        before = fresh.stats()["entries_built"]
        matcher.fill_bitmask(row)
        return fresh.stats()["entries_built"] - before

    assert matcher.accept_bytes('"')
    written, costs = 0, {}
    for at in (1, least - 2, least - 1, least, least + 1, most // 2, most - 1, most):
        assert matcher.accept_bytes("a" * (at - written))
        written = at
        costs[at] = built()
        allowed = {t for t in (ord("a"), ord('"'), 256, 257) if row[0, t >> 5] >> (t & 31) & 1}
        expected = {ord('"')} if at >= least else set()
        expected |= {ord("a")} if at < most else set()
        expected |= {256} if at + 2 <= most else set()
        expected |= {257} if least <= at + 1 <= most else set()
        assert allowed == expected, at
    assert costs[most // 2] == 0
    return sum(costs.values())


# ------------------------------------------------------------------------------------------------ 8: numbers


def _judged(schema: Any, text: str) -> bool:
    return Judge(exactly(schema)).is_valid(json.loads(text, parse_float=Decimal))


@pytest.mark.parametrize("text", ["1e5", "-0.0", "-0", "1E+5", "1e-5", "0.5", "12345678901234567890.5", "0e0"])
def test_8_every_spelling_of_a_number(text: str) -> None:
    assert accepts(compiled({"type": "number"}), text)
    for wrong in ("01", "+1", ".5", "1.", "1e", "--1", "0x1", "NaN", "Infinity"):
        assert not accepts(compiled({"type": "number"}), wrong)


@pytest.mark.parametrize("step", [0.01, 0.1, 1, 3, 0.5, 2.5, 7])
@pytest.mark.parametrize("bounds", [{}, {"minimum": 0}, {"exclusiveMaximum": 10}, {"minimum": -1.5, "maximum": 8}])
def test_8_multiples_are_decimal(step: Any, bounds: dict[str, Any]) -> None:
    schema = {"type": "number", "multipleOf": step, **bounds}
    grammar = compiled(schema)
    for text in (
        "0.07",
        "0.075",
        "0",
        "-0",
        "0.1",
        "0.30",
        "3",
        "2.5",
        "-2.5",
        "1.5",
        "6.9",
        "7.00",
        "10",
        "-1.5",
        "21",
    ):
        assert accepts(grammar, text) == _judged(schema, text), text


# ------------------------------------------------------------------------------------------------ 9: much of everything

MUCH = """
import json, resource, sys
from gramary.compiler import Compiler, Tokenizer
from gramary.runtime._core import Limits
schema = json.load(sys.stdin)
compiler = Compiler(Tokenizer.from_bytes())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
grammar = compiler.compile_json_schema(schema["schema"], limits=Limits(fsm_states=2_000_000), **schema["options"])
for text, expected in schema["texts"]:
    matcher = grammar.matcher()
    assert (matcher.accept_bytes(text) and matcher.is_complete()) == expected, text[:100]
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize("order", ["declared", "any"])
@pytest.mark.parametrize("kind", ["enum", "properties", "required"])
def test_9_thousands_of_strings_and_properties(kind: str, order: str) -> None:
    """In a process of its own, which tells how much memory it took."""
    if kind == "enum":
        schema: Any = {"enum": [f"value {i}" for i in range(5_000)]}
        texts = [('"value 4999"', True), ('"value 5000"', False), ('"value"', False)]
    else:
        # Each required key in declared order takes a register program of its own, of which a rule has 65,535.
        names = [f"p{i}" for i in range(20_000 if (kind, order) == ("required", "declared") else 50_000)]
        schema = {"type": "object", "properties": {n: {"type": "integer"} for n in names}}
        texts = [('{"p7":1,"p19999":2}', True), ('{"p7":"x"}', False), ('{"p7":1,"p7":1}', False)]
        if kind == "required":
            schema |= {"required": names}
            texts = [(json.dumps(dict.fromkeys(names, 1)), True), ('{"p0":1}', False)]
    source = json.dumps({"schema": schema, "options": {"property_order": order}, "texts": texts})
    done = subprocess.run([sys.executable, "-c", MUCH], input=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 800


# ------------------------------------------------------------------------------------------------ 10: declared names


@pytest.mark.parametrize("order", ["declared", "any"])
@pytest.mark.parametrize(
    "rest",
    [
        {"additionalProperties": {"type": "integer"}},
        {"patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": {"type": "integer"}},
        {"unevaluatedProperties": {"type": "integer"}},
        {"additionalProperties": {"type": "integer"}, "propertyNames": {"maxLength": 8}},
    ],
)
def test_10_a_declared_name_is_never_an_additional_one(rest: dict[str, Any], order: str) -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}, "né": {"type": "string"}}, **rest}
    grammar = compiled(schema, property_order=order)
    for name in ("name", "né"):
        for which in range(1 << len(name)):
            key = escaped(name, which)
            assert not accepts(grammar, f"{{{key}: 1}}"), key
            # Nor twice.
            assert not accepts(grammar, f'{{"{name}": "x", {key}: "x"}}'), key
            assert not accepts(grammar, f'{{"{name}": "x", {key}: 1}}'), key
        assert accepts(grammar, f'{{"{name}": "x"}}')
    for other in ("nam", "names", "n", "Name", "ne"):
        assert accepts(grammar, f'{{"{other}": 1}}')
        assert not accepts(grammar, f'{{"{other}": "x"}}')


# ------------------------------------------------------------------------------------------------ 11: nothing matches


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "required": ["a"], "additionalProperties": False},
        {"type": "object", "required": ["a"], "properties": {"a": False}},
        {"type": "object", "required": ["ab"], "propertyNames": {"maxLength": 1}},
        {"type": "object", "required": ["a", "b"], "maxProperties": 1},
        {"type": "object", "minProperties": 2, "properties": {"a": {}}, "additionalProperties": False},
        {"type": "object", "required": ["x"], "patternProperties": {"x": False}},
        {"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}},
        {"type": "array", "items": False, "minItems": 1},
        {"type": "array", "maxItems": 1, "minItems": 2},
        {"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True, "minItems": 3},
        {"type": "string", "minLength": 3, "maxLength": 2},
        {"type": "string", "pattern": "^a$", "minLength": 2},
        {"type": "string", "enum": [1, 2]},
        {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2},
        {"allOf": [{"type": "string"}, {"type": "integer"}]},
        {"oneOf": [{"const": 1}, {"const": 1}]},
        {"not": {}},
        {"enum": []},
        False,
    ],
)
def test_11_what_nothing_can_match_says_so(schema: Any) -> None:
    for options in ({}, {"property_order": "any"}):
        with pytest.raises(UnsatisfiableSchema) as caught:
            compiled(schema, **options)
        assert "nothing can match" in str(caught.value)


def test_11_an_unsatisfiable_part_is_no_dead_end() -> None:
    grammar = compiled({"properties": {"a": {"type": "object", "required": ["b"], "additionalProperties": False}}})
    assert accepts(grammar, "{}")
    assert not grammar.matcher().accept_bytes('{"a": ')


def walk(matcher: Matcher, rng: random.Random, steps: int) -> None:
    """Random allowed tokens: there is always one."""
    row = np.zeros((1, (len(TOKENS) + 31) // 32), dtype=np.int32)
    for _ in range(steps):
        matcher.fill_bitmask(row)
        allowed = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
        assert allowed.size
        token = int(rng.choice(list(allowed)))
        if token == STOP:
            return
        assert matcher.accept_token(token)


def test_11_no_dead_end_beside_what_is_impossible() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"not": {}}, "ab": {"type": "integer"}, "b": {"enum": []}},
        "patternProperties": {"^c": False},
        "maxProperties": 3,
    }
    for order in ("declared", "any"):
        for seed in range(20):
            walk(compiled(schema, property_order=order).matcher(), random.Random(seed), 60)


@pytest.mark.parametrize(
    "uri",
    [
        "http://json-schema.org/draft-04/schema#",
        "http://json-schema.org/draft-06/schema#",
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
    ],
)
def test_a_tool_may_take_a_schema(uri: str) -> None:
    """References to JSON Schema's own schemas need no registry."""
    schema = {"type": "object", "properties": {"s": {"$ref": uri}}, "required": ["s"]}
    grammar = COMPILER.compile_json_schema(schema, property_order="any")
    judge = Judge(schema)
    for s in (
        {"type": "string", "minLength": 1},
        {"properties": {"a": {"enum": [1, 2]}}, "required": ["a"]},
        {"type": "strin"},
        {"type": ["string", "string"]},
        {"minLength": -1},
        {"anyOf": [{"items": {"type": "null"}}, {"maximum": "1"}]},
        {"allOf": []},
    ):
        matcher = grammar.matcher()
        accepted = matcher.accept_bytes(json.dumps({"s": s}).encode()) and matcher.is_complete()
        assert accepted == judge.is_valid({"s": s}), s
