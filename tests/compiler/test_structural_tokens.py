"""Structural tags on tokens: by id and by text, special and added tokens as markers, tokens that end the text."""

from typing import Any

import pytest

from gramary.compiler import Compiler, UnsatisfiableSchema, Vocabulary
from gramary.runtime._core import CompiledGrammar, Matcher
from tests.structural_tags import Format

BYTES = [bytes([i]) for i in range(256)]
WORDS = [b"hello", b"<call>", b"</call>", b"<|call|>", b"<|end|>", b"</s>", b"ab"]
HELLO, CALL, END_CALL, SPECIAL, SPECIAL_END, STOP, AB = range(256, 263)


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    """`<call>` is an added token, `<|call|>` a special one; `</s>` ends the text."""
    vocabulary = Vocabulary.from_tokens([*BYTES, *WORDS], special=[SPECIAL, SPECIAL_END, STOP], added=[CALL, END_CALL])
    return Compiler(vocabulary, stop_token_ids=[STOP])


def compiled(compiler: Compiler, node: Format, **options: Any) -> CompiledGrammar:
    return compiler.compile_structural_tag({"type": "structural_tag", "format": node}, **options)


def ids(*parts: str | int) -> list[int]:
    return [t for part in parts for t in ([part] if isinstance(part, int) else list(part.encode()))]


def accepts(grammar: CompiledGrammar, *parts: str | int) -> bool:
    matcher = grammar.matcher()
    tokens = ids(*parts)
    for i, token in enumerate(tokens):
        allowed = mask(matcher)
        taken = matcher.accept_token(token)
        assert taken == (token in allowed), (parts, i)
        if not taken:
            return False
    return matcher.is_complete()


def mask(matcher: Matcher) -> set[int]:
    import numpy as np

    row = np.zeros((1, 9), dtype=np.int32)
    matcher.fill_bitmask(row)
    bits = np.unpackbits(row.view(np.uint8), bitorder="little")
    return {int(i) for i in np.flatnonzero(bits)}


def token(value: int | str) -> Format:
    return {"type": "token", "token": value}


def const(value: str) -> Format:
    return {"type": "const_string", "value": value}


def test_one_token(compiler: Compiler) -> None:
    for name in (SPECIAL, "<|call|>"):
        grammar = compiled(compiler, token(name))
        assert accepts(grammar, SPECIAL)
        assert not accepts(grammar, "<|call|>")
    # An ordinary token, as itself and not by its bytes.
    for name in (HELLO, "hello"):
        grammar = compiled(compiler, token(name))
        assert accepts(grammar, HELLO)
        assert not accepts(grammar, "hello")
    grammar = compiled(compiler, {"type": "sequence", "elements": [token("ab"), const("c")]})
    assert accepts(grammar, AB, "c")
    assert not accepts(grammar, "abc")


def test_a_token_may_count_twice(compiler: Compiler) -> None:
    both = {"type": "or", "elements": [{"type": "sequence", "elements": [token("ab"), const("x")]}, const("aby")]}
    grammar = compiled(compiler, both)
    assert accepts(grammar, AB, "x")
    assert accepts(grammar, AB, "y")
    assert accepts(grammar, "aby")
    assert not accepts(grammar, "abx")


def test_any_token_but_some(compiler: Compiler) -> None:
    grammar = compiled(compiler, {"type": "exclude_token", "exclude_tokens": [SPECIAL, "hello"]})
    matcher = grammar.matcher()
    assert mask(matcher) == set(range(263)) - {SPECIAL, HELLO, STOP}
    assert accepts(grammar, SPECIAL_END)
    assert not accepts(grammar, SPECIAL)
    assert not accepts(grammar, "a", "a")
    many = compiled(compiler, {"type": "any_tokens", "exclude_tokens": [SPECIAL], "max_tokens": 2})
    assert accepts(many)
    assert accepts(many, HELLO, CALL)
    assert not accepts(many, HELLO, "a", "a")
    assert mask(many.matcher()) == set(range(263)) - {SPECIAL}
    # The token that ends the text does so and nothing else.
    matcher = many.matcher()
    assert matcher.accept_token(STOP)
    assert matcher.is_terminated()


def test_any_tokens_of_a_tag_hold_no_end(compiler: Compiler) -> None:
    node = {"type": "tag", "begin": token(SPECIAL), "content": {"type": "any_tokens"}, "end": token("<|end|>")}
    grammar = compiled(compiler, node)
    assert accepts(grammar, SPECIAL, HELLO, "x", SPECIAL, SPECIAL_END)
    assert not accepts(grammar, SPECIAL, SPECIAL_END, SPECIAL_END)
    assert not accepts(grammar, SPECIAL, HELLO)


def call(name: str, content: Format) -> Format:
    return {"type": "tag", "begin": f"<|call|>{name}:", "content": content, "end": "<|end|>"}


