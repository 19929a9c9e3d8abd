"""How JSON may be laid out: whitespace, separators, indents, digits, escapes."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from gramary.runtime._core import CompiledGrammar, Compiler, Vocabulary

from ..oracle import brute_force, mask

WORDS = [
    b" ",
    b"  ",
    b"    ",
    b" " * 40,
    b"\n",
    b"\n" + b" " * 70,
    b"\t\t",
    b'{"',
    b'": ',
    b", ",
    b",\n    ",
    b"1234567",
]
RUNS = [b"x" + b" " * 9 + b"y", b'"' + b" " * 70, b"0.0000000001", "é".encode(), b"}\n\n\n\n\n\n"]
TOKENS = [*(bytes([b]) for b in range(256)), *WORDS, *RUNS, b"</s>"]
STOP = len(TOKENS) - 1
COMPILER = Compiler(Vocabulary.from_tokens(TOKENS, special=[STOP]), stop_token_ids=[STOP])

ANY: dict[str, Any] = {}
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
        "at": {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "number"}}},
        "kind": {"const": {"a": [1, {"b": []}], "c": {}}},
        "pair": {"type": "array", "prefixItems": [{"type": "null"}, {"type": "array"}]},
        "some": {"type": "array", "contains": {"const": 1}, "items": {"type": "integer"}},
        "once": {"type": "array", "items": {"enum": ["p", "q"]}, "uniqueItems": True},
    },
    "additionalProperties": {"type": "integer"},
}
VALUES: list[Any] = [
    {},
    {"name": "é\n x   y 12345678"},
    {"name": "a", "tags": [], "at": {}, "kind": {"a": [1, {"b": []}], "c": {}}},
    {"tags": ["a", "b"], "at": {"x": 1.5, "y": -2}, "pair": [None, []], "some": [2, 1], "once": ["q", "p"], "z": 3},
    {"pair": [], "once": [], "z": 3},
    {"pair": [None, [[], {}, [1, [2]]]]},
]


def nested(depth: int) -> Any:
    value: Any = 1
    for i in range(depth):
        value = [value, value] if i % 2 and i < 6 else {"k": value}
    return value


def accepts(grammar: CompiledGrammar, text: str | bytes) -> bool:
    matcher = grammar.matcher()
    return matcher.accept_bytes(text) and matcher.is_complete()


@pytest.mark.parametrize("indent", [None, 0, 1, 2, 3, 4])
@pytest.mark.parametrize("separators", [None, (",", ":"), (", ", ": "), (" , ", " :")])
def test_exactly_what_dumps_writes(indent: int | None, separators: tuple[str, str] | None) -> None:
    """Asked for an indent or separators, just that spelling and no other."""
    if indent is None and separators is None:
        return
    layouts = [(i, s) for i in (None, 0, 1, 2, 3, 4) for s in ((",", ":"), (", ", ": "), (" , ", " :"), (",", ": "))]
    wanted = (indent, separators or (",", ": "))
    for schema in (PERSON, ANY):
        grammar = COMPILER.compile_json_schema(schema, indent=indent, separators=separators)
        for value in VALUES:
            text = json.dumps(value, indent=indent, separators=separators)
            assert accepts(grammar, text), text
            if schema is not PERSON:
                continue
            for i, s in layouts:
                other = json.dumps(value, indent=i, separators=s)
                if (i, s) != wanted and other != text:
                    assert not accepts(grammar, other), other


@pytest.mark.parametrize("indent", [2, 4])
def test_indents_are_exact_to_a_depth_and_bounded_beyond(indent: int) -> None:
    schema = {
        "$ref": "#/$defs/n",
        "$defs": {"n": {"additionalProperties": {"$ref": "#/$defs/n"}, "items": {"$ref": "#/$defs/n"}}},
    }
    grammar = COMPILER.compile_json_schema(schema, indent=indent)
    for depth in (1, 7, 8, 9, 12, 16):
        text = json.dumps(nested(depth), indent=indent)
        assert accepts(grammar, text), depth
        shallow = text.replace("\n" + " " * indent, "\n", 1)
        assert not accepts(grammar, shallow)
    assert not accepts(grammar, json.dumps(nested(9), indent=indent).replace("\n" + " " * indent * 9, "\n" + " " * 300))


@pytest.mark.parametrize("indent", [None, 2, 4])
def test_flexible_takes_what_dumps_writes_to_depth_16(indent: int | None) -> None:
    for grammar in (COMPILER.compile_json_schema(PERSON), COMPILER.compile_json_schema(ANY)):
        for value in VALUES:
            for ascii_only in (True, False):
                assert accepts(grammar, json.dumps(value, indent=indent, ensure_ascii=ascii_only))
    grammar = COMPILER.compile_json_schema(ANY)
    assert accepts(grammar, json.dumps(nested(16), indent=indent))


@pytest.mark.parametrize(
    "options",
    [{}, {"max_whitespace": 1}, {"max_whitespace": 5, "max_digits": 3}, {"max_digits": 1}, {"ensure_ascii": True}],
)
def test_masks_know_the_bounds(options: dict[str, Any]) -> None:
    """A mask is what stepping says, also near a bound."""
    starts = ["", "{", "[", '{"name"', '{"name":', '["a', '["a"', "[1", "[12", "[1.", '{"name": "a', "[1,", '"']
    for schema in (ANY, PERSON, {"type": "array", "items": {"minimum": 100, "maximum": 99_999}}):
        grammar = COMPILER.compile_json_schema(schema, **options)
        for start in starts:
            for pad in ("", " ", "    ", "\n" + " " * 62, "\n" + " " * 64):
                matcher = grammar.matcher()
                if matcher.accept_bytes(start + pad):
                    assert mask(matcher, len(TOKENS)) == brute_force(matcher, range(len(TOKENS))), (start, pad)


def test_whitespace_in_a_row_is_bounded() -> None:
    grammar = COMPILER.compile_json_schema(ANY, max_whitespace=3)
    for text in ("[ 1,\n\t 2]", '{\n  "a    b":   1}', '"      "', "[\t\t\t]"):
        assert accepts(grammar, text), text
    for text in ("[    1]", "[1    ]", '{"a"\n\n\n\n:1}', "[\n   1]"):
        assert not accepts(grammar, text), text
    assert accepts(COMPILER.compile_json_schema(ANY, max_whitespace=None), "[" + " " * 500 + "]")


def test_digits_in_a_row_are_bounded_but_never_missing() -> None:
    grammar = COMPILER.compile_json_schema({"type": "number"}, max_digits=4)
    for text in ("1234", "1234.5678e1234", "-0.0001"):
        assert accepts(grammar, text), text
    for text in ("12345", "1.23456", "1e00001"):
        assert not accepts(grammar, text), text
    assert accepts(COMPILER.compile_json_schema({"type": "string"}, max_digits=1), '"1234567"')
    # What needs more digits gets them.
    for schema, text in (
        ({"type": "integer", "minimum": 10**9, "maximum": 10**10 - 1}, "1234567890"),
        ({"const": 123456}, "123456"),
        ({"type": "number", "exclusiveMinimum": 0, "maximum": 0.0000001}, "0.0000001"),
    ):
        assert accepts(COMPILER.compile_json_schema(schema, max_digits=2), text), text


@pytest.mark.parametrize(
    "schema",
    [
        ANY,
        {"type": "array"},
        {"type": "object", "properties": {"a": {"type": "number"}}, "additionalProperties": {"type": "number"}},
        {"type": "number", "multipleOf": 0.01},
        {"type": "number", "minimum": 0.5},
        {"enum": [1, 2.5, [3]]},
        {"const": 1e-7},
        {"type": "integer", "multipleOf": 5},
        {"type": "number", "multipleOf": 1.9997},
    ],
)
@pytest.mark.parametrize("likes", [b" \n\t\r", b"0123456789", b"0", b"9.e-"])
def test_a_sampler_that_likes_whitespace_or_digits_comes_to_an_end(schema: Any, likes: bytes) -> None:
    """Whatever it likes is taken whenever it is allowed; what it must, else; then the shortest way out."""
    grammar = COMPILER.compile_json_schema(schema, max_digits=16, max_whitespace=20)
    matcher, rng = grammar.matcher(), random.Random(1)
    row = np.zeros((1, (len(TOKENS) + 31) // 32), dtype=np.int32)
    out = bytearray()
    for _ in range(2_000):
        matcher.fill_bitmask(row)
        allowed = [t for t in range(len(TOKENS)) if row[0, t >> 5] >> (t & 31) & 1]
        liked = [t for t in allowed if TOKENS[t] and all(b in likes for b in TOKENS[t])]
        if liked:
            token = rng.choice(liked)
        elif STOP in allowed:
            return
        else:
            order = [b"]", b"}", b"1", b":", b"e", b",", b'"']
            token = min(allowed, key=lambda t: order.index(TOKENS[t]) if TOKENS[t] in order else 99)
        out += TOKENS[token]
        assert matcher.accept_token(token)
    raise AssertionError(bytes(out[-100:]))


def test_ascii_only() -> None:
    grammar = COMPILER.compile_json_schema({"properties": {"é": {"enum": ["ü", "a"]}}}, ensure_ascii=True)
    assert accepts(grammar, json.dumps({"é": "ü", "ä": "€😀"}))
    for text in ('{"é": "a"}', '{"\\u00e9": "ü"}', '{"a": "é"}'):
        assert not accepts(grammar, text), text


def test_bounds_read_the_arguments_of_tools_only() -> None:
    tools = [{"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}]
    options: dict[str, Any] = {"begin": "<f={name}>", "end": "  </f>", "max_whitespace": 2, "max_digits": 2}
    grammar = COMPILER.compile_tools(tools, **options)
    for text in ('12345      "x <f=f>{"a":  12}  </f>       123', "<f=f>{}  </f>    <f=f>{}  </f>"):
        matcher = grammar.matcher()
        assert matcher.accept_bytes(text), text
        assert mask(matcher, len(TOKENS)) == brute_force(matcher, range(len(TOKENS)))
    for text in ('<f=f>{"a":   1', '<f=f>{"a": 123', "<f=f>{   "):
        assert not grammar.matcher().accept_bytes(text), text
    for start in ("<f=f>", '<f=f>{"a": 1', '<f=f>{"a":  ', "<f=f>{} ", "<f="):
        matcher = grammar.matcher()
        assert matcher.accept_bytes(start)
        assert mask(matcher, len(TOKENS)) == brute_force(matcher, range(len(TOKENS))), start


def test_bounds_survive_rollback_and_fork() -> None:
    matcher = COMPILER.compile_json_schema(ANY, max_whitespace=2).matcher(max_rollback_tokens=8)
    for text in ("[", " ", " "):
        assert matcher.accept_bytes(text)
    fork = matcher.fork()
    assert not matcher.accept_bytes(" ")
    matcher.rollback(1)
    assert matcher.accept_bytes(" ")
    assert not matcher.accept_bytes(" ")
    assert not fork.accept_bytes(" ")
    matcher.reset()
    assert matcher.accept_bytes("[  ")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_whitespace": 0}, ValueError),
        ({"max_digits": -1}, ValueError),
        ({"indent": 99}, ValueError),
        ({"separators": ("x", ":")}, ValueError),
        ({"separators": (",", "=")}, ValueError),
        ({"whitespace": "compact", "indent": 2}, ValueError),
        ({"draft": "3"}, ValueError),
        ({"colour": 1}, TypeError),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        COMPILER.compile_json_schema(ANY, **options)
