"""Alternatives as real schemas have them, against `jsonschema`: objects told apart by what they require.

Schemas of services and configuration files say `oneOf` of a dozen open objects, of a reference and a closed object, of
numbers with formats, and `dependencies` of a dozen names on one: what multiplies if each is written out.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gramary.compiler.errors import UnsatisfiableSchema
from gramary.runtime._core import CompiledGrammar

from .judge import Judge, exactly
from .test_oracle_json import COMPILER, accepts, compiled

NAMES = ["a", "b", "cc", "d", "$ref", "é"]
OF_NAMES: list[Any] = [
    {"type": "string"},
    {"type": "integer"},
    {"enum": ["x", 1]},
    {"const": None},
    True,
    {"type": "array"},
]
VALUES: list[Any] = ["x", "y", 1, 2.5, None, True, [], [1], {}, 2**31, -(2**63) - 1]

instances = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES), max_size=4)


@st.composite
def parts(draw: Any) -> dict[str, Any]:
    """An object: open or closed, with what it requires among its properties or beside them."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    schema: dict[str, Any] = {"type": "object", "properties": {n: draw(st.sampled_from(OF_NAMES)) for n in names}}
    schema["required"] = draw(st.lists(st.sampled_from([*names, "d"]), max_size=3, unique=True))
    if draw(st.integers(0, 3)) == 0:
        schema["additionalProperties"] = draw(st.sampled_from([False, {"type": "integer"}]))
    if draw(st.integers(0, 5)) == 0:
        schema["patternProperties"] = {"^[ac]": True}
    return schema


def agree(schema: Any, values: list[Any]) -> None:
    """Accepts what is valid, and nothing else."""
    judge, grammar = Judge(exactly(schema)), compiled(schema, property_order="any")
    for value in values:
        valid = judge.is_valid(exactly(value))
        if grammar is UnsatisfiableSchema:
            assert not valid, value
        elif isinstance(grammar, CompiledGrammar):
            assert accepts(grammar, json.dumps(value)) == valid, value


@settings(max_examples=150)
@given(st.lists(parts(), min_size=2, max_size=5), st.sampled_from(["oneOf", "anyOf"]), st.lists(instances, min_size=12))
def test_objects_told_apart_by_what_they_require(branches: list[Any], keyword: str, values: list[Any]) -> None:
    agree({keyword: branches}, values)


@settings(max_examples=100)
@given(parts(), parts(), st.lists(instances, min_size=12))
def test_one_and_not_the_other(wanted: Any, unwanted: Any, values: list[Any]) -> None:
    agree({"allOf": [wanted], "not": unwanted}, values)


def test_many_open_objects() -> None:
    """A dozen alternatives, each with a name of its own and one in common; all must exclude each other."""
    common = {"html_url": {"type": "string"}}
    kinds = [f"kind_{i}" for i in range(12)]
    branch = [{"type": "object", "properties": {k: {"type": "string"}, **common}, "required": [k]} for k in kinds]
    grammar = COMPILER.compile_json_schema({"oneOf": branch}, property_order="any")
    assert accepts(grammar, '{"kind_3": "x", "html_url": "y", "more": 1}')
    assert accepts(grammar, '{"kind_3": "x", "kind_4": 1}')
    assert not accepts(grammar, '{"kind_3": "x", "kind_4": "y"}')
    assert not accepts(grammar, '{"html_url": "y"}')


def test_a_reference_or_what_a_closed_schema_describes() -> None:
    """An object with a name that a closed schema does not know is not described by it, whatever else may be wrong."""
    closed = {
        "type": "object",
        "properties": {"tags": {"type": "array", "uniqueItems": True}, "re": {"type": "string", "format": "regex"}},
        "patternProperties": {"^x-": True},
        "additionalProperties": False,
    }
    reference = {"type": "object", "properties": {"$ref": {"type": "string"}}, "required": ["$ref"]}
    grammar = COMPILER.compile_json_schema({"oneOf": [reference, closed]}, property_order="any")
    assert accepts(grammar, '{"$ref": "x", "tags": [1, 1]}')
    assert accepts(grammar, '{"tags": [1, 2]}')
    assert not accepts(grammar, '{"tags": [1, 1]}')


@settings(max_examples=60)
@given(
    st.dictionaries(st.sampled_from(NAMES), st.lists(st.sampled_from(NAMES), max_size=2, unique=True), max_size=6),
    st.lists(instances, min_size=15),
)
def test_dependencies_on_names(needs: dict[str, list[str]], values: list[Any]) -> None:
    agree({"type": "object", "dependentRequired": needs}, values)


