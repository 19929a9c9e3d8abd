"""What alternatives and negations ask of an object or array beside counts, against `jsonschema`.

Schemas of configuration files say for a dozen names which value of another one they belong to, repeat the same schemas
in alternatives that are not disjoint, deny what few names can meet, and count what matches several schemas at once.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gramary.compiler import Compiler
from gramary.compiler.errors import InvalidSchema, LimitExceeded, UnsupportedSchema
from gramary.runtime._core import CompiledGrammar, Limits

from .judge import Judge, ecma
from .test_oracle_choices import agree
from .test_oracle_json import COMPILER, accepts, compiled

NAMES = ["a", "b", "c", "d", "kind"]
KINDS = ["x", "y", "z", "w"]

# ------------------------------------------------------------------------------------------------ names and a kind


def of_kinds(names: dict[str, list[str]], closed: bool) -> dict[str, Any]:
    """Names that belong to some kinds of an object only."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"kind": {"type": "string", "enum": KINDS}, **{n: {"type": "integer"} for n in names}},
        "dependentSchemas": {n: {"properties": {"kind": {"enum": kinds}}} for n, kinds in names.items()},
    }
    return {**schema, "additionalProperties": False} if closed else schema


@settings(max_examples=60)
@given(
    st.dictionaries(
        st.sampled_from(NAMES[:4]), st.lists(st.sampled_from(KINDS), min_size=1, max_size=3, unique=True), min_size=1
    ),
    st.booleans(),
    st.lists(
        st.dictionaries(st.sampled_from(NAMES), st.sampled_from([1, 2, "x", "y", "z", "w", "v"]), max_size=4),
        min_size=20,
    ),
)
def test_names_that_belong_to_a_kind(names: dict[str, list[str]], closed: bool, values: list[Any]) -> None:
    agree(of_kinds(names, closed), values)


@pytest.mark.parametrize("order", ["any", "declared"])
def test_many_names_that_belong_to_a_kind(order: str) -> None:
    """Twenty: their combinations are a million, what the kinds make of them is not."""
    names = {f"n{i}": [KINDS[i % 3], KINDS[i * 7 % 4]] for i in range(20)}
    schema = of_kinds(names, closed=True)
    grammar, judge = COMPILER.compile_json_schema(schema, property_order=order), Judge(schema)
    for kind, (first, second) in itertools.product([None, *KINDS], itertools.combinations(names, 2)):
        value: dict[str, Any] = {} if kind is None else {"kind": kind}
        value |= {first: 1, second: 2}
        assert accepts(grammar, json.dumps(value)) == judge.is_valid(value), value


# ------------------------------------------------------------------------------------------------ said again

ENV = {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}}
SHARED = {"name": {"type": "string"}, "env": ENV, "bindings": {"type": "array", "items": {"type": "integer"}}}


def service(kind: str, more: dict[str, Any]) -> dict[str, Any]:
    """An open object that repeats what all services have."""
    properties = {**json.loads(json.dumps(SHARED)), kind: {"type": "string", "description": f"The {kind}."}, **more}
    return {"type": "object", "properties": properties, "required": ["name", kind]}


SERVICES = [
    service("executable", {"workingDirectory": {"type": "string"}, "args": {"type": "string"}}),
    service("image", {"volumes": {"type": "array"}, "args": {"type": "string"}}),
    service("dockerFile", {"volumes": {"type": "array"}, "args": {"type": "string"}, "context": {"type": "string"}}),
    service("project", {"build": {"type": "boolean"}, "args": {"type": "string"}}),
    {"properties": {"repository": {"type": "string"}}, "required": ["name", "repository"]},
]


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from(SERVICES), min_size=2, max_size=5, unique_by=json.dumps),
    st.lists(
        st.dictionaries(
            st.sampled_from(["name", "executable", "image", "dockerFile", "project", "repository", "env", "volumes"]),
            st.sampled_from(["s", 1, [], [{"name": "n"}], [1]]),
            min_size=1,
            max_size=4,
        ),
        min_size=25,
    ),
)
def test_alternatives_that_repeat_each_other(branches: list[Any], values: list[Any]) -> None:
    agree({"oneOf": branches}, values)


