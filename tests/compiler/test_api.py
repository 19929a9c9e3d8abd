"""`Compiler`, the thin Python layer: what it takes, how it hands things on, and errors that cross the binding."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pydantic
import pytest

from gramary.compiler import (
    Compiler,
    InvalidPattern,
    InvalidSchema,
    LimitExceeded,
    Limits,
    RollbackError,
    Tokenizer,
    ToolError,
    UnsatisfiableSchema,
    UnsupportedSchema,
)
from gramary.runtime import CompiledGrammar, allocate_bitmask, is_allowed, tokens_of

if sys.version_info >= (3, 12):
    from typing import TypedDict
else:
    from typing_extensions import TypedDict

NOW = {"name": "now", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}
BAD = {"name": "bad", "parameters": {"type": "object", "properties": {"x": {"type": "nonsense"}}}}


class Model(pydantic.BaseModel):
    n: int


@dataclass
class Record:
    n: int


class Typed(TypedDict):
    n: int


def matches(grammar: CompiledGrammar, text: str) -> bool:
    matcher = grammar.matcher()
    return matcher.accept_bytes(text) and matcher.is_complete()


INTEGER_N = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize(
    "source",
    [INTEGER_N, json.dumps(INTEGER_N), json.dumps(INTEGER_N).encode(), Model, Record, Typed],
    ids=["dict", "str", "bytes", "pydantic", "dataclass", "TypedDict"],
)
def test_schemas_come_in_many_forms(byte_compiler: Compiler, source: Any) -> None:
    grammar = byte_compiler.compile_json_schema(source)
    assert matches(grammar, '{"n": 3}')
    assert not matches(grammar, '{"n": "3"}')


def test_text_and_dict_are_one_grammar(byte_compiler: Compiler) -> None:
    one = byte_compiler.compile_json_schema(INTEGER_N)
    assert one.digest == byte_compiler.compile_json_schema(json.dumps(INTEGER_N, indent=4)).digest
    assert one.digest != byte_compiler.compile_json_schema({"type": "object"}).digest
    assert len(one.digest) == 32


def test_booleans_are_schemas(byte_compiler: Compiler) -> None:
    assert matches(byte_compiler.compile_json_schema(True), '[1, {"a": null}]')
    with pytest.raises(UnsatisfiableSchema):
        byte_compiler.compile_json_schema(False)


def test_a_class_that_pydantic_cannot_describe_is_a_type_error(byte_compiler: Compiler) -> None:
    with pytest.raises((TypeError, pydantic.errors.PydanticSchemaGenerationError)):
        byte_compiler.compile_json_schema(CompiledGrammar)


def test_whitespace_and_order(byte_compiler: Compiler) -> None:
    schema = {"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}}, "additionalProperties": False}
    compact = byte_compiler.compile_json_schema(schema, whitespace="compact")
    assert matches(compact, '{"a":1,"b":2}')
    assert not matches(compact, '{"a": 1}')
    declared = byte_compiler.compile_json_schema(schema)
    in_any_order = byte_compiler.compile_json_schema(schema, property_order="any")
    assert matches(declared, '{"a": 1,\n    "b": 2}')
    assert not matches(declared, '{"b": 2, "a": 1}')
    assert matches(in_any_order, '{"b": 2, "a": 1}')
    assert not matches(in_any_order, '{"b": 2, "b": 2}')


@pytest.mark.parametrize("option", [{"property_order": "sorted"}, {"whitespace": "lots"}])
def test_unknown_options_are_value_errors(byte_compiler: Compiler, option: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(option.values()))):
        byte_compiler.compile_json_schema(True, **option)


def test_invalid_schemas_are_placed(byte_compiler: Compiler) -> None:
    with pytest.raises(InvalidSchema) as caught:
        byte_compiler.compile_json_schema({"properties": {"a/b": {"type": "nonsense"}}})
    assert caught.value.pointer.startswith("/properties/a~1b")
    with pytest.raises(InvalidSchema) as caught:
        byte_compiler.compile_json_schema('{"type": "object",\n  ]')
    assert caught.value.line == 2


def test_unsupported_schemas_name_keyword_and_remedy(byte_compiler: Compiler) -> None:
    schema = {"properties": {"a": {"type": "array", "contains": {"type": "number"}, "uniqueItems": True}}}
    with pytest.raises(UnsupportedSchema) as caught:
        byte_compiler.compile_json_schema(schema)
    assert (caught.value.pointer.startswith("/properties/a"), caught.value.keyword) == (True, "uniqueItems")
    assert caught.value.remedy
    warnings = byte_compiler.compile_json_schema(schema, lenient=True).warnings
    assert [warning["keyword"] for warning in warnings] == ["uniqueItems"]


def test_unsatisfiable_schemas_say_so(byte_compiler: Compiler) -> None:
    with pytest.raises(UnsatisfiableSchema):
        byte_compiler.compile_json_schema({"type": "object", "required": ["a"], "additionalProperties": False})


def test_patterns(byte_compiler: Compiler) -> None:
    assert matches(byte_compiler.compile_regex("a+b?"), "aab")
    assert not matches(byte_compiler.compile_regex("a+b?"), "xaab")
    with pytest.raises(InvalidPattern):
        byte_compiler.compile_regex("a(b")


def test_limits_are_named(byte_compiler: Compiler) -> None:
    with pytest.raises(LimitExceeded) as caught:
        byte_compiler.compile_regex("(a|b)*a(a|b){12}c", limits=Limits(fsm_states=5))
    assert (caught.value.limit, caught.value.value) == ("fsm_states", 5)
    with pytest.raises(LimitExceeded) as caught:
        byte_compiler.compile_json_schema('{"title": "not seen before"}', limits=Limits(source_bytes=3))
    assert caught.value.limit == "source_bytes"


def test_one_bad_tool(byte_compiler: Compiler) -> None:
    with pytest.raises(ToolError) as caught:
        byte_compiler.compile_tools([NOW, BAD])
    error = caught.value
    assert (error.index, error.name) == (1, "bad")
    assert isinstance(error.cause, InvalidSchema)
    assert error.pointer.endswith("/properties/x/type")
    dropped = byte_compiler.compile_tools([NOW, BAD], on_error="drop")
    assert [(tool["index"], tool["name"]) for tool in dropped.dropped_tools] == [(1, "bad")]
    assert matches(dropped, "<function=now>{}</function>")
    assert not matches(dropped, '<function=bad>{"x": 1}</function>')
    loose = byte_compiler.compile_tools([NOW, BAD], on_error="any_json")
    assert matches(loose, '<function=bad>{"x": [1]}</function>')
    assert not matches(loose, "<function=bad>[1]</function>")


def test_tools_of_one_name_are_always_an_error(byte_compiler: Compiler) -> None:
    for on_error in ("raise", "drop", "any_json"):
        with pytest.raises(ToolError) as caught:
            byte_compiler.compile_tools([NOW, {**NOW}], on_error=on_error)
        assert (caught.value.index, caught.value.name) == (1, "now")


def test_tools_in_openais_shape_and_as_text(byte_compiler: Compiler) -> None:
    openai = [{"type": "function", "function": {**NOW, "description": "The time."}}]
    for tools in ([NOW], openai, json.dumps(openai), json.dumps([NOW]).encode()):
        grammar = byte_compiler.compile_tools(tools)
        assert matches(grammar, "Now: <function=now>{}</function>.")
        assert not matches(grammar, '<function=now>{"x": 1}</function>')


def test_counts_and_ends_of_calls(byte_compiler: Compiler) -> None:
    call = "<function=now>{}</function>"
    one = byte_compiler.compile_tools([NOW], min_calls=1, max_calls=1, stop_after_last=True)
    assert matches(one, "Well: " + call)
    assert not matches(one, "Well.")
    assert not matches(one, call + ".")
    stopped = byte_compiler.compile_tools([NOW], stops=["\n\n"])
    assert matches(stopped, call + "Done.\n\n")
    assert not matches(stopped, "Done.\n\n" + call)


def test_overlapping_triggers(byte_compiler: Compiler) -> None:
    grammar = byte_compiler.compile_tags([("bcZ", {"const": 1}, "!"), ("abcdY", {"const": 2}, "!")], ["bc", "abcd"])
    assert matches(grammar, "abcZ1!")
    assert matches(grammar, "abcdY2!x")
    assert not matches(grammar, "abcY")


def test_padding_is_never_allowed_and_stop_tokens_are_the_callers() -> None:
    compiler = Compiler(Tokenizer.from_bytes(), vocab_size=300, stop_token_ids=[10, 256])
    matcher = compiler.compile_regex("a").matcher()
    bitmask = allocate_bitmask(1, compiler.vocab_size)
    matcher.fill_bitmask(bitmask)
    assert tokens_of(bitmask).tolist() == [ord("a")]
    matcher.accept_token(ord("a"))
    matcher.fill_bitmask(bitmask)
    assert tokens_of(bitmask).tolist() == [10, 256]
    assert matcher.accept_token(10)
    assert matcher.is_terminated()


def test_masks_go_to_arrays_rows_and_addresses(byte_compiler: Compiler) -> None:
    matcher = byte_compiler.compile_regex("[ab]").matcher()
    bitmask = allocate_bitmask(3, byte_compiler.vocab_size)
    matcher.fill_bitmask(bitmask, 1)
    assert tokens_of(bitmask[1]).tolist() == [97, 98]
    assert (bitmask[[0, 2]] == -1).all()
    other = np.zeros_like(bitmask)
    matcher.fill_bitmask(other.ctypes.data, 2)
    assert (other[2] == bitmask[1]).all()
    assert not other[:2].any()
    with pytest.raises((ValueError, IndexError)):
        matcher.fill_bitmask(bitmask, 3)
    with pytest.raises((TypeError, ValueError, BufferError)):
        matcher.fill_bitmask(np.zeros((1, 9), dtype=np.float64))


def test_rolling_back_too_far_is_an_error(byte_compiler: Compiler) -> None:
    matcher = byte_compiler.compile_regex("a*").matcher(max_rollback_tokens=2)
    assert matcher.accept_tokens([97, 97, 97]) == 3
    matcher.rollback(2)
    with pytest.raises(RollbackError) as caught:
        matcher.rollback(2)
    assert caught.value.asked == 2
    assert matcher.num_tokens() == 1


def test_entries_can_be_kept(tmp_path: Path) -> None:
    first, second = Compiler(Tokenizer.from_bytes()), Compiler(Tokenizer.from_bytes())
    assert first.prewarm() > 0
    saved = first.save_entries(tmp_path / "entries")
    assert second.load_entries(tmp_path / "entries") == saved > 0
    bitmasks = []
    for compiler in (first, second):
        matcher = compiler.compile_json_schema({"type": "string"}).matcher()
        matcher.accept_bytes('"')
        bitmask = allocate_bitmask(1, compiler.vocab_size)
        matcher.fill_bitmask(bitmask)
        bitmasks.append(bitmask)
    assert (bitmasks[0] == bitmasks[1]).all()


def test_a_real_tokenizer_masks_real_calls(tekken_compiler: Compiler, catalogue: list[dict[str, Any]]) -> None:
    offered = [tool for tool in catalogue if tool["call"] is not None][::20]
    grammar = tekken_compiler.compile_tools([{"name": t["name"], "parameters": t["parameters"]} for t in offered])
    for tool in offered[:10]:
        matcher = grammar.matcher()
        assert matcher.accept_bytes(f"Right. <function={tool['name']}>{json.dumps(tool['call'])}</function>")
        assert matcher.is_complete()
        bitmask = allocate_bitmask(1, tekken_compiler.vocab_size)
        matcher.fill_bitmask(bitmask)
        assert all(is_allowed(bitmask, token) for token in tekken_compiler.stop_token_ids)