def test_many_properties_that_need_the_same_one() -> None:
    needs = {f"setting_{i}": ["daemon"] for i in range(30)}
    grammar = COMPILER.compile_json_schema({"type": "object", "dependentRequired": needs}, property_order="any")
    assert accepts(grammar, '{"setting_7": 1, "x": 2, "daemon": 3}')
    assert not accepts(grammar, '{"setting_7": 1, "x": 2}')


NUMBERS = [0, -1, 1.5, 2**31 - 1, 2**31, -(2**31) - 1, 2**63, -(2**63), 10**40, 3.5e38, -1e39, "x", None]


@pytest.mark.parametrize("name", ["int32", "int64", "float", "double"])
def test_numbers_without_a_format(name: str) -> None:
    most = {"int32": 2**31 - 1, "int64": 2**63 - 1, "float": 3.4028234663852886e38, "double": 1.7976931348623157e308}

    def has(value: Any) -> bool:
        if not isinstance(value, int | float):
            return True
        whole = name.startswith("int")
        return -most[name] - whole <= value <= most[name] and (not whole or value == int(value))

    without = COMPILER.compile_json_schema({"not": {"format": name}})
    either = COMPILER.compile_json_schema({"oneOf": [{"type": ["number", "null"]}, {"format": name}]})
    for value in NUMBERS:
        text = json.dumps(value)
        assert accepts(without, text) == (not has(value)), value
        assert accepts(either, text) == ((not isinstance(value, str)) != has(value)), value


@settings(max_examples=60)
@given(
    st.lists(
        st.sampled_from(
            [{"enum": ["a", "b"]}, {"const": "cc"}, {"pattern": "^x"}, {"pattern": "a"}, {"minLength": 3}, {"enum": []}]
        ),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from(["anyOf", "oneOf"]),
    st.booleans(),
    st.lists(
        st.dictionaries(st.sampled_from(["a", "b", "cc", "x", "xa", "baa"]), st.sampled_from([1, "y"]), max_size=3),
        min_size=15,
    ),
)
def test_names_from_a_list_or_by_a_pattern(names: Any, keyword: str, negated: bool, values: list[Any]) -> None:
    schema: Any = {"propertyNames": {keyword: names}, "properties": {"a": {"type": "integer"}}}
    agree({"type": "object", "not": schema} if negated else {"type": "object", **schema}, values)


def test_a_bound_on_repeats_that_a_length_does_not_reach() -> None:
    """Counting both would multiply: the bound on repeats says nothing there."""
    for bound in (8, 1016):
        pattern = f"^https://([.a-z]+/?){{2,{bound}}}$"
        grammar = COMPILER.compile_json_schema({"type": "string", "pattern": pattern, "maxLength": 16})
        for text in (
            "https://a.b/c",
            "https://a/b/c/d/",
            "https://abcdefgh",
            "https://abcdefghi",
            "https://a",
            "https:///a",
        ):
            assert accepts(grammar, json.dumps(text)) == (
                text in ("https://a.b/c", "https://a/b/c/d/", "https://abcdefgh")
            )


def test_why_nothing_matches() -> None:
    """What a closed part of `allOf` does not allow cannot be required: the property and the place are named."""
    schema = {
        "type": "object",
        "properties": {
            "at": {"required": ["city"], "additionalProperties": False, "allOf": [{"properties": {"city": True}}]}
        },
        "required": ["at"],
    }
    schema["properties"]["at"]["type"] = "object"
    with pytest.raises(
        UnsatisfiableSchema, match='"city" is required, and /properties/at/additionalProperties'
    ) as caught:
        COMPILER.compile_json_schema(schema)
    assert caught.value.pointer == "/properties/at"
    # A property that need not be there is not what is wrong.
    told = {
        "properties": {"x": {"type": "object", "required": ["y"], "additionalProperties": False}},
        "required": ["at"],
    }
    told["properties"]["at"] = {"type": "array", "oneOf": [{"minItems": 1}, {"minItems": 2}], "minItems": 3}
    with pytest.raises(UnsatisfiableSchema, match="/properties/at: its keywords contradict each other"):
        COMPILER.compile_json_schema({"type": "object", **told})


def test_order_of_alternatives_changes_nothing() -> None:
    branches = [{"properties": {n: {"type": "string"}, "b": {"type": "integer"}}, "required": [n]} for n in "acd"]
    rng, texts = (
        random.Random(3),
        ['{"a": "x"}', '{"a": "x", "c": 1}', '{"a": "x", "c": "y"}', '{"b": 1}', '{"c": "", "b": ""}'],
    )
    found = set()
    for _ in range(4):
        rng.shuffle(branches)
        grammar = COMPILER.compile_json_schema({"type": "object", "oneOf": branches}, property_order="any")
        found.add(tuple(accepts(grammar, text) for text in texts))
    assert found == {(True, True, False, False, False)}