def test_services_compile() -> None:
    """All of them together are within the limits, and exact."""
    schema = {"type": "object", "oneOf": SERVICES}
    grammar, judge = COMPILER.compile_json_schema(schema, property_order="any"), Judge(schema)
    keys = ["name", "executable", "image", "project", "repository", "env", "volumes", "build"]
    for values in itertools.product([None, "s", [], [1]], repeat=4):
        for chosen in (keys[:4], ["name", *keys[3:6]], ["name", "image", "volumes", "env"], ["name", *keys[5:]]):
            value = {k: v for k, v in zip(chosen, values, strict=True) if v is not None}
            assert accepts(grammar, json.dumps(value)) == judge.is_valid(value), value


# ------------------------------------------------------------------------------------------------ few names, and room

CLOSED = {"patternProperties": {"^[0-3]$": {"type": "integer"}}, "additionalProperties": False}


@settings(max_examples=100)
@given(
    st.lists(
        st.sampled_from(
            [
                {"patternProperties": {"^[01]$": False}},
                {"patternProperties": {"^[23]$": {"type": "integer", "minimum": 2}}},
                {"propertyNames": {"enum": ["0", "2"]}},
                {"propertyNames": {"pattern": "[012]"}},
                {"required": ["1", "3"]},
            ]
        ),
        max_size=3,
    ),
    st.sampled_from([{}, {"minProperties": 2}, {"minProperties": 3}, {"maxProperties": 2}, {"maxProperties": 1}]),
    st.lists(st.dictionaries(st.sampled_from("01234"), st.sampled_from([1, 2, "x"]), max_size=4), min_size=25),
)
def test_few_names_that_patterns_allow(denied: list[Any], count: Any, values: list[Any]) -> None:
    schema = {"type": "object", **CLOSED, **count, "allOf": [{"not": d} for d in denied]}
    assert compiled(schema, property_order="any") is not UnsupportedSchema
    agree(schema, values)


def test_names_that_patterns_allow_are_counted_out() -> None:
    schema = {"type": "object", **CLOSED, "minProperties": 3, "maxProperties": 3}
    for order in ("any", "declared"):
        grammar = COMPILER.compile_json_schema(schema, property_order=order)
        assert accepts(grammar, '{"0": 1, "2": 2, "3": 3}')
        for text in ('{"0": 1, "2": 2}', '{"0": 1, "2": 2, "2": 3}', '{"0": 1, "1": 1, "2": 2, "3": 3}'):
            assert not accepts(grammar, text)


@settings(max_examples=100)
@given(
    st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True),
    st.lists(st.sampled_from(["ab", "ca", "dd"]), max_size=2, unique=True),
    st.integers(0, 2),
    st.lists(
        st.dictionaries(st.sampled_from(["ab", "ca", "dd", "cd", "a", "abcd"]), st.just(1), max_size=4), min_size=25
    ),
)
def test_room_for_one_name_that_meets_all(
    letters: list[str], required: list[str], more: int, values: list[Any]
) -> None:
    """ "Some name has an `a`, some name has a `b`": by the required names, or by the one for which there is room."""
    some = [{"not": {"propertyNames": {"not": {"pattern": letter}}}} for letter in letters]
    schema = {"type": "object", "allOf": some, "required": required, "maxProperties": len(required) + min(more, 1)}
    assert compiled(schema, property_order="any") is not UnsupportedSchema
    agree(schema, values)


# ------------------------------------------------------------------------------------------------ counts side by side


@settings(max_examples=60)
@given(
    st.lists(
        st.builds(
            lambda values, low, high: {
                "contains": {"enum": values},
                "minContains": low,
                **({} if high is None else {"maxContains": low + high}),
            },
            st.lists(st.sampled_from([1, 2, 3, "x"]), min_size=1, max_size=3, unique=True),
            st.integers(0, 2),
            st.one_of(st.none(), st.integers(0, 1)),
        ),
        min_size=4,
        max_size=6,
    ),
    st.sampled_from([{}, {"maxItems": 4}, {"minItems": 2}]),
    st.lists(st.lists(st.sampled_from([1, 2, 3, "x", None]), max_size=5), min_size=25),
)
def test_many_counts_at_once(counts: list[Any], bounds: Any, values: list[Any]) -> None:
    schema = {"type": "array", "allOf": counts, **bounds}
    assert compiled(schema, property_order="any") is not UnsupportedSchema
    agree(schema, values)


