"""Values that must differ, against `jsonschema`: unique items, and names of which each may come once.

Texts with the same name twice are built by hand, since no parsed value has them: where values of undeclared names
count, they must be refused. Masks are compared with brute force along the way.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gramary.compiler import Compiler
from gramary.compiler.errors import UnsatisfiableSchema, UnsupportedSchema
from gramary.runtime._core import CompiledGrammar

from .judge import Judge, exactly, parsed
from .oracle import brute_force, mask
from .test_oracle_json import COMPILER, STOP, TOKENS, accepts, compiled, spellings

WORDS = ["", "a", "b", "ab", "ba", "é", "x\ny", '"', "aa", "12", "13"]

texts = st.one_of(
    st.just({"type": "string"}),
    st.builds(
        lambda p: {"type": "string", "pattern": p}, st.sampled_from(["^a", "^a?b?$", "^(a|b)*$", "b$", "^[ab]$"])
    ),
    st.builds(lambda n: {"type": "string", "maxLength": n}, st.integers(0, 3)),
    st.just({"type": "string", "pattern": "^[0-9]{2}$"}),
    st.builds(lambda e: {"enum": e}, st.lists(st.sampled_from(WORDS), min_size=1, max_size=11, unique=True)),
    st.just({"enum": [f"{a}{b}" for a in "abcd" for b in "abcd"]}),
)
numbers = st.sampled_from(
    [
        {"type": "integer"},
        {"type": "number"},
        {"type": "integer", "minimum": 1, "maximum": 12},
        {"type": "integer", "exclusiveMinimum": 7.5, "exclusiveMaximum": 30},
        {"type": "number", "multipleOf": 0.5},
        {"type": "number", "minimum": 0, "maximum": 1},
    ]
)
few = st.sampled_from([{"enum": [1, 2]}, {"type": "boolean"}, {"const": "a"}, {"enum": ["a", "b", None]}])
closed = st.booleans().map(lambda c: {"additionalProperties": False} if c else {})
objects = st.builds(
    lambda properties, required, more: {"type": "object", "properties": properties, "required": required, **more},
    st.dictionaries(st.sampled_from("abc"), st.one_of(few, few, numbers, texts), min_size=1, max_size=3),
    st.lists(st.sampled_from("ab"), max_size=2, unique=True),
    closed,
)
values = st.one_of(
    numbers,
    objects,
    st.builds(lambda i: {"type": "array", "items": i}, st.one_of(numbers, few, objects)),
    st.builds(lambda i, n: {"type": "array", "items": i, "maxItems": n}, st.one_of(numbers, few), st.integers(1, 2)),
    st.builds(lambda a, b: {"anyOf": [a, b]}, objects, st.one_of(texts, numbers, few)),
    st.just({}),
    st.just({"type": "object"}),
)
items = st.one_of(
    values,
    texts,
    st.builds(lambda a, b: {"anyOf": [a, b]}, texts, texts),
    st.builds(lambda t: {"anyOf": [t, {"type": "null"}]}, texts),
    st.just({"type": ["string", "null", "boolean"]}),
    st.just({"anyOf": [{"type": "string"}, {"enum": [1, 2.5]}]}),
)
counts = st.fixed_dictionaries({}, optional={"minItems": st.integers(0, 3), "maxItems": st.integers(0, 4)})


@st.composite
def arrays(draw: Any) -> Any:
    schema = {"type": "array", "uniqueItems": True, "items": draw(items), **draw(counts)}
    if draw(st.booleans()):
        schema["prefixItems"] = draw(st.lists(st.one_of(texts, st.just({"type": "integer"})), min_size=1, max_size=2))
    return schema if draw(st.booleans()) else {"anyOf": [schema, {"items": {"const": "a"}, "maxItems": 2}]}


instances = st.lists(
    st.one_of(
        st.lists(st.sampled_from(WORDS[:6]), max_size=4),
        st.lists(st.sampled_from([*WORDS, None, True, False, 1, 2.5, 3]), max_size=5),
        st.lists(st.sampled_from(["aa", "ab", "ac", "dd", "da"]), max_size=3),
        st.lists(st.sampled_from([0, 1, 2, 5, 8, 12, 0.5, 1.0, -1, 10, 20]), max_size=5),
        st.lists(
            st.dictionaries(st.sampled_from("abc"), st.sampled_from([1, 2, "a", "b", None, True, 8]), max_size=3),
            max_size=4,
        ),
        st.lists(st.lists(st.sampled_from([1, 2, "a", {"a": 1}, {"b": "a"}]), max_size=2), max_size=4),
    ),
    min_size=12,
    max_size=20,
)


def walk(grammar: CompiledGrammar, seed: int, steps: int = 60) -> bytes | None:
    """A text that masks allow, none of them empty; some are compared with brute force. `None`: it did not end."""
    rng, matcher, text = random.Random(seed), grammar.matcher(), bytearray()
    for step in range(steps):
        allowed = mask(matcher, len(TOKENS))
        assert allowed, bytes(text)
        if step % 8 == 0:
            assert allowed == brute_force(matcher, range(len(TOKENS))), bytes(text)
        if STOP in allowed and (len(allowed) == 1 or rng.random() < 0.2 or step > 40):
            return bytes(text)
        ways = sorted(t for t in allowed - {STOP} if TOKENS[t] in b'"ab,]}:1 {}[' or rng.random() < 0.02)
        token = rng.choice(ways or sorted(allowed - {STOP}))
        assert matcher.accept_token(token)
        text += TOKENS[token]
    return None


@settings(max_examples=150)
@given(arrays(), instances, st.integers(0, 2**32))
def test_items_are_unique(schema: Any, values: list[Any], seed: int) -> None:
    judge, grammar = Judge(exactly(schema)), compiled(schema, property_order="any")
    for value in values:
        valid = judge.is_valid(exactly(value))
        if grammar is UnsatisfiableSchema:
            assert not valid, value
        elif isinstance(grammar, CompiledGrammar):
            for text in spellings(value):
                assert accepts(grammar, text) == valid, text
    if isinstance(grammar, CompiledGrammar) and (text := walk(grammar, seed)) is not None:
        assert judge.is_valid(exactly(json.loads(text))), text


def test_escapes_do_not_hide_a_repetition() -> None:
    grammar = COMPILER.compile_json_schema({"type": "array", "items": {"type": "string"}, "uniqueItems": True})
    assert accepts(grammar, '["ab", "a", [1]]') is False
    for second in ("ab", "a\\u0062", "\\u0061b"):
        assert not accepts(grammar, f'["ab", "{second}"]'), second
    assert accepts(grammar, '["ab", "ac", "a"]')


def test_other_containers_are_compared_apart() -> None:
    schema = {"type": "array", "items": {"type": "array", "items": {"type": "string"}, "uniqueItems": True}}
    grammar = COMPILER.compile_json_schema(schema)
    assert accepts(grammar, '[["a", "b"], ["a"], ["b", "a"]]')
    assert not accepts(grammar, '[["a", "b"], ["a", "a"]]')


def closed_object(required: str = "", **properties: Any) -> Any:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


BOOLEAN: Any = {"type": "boolean"}


@pytest.mark.parametrize("order", ["any", "declared"])
@pytest.mark.parametrize(
    ("item", "number"),
    [
        (closed_object("a", a=BOOLEAN, b={"enum": [1, 2]}), 6),
        (closed_object(a={"enum": [*range(20)]}), 21),
        (closed_object("a", a={"type": "integer", "minimum": 98, "maximum": 102}, b={"enum": ["x", "xy", None]}), 20),
        (closed_object("a", a=closed_object(x=BOOLEAN), b={"const": "p"}), 6),
        (closed_object("ab", a={"type": "string", "pattern": "^[ab]{2}$"}, b=BOOLEAN), 8),
        ({"type": "array", "items": {"enum": [1, 2, 3]}, "maxItems": 2}, 13),
        ({"type": "array", "prefixItems": [BOOLEAN], "items": {"enum": ["a", "b"]}, "minItems": 1, "maxItems": 2}, 6),
        ({"type": "array", "items": {"enum": ["a", "b", "c"]}, "minItems": 2, "uniqueItems": True}, 12),
    ],
)
def test_objects_and_arrays_that_run_out(item: Any, number: int, order: str) -> None:
    """An array ends with the last value that its items can have; nowhere on the way is there a dead end."""
    options: Any = {"property_order": order, "whitespace": "compact"}
    schema = {"type": "array", "items": item, "uniqueItems": True, "minItems": number}
    grammar = COMPILER.compile_json_schema(schema, **options)
    for seed in range(3):
        text = walk(grammar, seed, steps=1000)
        assert text is not None
        assert len(json.loads(text)) == number
        assert Judge(schema).is_valid(parsed(text))
    with pytest.raises(UnsatisfiableSchema):
        COMPILER.compile_json_schema({**schema, "minItems": number + 1}, **options)


@pytest.mark.parametrize(
    "item",
    [
        {"type": ["string", "object"], "pattern": "^[ab]$"},
        {"type": "object", "patternProperties": {"^[ab]$": {"type": "boolean"}}, "additionalProperties": False},
        {"anyOf": [closed_object(a=BOOLEAN), closed_object(a={"enum": [1, True]})]},
    ],
)
def test_what_cannot_be_compared_is_refused(item: Any) -> None:
    schema = {"type": "array", "items": item, "uniqueItems": True}
    with pytest.raises(UnsupportedSchema) as caught:
        COMPILER.compile_json_schema(schema)
    assert caught.value.keyword == "uniqueItems"
    assert [w["keyword"] for w in COMPILER.compile_json_schema(schema, lenient=True).warnings] == ["uniqueItems"]


# ------------------------------------------------------------------------------------------------ names

inner = st.sampled_from([{"type": "integer"}, {"type": "string", "minLength": 2}, {"const": 1}, {"type": "null"}])
some = st.one_of(
    st.builds(lambda s: {"additionalProperties": s}, inner),
    st.builds(lambda s: {"properties": {"a": True}, "additionalProperties": s}, inner),
    st.builds(lambda p, s: {"patternProperties": {p: s}}, st.sampled_from(["^a", "b", "^.b"]), inner),
    st.builds(lambda s, t: {"patternProperties": {"^a": s, "b": t}}, inner, inner),
    st.builds(lambda s: {"patternProperties": {"^a": True}, "additionalProperties": s}, inner),
)
bases = st.sampled_from(
    [
        {},
        {"properties": {"a": {"type": "integer"}}, "required": ["b"]},
        {"additionalProperties": {"type": ["integer", "string"]}},
        {"patternProperties": {"^a": {"type": "integer"}}},
        {"propertyNames": {"minLength": 2}},
    ]
)
pairs = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "ab", "ba", "aa", "bb", "c"]), st.sampled_from(["1", "2", '"x"', '"xy"', "null"])
    ),
    max_size=4,
)


@settings(max_examples=150)
@given(
    bases,
    st.lists(some, min_size=1, max_size=2),
    st.sampled_from(["allOf", "anyOf", "oneOf"]),
    st.integers(0, 3),
    st.lists(pairs, min_size=15, max_size=25),
    st.integers(0, 2**32),
)
def test_values_of_some_property(
    base: Any, kinds: list[Any], keyword: str, least: int, objects: list[Any], seed: int
) -> None:
    """Negations of what undeclared properties hold, and how many there are at least."""
    schema = {"type": "object", **base, keyword: [{"not": s} for s in kinds], "minProperties": least}
    judge, grammar = Judge(exactly(schema)), compiled(schema, property_order="any")
    for written in objects:
        text = "{" + ", ".join(f'"{name}": {value}' for name, value in written) + "}"
        # Written twice, one way or the other: what counts differs between readers, so both must do.
        first = judge.is_valid(exactly(json.loads(text, object_pairs_hook=lambda p: dict(reversed(p)))))
        last = judge.is_valid(exactly(json.loads(text)))
        once = len({name for name, _ in written}) == len(written)
        if grammar is UnsatisfiableSchema:
            assert not last, text
        elif isinstance(grammar, CompiledGrammar):
            if once:
                assert accepts(grammar, text) == last, text
            elif not (first and last):
                assert not accepts(grammar, text), text
    if isinstance(grammar, CompiledGrammar) and (text := walk(grammar, seed)) is not None:
        assert judge.is_valid(exactly(json.loads(text))), text


few = st.fixed_dictionaries(
    {
        "patternProperties": st.dictionaries(st.sampled_from(["^[ab]$", "^[a-c]$", "^a?b?$", "^b"]), inner, min_size=1),
        "minProperties": st.integers(2, 4),
    },
    optional={
        "properties": st.just({"a": {"type": "integer"}, "cc": True}),
        "required": st.sampled_from([["a"], ["b"], ["c", "cc"]]),
        "maxProperties": st.integers(2, 4),
    },
)


@settings(max_examples=100)
@given(few, st.sampled_from(["any", "declared"]), st.lists(pairs, min_size=15, max_size=25), st.integers(0, 2**32))
def test_names_that_run_out(base: Any, order: str, objects: list[Any], seed: int) -> None:
    """Undeclared names of which there are only a few, and counts that may ask for more of them than there are."""
    schema = {"type": "object", **base, "additionalProperties": False}
    judge, grammar = Judge(exactly(schema)), compiled(schema, property_order=order)
    for written in objects:
        text = "{" + ", ".join(f'"{name}": {value}' for name, value in written) + "}"
        valid = judge.is_valid(exactly(json.loads(text)))
        if grammar is UnsatisfiableSchema:
            assert not valid, text
        elif isinstance(grammar, CompiledGrammar):
            once = len({name for name, _ in written}) == len(written)
            if order == "any" and once:
                assert accepts(grammar, text) == valid, text
            elif not (once and valid):
                assert not accepts(grammar, text), text
    if isinstance(grammar, CompiledGrammar) and (text := walk(grammar, seed)) is not None:
        assert judge.is_valid(exactly(json.loads(text))), text


@pytest.mark.parametrize("order", ["any", "declared"])
def test_names_that_count_are_written_once(order: str) -> None:
    schema = {"type": "object", "properties": {"d": {}}, "minProperties": 3}
    grammar = COMPILER.compile_json_schema(schema, property_order=order)
    assert accepts(grammar, '{"d": 1, "a": 2, "b": 3}')
    for text in ('{"d": 1, "a": 2}', '{"a": 1, "a": 2, "b": 3}', '{"a": 1, "b": 2, "\\u0061": 3, "c": 4}'):
        assert not accepts(grammar, text), text


@pytest.mark.parametrize("order", ["any", "declared"])
def test_names_that_do_not_count_may_come_twice(order: str) -> None:
    grammar = COMPILER.compile_json_schema({"type": "object", "minProperties": 1}, property_order=order)
    assert accepts(grammar, '{"a": 1, "a": 2}')


@pytest.mark.parametrize(
    "item",
    [
        {"type": "integer"},
        {"properties": {"id": {"type": "integer"}, "name": {"type": "string"}}, "required": ["id"]},
        {
            "type": "object",
            "properties": {"on": {"enum": [1, 2]}, "s": {"type": "string"}},
            "additionalProperties": False,
        },
    ],
)
def test_masks_of_a_real_vocabulary(tekken_compiler: Compiler, item: Any) -> None:
    """What is not tried token by token is left in the mask rightly."""
    compiler = tekken_compiler
    grammar = compiler.compile_json_schema({"type": "array", "items": item, "uniqueItems": True}, property_order="any")
    size = len(compiler.vocabulary)
    first = "[12, 1"
    if "required" in item:
        first = '[{"id": 12, "name": "ab"}, {"id": 1'
    elif "properties" in item:
        first = '[{"on": 1, "s": "ab"}, {"on": 1, "s": "a'
    matcher = grammar.matcher()
    for n, byte in enumerate(first.encode()):
        assert matcher.accept_bytes(bytes([byte]))
        if n % 3 == 2 or n == len(first) - 1:
            allowed = mask(matcher, size)
            assert allowed == {t for t in range(size) if matcher.validate_tokens([t])}, first[: n + 1]