@pytest.mark.parametrize("forbid", [True, False])
def test_special_tokens_in_strings(compiler: Compiler, forbid: bool) -> None:
    node = {
        "type": "triggered_tags",
        "triggers": ["<|call|>"],
        "tags": [
            call("f", {"type": "json_schema", "json_schema": {"type": "string"}}),
            call("g", {"type": "any_text"}),
        ],
    }
    grammar = compiled(compiler, node, forbid_spelled_markers=forbid)
    assert accepts(grammar, "so ", SPECIAL, 'f:"x"', SPECIAL_END, HELLO, SPECIAL, "g:", HELLO, SPECIAL_END)
    assert accepts(grammar, "héé", HELLO)
    assert not accepts(grammar, SPECIAL, "h:")
    assert not accepts(grammar, SPECIAL_END)
    assert not accepts(grammar, SPECIAL, 'f:"x"<|end|>')
    # Spelled out, in free text and in JSON strings.
    assert accepts(grammar, "a<|call|>b") != forbid
    assert accepts(grammar, SPECIAL, "g:<|end|>", SPECIAL_END) != forbid
    assert accepts(grammar, SPECIAL, 'f:"<|end|>"', SPECIAL_END) != forbid
    assert accepts(grammar, SPECIAL, 'f:"<|end|"', SPECIAL_END)


def test_added_tokens_are_text(compiler: Compiler) -> None:
    node = {
        "type": "triggered_tags",
        "triggers": ["<call>"],
        "tags": [{"type": "tag", "begin": "<call>", "content": const("x"), "end": "</call>"}],
    }
    grammar = compiled(compiler, node)
    assert accepts(grammar, CALL, "x", END_CALL)
    assert accepts(grammar, "<call>x</call>", CALL, "x</call>")
    assert not accepts(grammar, "<call>y")
    assert not accepts(grammar, CALL, "y")


def test_token_triggers(compiler: Compiler) -> None:
    tag = {"type": "tag", "begin": token("<call>"), "content": const("x"), "end": token("</call>")}
    node = {"type": "token_triggered_tags", "trigger_tokens": ["<call>"], "tags": [tag], "exclude_tokens": [HELLO]}
    grammar = compiled(compiler, node)
    assert accepts(grammar)
    assert accepts(grammar, "a", SPECIAL, CALL, "x", END_CALL, "b")
    assert not accepts(grammar, HELLO)
    assert not accepts(grammar, CALL, "y")
    once = compiled(compiler, {**node, "at_least_one": True, "stop_after_first": True})
    assert accepts(once, CALL, "x", END_CALL)
    assert not accepts(once, "a", CALL, "x", END_CALL)
    rules = [[CALL, const("x")], ["hello", {"type": "any_tokens", "exclude_tokens": [CALL]}]]
    dispatch = compiled(compiler, {"type": "token_dispatch", "rules": rules, "loop": False})
    assert accepts(dispatch, "a", CALL, "x")
    assert accepts(dispatch, "a", HELLO, "b", END_CALL)
    assert not accepts(dispatch, "a", CALL, "x", "b")


def test_a_stop_token_that_the_grammar_asks_for_can_be_written(compiler: Compiler) -> None:
    grammar = compiled(compiler, {"type": "sequence", "elements": [const("a"), token("</s>"), const("b")]})
    matcher = grammar.matcher()
    assert matcher.accept_tokens(ids("a", STOP, "b")) == 3
    assert not matcher.is_terminated()
    assert matcher.accept_token(STOP)
    assert matcher.is_terminated()


def test_rollback_over_tokens(compiler: Compiler) -> None:
    node = {"type": "tag", "begin": token(SPECIAL), "content": {"type": "any_tokens"}, "end": token("<|end|>")}
    matcher = compiled(compiler, node).matcher()
    before = mask(matcher)
    assert matcher.accept_tokens([SPECIAL, HELLO, SPECIAL_END]) == 3
    matcher.rollback(3)
    assert mask(matcher) == before
    assert matcher.validate_tokens([SPECIAL, CALL, SPECIAL_END, HELLO]) == 3


def test_excluded_texts_in_json_strings(compiler: Compiler) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "maxLength": 9}, "b": {"enum": ["xx", "ok"]}, "c": {"pattern": "^x+$"}},
        "additionalProperties": {"type": "array", "items": True},
    }
    node = {"type": "json_schema", "json_schema": schema, "excludes": ["xx"]}
    grammar = compiled(compiler, node)
    for text in ['{"a": "x"}', '{"b": "ok"}', '{"c": "x"}', '{"d": ["yxy", {"xyx": 1}]}', '{"a": "x\\u0078"}']:
        assert accepts(grammar, text), text
    for text in ['{"a": "xx"}', '{"b": "xx"}', '{"c": "xx"}', '{"d": ["yxx"]}', '{"d": [{"xxy": 1}]}', '{"xx": []}']:
        assert not accepts(grammar, text), text
    with pytest.raises(UnsatisfiableSchema):
        compiled(compiler, {"type": "json_schema", "json_schema": {"const": "axxb"}, "excludes": ["xx"]})