def test_lists_out_of_lists_that_overlap() -> None:
    """Exactly one of six lists has all of the items."""
    lists = [["a", "b", "c"], ["b", "c", "d"], ["a", "d"], ["e"], ["a", "e"], ["c", "e", "f"]]
    schema = {"oneOf": [{"type": "array", "maxItems": 25, "items": {"enum": letters}} for letters in lists]}
    grammar, judge = COMPILER.compile_json_schema(schema), Judge(schema)
    for n in range(4):
        for value in itertools.product("abcdefg", repeat=n):
            assert accepts(grammar, json.dumps(value)) == judge.is_valid(list(value)), value
    assert accepts(grammar, json.dumps(["f"] * 25))
    assert not accepts(grammar, json.dumps(["f"] * 26))


# ------------------------------------------------------------------------------------------------ patterns and lengths

PIECES = ["(?=[ab]{1,9}:)", "(?!a{2})", "(a|b:?){1,8}", ".{0,12}", "(?<!-)", "[ab:-]{2,6}", "(?=.{3,})", ":", "a?"]


@settings(max_examples=80)
@given(
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=4),
    st.booleans(),
    st.integers(1, 8),
    st.lists(st.text("ab:-", max_size=9), min_size=30),
)
def test_look_around_beside_a_length(pieces: list[str], whole: bool, most: int, texts: list[str]) -> None:
    """Repeats need not be counted beyond the length, also inside of what looks ahead or behind."""
    pattern = "^" * whole + "".join(pieces) + "$" * whole
    grammar = compiled({"type": "string", "pattern": pattern, "maxLength": most})
    for text in texts:
        valid = len(text) <= most and ecma(pattern).find(text) is not None
        if isinstance(grammar, CompiledGrammar):
            assert accepts(grammar, json.dumps(text)) == valid, text
        else:
            assert grammar is not UnsupportedSchema, text
            assert not valid, text


def test_an_address_with_long_parts() -> None:
    """Look-ahead in a loop beside bounds that the length does not reach: what cloud services take for names."""
    part = r"(|(?=[a-z0-9-.]{1,63})(?!\d{1,3}(\.\d{1,3}){3})(?![^:]*-{2})(?![^:]*-\.)[a-z0-9].*(?<!-))"
    schema = {"type": "string", "pattern": rf"^arn:(?=[^:]+:fsx:)({part}:){{4}}(?!/).{{0,1024}}$", "maxLength": 512}
    grammar = COMPILER.compile_json_schema(schema)
    for text in ("arn:aws:fsx:eu-1:123:x", "arn:aws:fsx:eu--1:123:x", "arn:aws:fsx:eu-:1:/x", "arn:aws:sqs:eu:1:x", ""):
        valid = ecma(schema["pattern"]).find(text) is not None
        assert accepts(grammar, json.dumps(text)) == valid, text


LABEL = (
    r"^(?=(.{1,63}/)?.{1,63}$)((([a-z0-9][-a-z0-9_.]*)?[a-z0-9])?/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$",
    ["", "a", "a/b", "/b", "a//b", "a/b/c", "A/b", "a.b-c/D_e", "a-/b", "x" * 63, "x" * 64]
    + ["x" * n + "/" + "y" * m for n in (1, 63, 64) for m in (0, 1, 63, 64)],
)
DOMAIN = (
    r"^(localhost)$|(?=^[a-zA-Z0-9\.\*-]{4,253}$)(?!.*\.-)(?!.*-\.)(?!.*\.\.)(?!.*[^\.]{64,})"
    r"^(\*\.)?(?![-\.\*])[^\*]{1,}\.(\*|(?!.*--)(?=.*[a-zA-Z])[^\*]{1,}[^\*-])$",
    ["localhost", "a.b", "a.bc", "*.a.bc", "a..bc", "a-.bc", "a.-bc", "a.b--c", "a--b.cd", "1.2.3.4", "a.*", "*.*"]
    + ["x" * n + ".com" for n in (63, 64)]
    + [".".join(["x" * 49] * n) + ".org" for n in (4, 5, 6)],
)


@pytest.mark.parametrize(("pattern", "texts", "most"), [(*LABEL, None), (*LABEL, 80), (*DOMAIN, 80), (*DOMAIN, 253)])
def test_look_ahead_that_is_small_beside_the_rest(pattern: str, texts: list[str], most: int | None) -> None:
    """Alone, what the look-ahead describes has a state for each set of places where a part of it may have ended."""
    length = {} if most is None else {"maxLength": most}
    grammar = COMPILER.compile_json_schema({"type": "string", "pattern": pattern, **length})
    names = COMPILER.compile_json_schema({"propertyNames": {"pattern": pattern, **length}})
    for text in texts:
        valid = ecma(pattern).find(text) is not None and len(text) <= (most or len(text))
        assert accepts(grammar, json.dumps(text)) == valid, text
        assert accepts(names, json.dumps({text: 1})) == valid, text


# ------------------------------------------------------------------------------------------------ references astray


def test_pointers_that_take_no_notice_of_an_id(byte_compiler: Compiler) -> None:
    """They lead nowhere in the resource that the `$id` begins. In the document they do, and a warning says so."""
    inner = {"$id": "schemata/account", "properties": {"mail": {"$ref": "#/$defs/account/$defs/mail"}}}
    inner["$defs"] = {"mail": {"type": "string"}}
    schema = {"$defs": {"account": inner}, "properties": {"account": {"$ref": "#/$defs/account"}}}
    grammar = COMPILER.compile_json_schema(schema)
    assert accepts(grammar, '{"account": {"mail": "a"}}')
    assert not accepts(grammar, '{"account": {"mail": 1}}')
    (warning,) = grammar.warnings
    assert warning["keyword"] == "$ref"
    assert "read from the document's root" in warning["reason"]
    # The document is the one that has the pointer, not the one that refers to it.
    other = {
        "$ref": "https://example.com/other#/$defs/account",
        "$defs": {"account": {"$defs": {"mail": {"const": 1}}}},
    }
    grammar = byte_compiler.compile_json_schema(other, registry={"https://example.com/other": schema})
    assert accepts(grammar, '{"mail": "a"}')
    assert not accepts(grammar, '{"mail": 1}')
    # A pointer that leads somewhere in its resource is not looked for elsewhere.
    inner["$defs"]["account"] = {"$defs": {"mail": {"type": "null"}}}
    grammar = COMPILER.compile_json_schema(schema)
    assert accepts(grammar, '{"account": {"mail": null}}')
    assert not grammar.warnings


def test_a_pointer_to_the_root_with_a_slash() -> None:
    tree = {"type": "object", "properties": {"next": {"$ref": "#/"}}, "additionalProperties": False}
    grammar = COMPILER.compile_json_schema(tree)
    assert accepts(grammar, '{"next": {"next": {}}}')
    assert not accepts(grammar, '{"next": {"more": {}}}')
    assert [w["keyword"] for w in grammar.warnings] == ["$ref"]
    grammar = COMPILER.compile_json_schema({**tree, "": {"type": "null"}})
    assert accepts(grammar, '{"next": null}')
    assert not grammar.warnings
    with pytest.raises(InvalidSchema, match="leads nowhere"):
        COMPILER.compile_json_schema({"$ref": "#/$defs/none"})


# ------------------------------------------------------------------------------------------------ what it costs


def large(n: int, other: str) -> dict[str, Any]:
    """An open object of many kinds of parts, each of which may be wrong in many ways."""
    part = {"type": "object", "properties": {f"p{i}": {"type": "integer", "maximum": i} for i in range(n)}}
    parts = {"type": "array", "items": {"oneOf": [{**part, "required": [f"p{i}", other]} for i in range(n)]}}
    return {"type": "object", "properties": {f"k{i}": parts for i in range(n)}, "required": ["k0"]}


@pytest.mark.parametrize("n", [6, 12, 24])
def test_ambiguous_alternatives_of_large_objects_end(n: int) -> None:
    """Compiled or refused, by counting: nobody waits for seconds."""
    started = time.process_time()
    with contextlib.suppress(LimitExceeded):
        COMPILER.compile_json_schema({"oneOf": [large(n, "a"), large(n, "b")]}, limits=Limits(seconds=3600.0))
    assert time.process_time() - started < 2.5


def test_long_lists_of_values_beside_patterns() -> None:
    """Each pattern is tried on each value once, however the values are listed."""
    kinds = [f"Kind{i}@{i % 3}" for i in range(400)]
    kind = {"anyOf": [{"enum": [k]} for k in kinds]}
    branches = [{"properties": {"kind": {"pattern": f"^{k}$"}, "at": {"const": i}}} for i, k in enumerate(kinds)]
    schema = {"type": "object", "properties": {"kind": kind}, "required": ["kind"], "anyOf": branches}
    started = time.process_time()
    grammar = COMPILER.compile_json_schema(schema, property_order="any")
    assert time.process_time() - started < 2.5
    assert accepts(grammar, '{"kind": "Kind7@1", "at": 7}')
    assert not accepts(grammar, '{"kind": "Kind7@1", "at": 8}')
