"""Structural tags on tokens: by id and by text, special and added tokens as markers, tokens that end the text."""

import json
import random
import re
from typing import Any

import pytest

from gramary.compiler import Compiler, UnsatisfiableSchema, UnsupportedSchema, Vocabulary
from gramary.runtime._core import CompiledGrammar, Matcher
from tests.structural_tags import SPECIAL as STANDINS
from tests.structural_tags import TOKEN_STRINGS, Format, Generator, derive, matches, mutated, random_texts

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


NAMES = dict(zip(STANDINS, ("<|call|>", "<|end|>"), strict=True))
TOKENS = dict(zip(STANDINS, (SPECIAL, SPECIAL_END), strict=True))


@pytest.mark.parametrize("seed", range(6))
def test_random_formats_with_special_tokens(compiler: Compiler, seed: int) -> None:
    """Special tokens anywhere in triggers, begins, ends, patterns, constants and excluded strings."""
    rng = random.Random(seed)
    for _ in range(50):
        node = Generator(rng, TOKEN_STRINGS).format()
        texts = [derive(rng, node) for _ in range(12)]
        texts += [mutated(rng, t, TOKEN_STRINGS) for t in texts] + random_texts(rng, 10, TOKEN_STRINGS)
        texts = sorted({t for t in texts if len(t) < 30})
        expected = {t: matches(node, t) for t in texts}
        written = json.dumps(node, ensure_ascii=False)
        for character, name in NAMES.items():
            written = written.replace(character, name)
        try:
            grammar = compiled(compiler, json.loads(written))
        except UnsatisfiableSchema:
            assert not any(expected.values()), node
            continue
        for text in texts:
            tokens = [p for c in text for p in ([TOKENS[c]] if c in TOKENS else [c])]
            assert accepts(grammar, *tokens) == expected[text], (json.dumps(node), text)


SCHEMA = {"type": "json_schema", "json_schema": {"type": "object", "properties": {"n": {"type": "integer"}}}}
WRAPPED = {"type": "sequence", "elements": [const('{"name": "f", "arguments": '), SCHEMA, const("}")]}


@pytest.mark.parametrize("content", [SCHEMA, WRAPPED], ids=["json", "json among constants"])
@pytest.mark.parametrize("end", ["<|end|>", ["<|end|>", "</call>"], token("<|end|>")], ids=str)
@pytest.mark.parametrize("begin", ["<|call|>", "<|call|>f:", token("<|call|>"), "a<|call|><|end|>"], ids=str)
def test_json_in_tags_with_tokens_is_bounded(compiler: Compiler, begin: Any, end: Any, content: Format) -> None:
    """Whitespace and digits inside come to an end, text around does not; the mask is what can be taken."""
    tag = {"type": "tag", "begin": begin, "content": content, "end": end}
    if isinstance(begin, str):
        node = {"type": "triggered_tags", "triggers": [begin.removesuffix("f:")], "tags": [tag]}
    else:
        node = {"type": "token_triggered_tags", "trigger_tokens": ["<|call|>"], "tags": [tag]}
    grammar = compiled(compiler, node)
    written = begin if isinstance(begin, str) else "<|call|>"
    opened: list[int | str] = [{"<|call|>": SPECIAL, "<|end|>": SPECIAL_END}.get(p, p) for p in split(written)]
    before, after = ('{"name": "f", "arguments": ', "}") if content is WRAPPED else ("", "")
    free = " " * 200 + "1" * 200
    assert accepts(grammar, free, *opened, before + '{ "n": 12}' + after, SPECIAL_END, free)
    for body in ("{" + " " * 80, '{"n": ' + "1" * 150):
        assert not accepts(grammar, *opened, before + body + "}" + after, SPECIAL_END)
    matcher = grammar.matcher()
    for part in ids(*opened, before + '{"n": 1}' + after, SPECIAL_END):
        assert matcher.accept_token(part)
    events = matcher.tag_events()
    assert [(what, number) for what, number, _ in events] == [("open", 0), ("close", 0)]


def split(text: str) -> list[str]:
    """A text cut at the special tokens."""
    return [p for p in re.split(r"(<\|call\|>|<\|end\|>)", text) if p]


def test_markers_are_not_spelled_out_by_tokens(compiler: Compiler) -> None:
    """Wherever tokens are free: however the marker is cut, and with what is no text in between or not."""
    tag = {"type": "tag", "begin": token("<call>"), "content": {"type": "any_tokens"}, "end": token("</call>")}
    node = {"type": "token_triggered_tags", "trigger_tokens": ["<call>"], "tags": [tag]}
    grammar = compiled(compiler, node)
    assert accepts(grammar, "<cal<<call", HELLO, ">", CALL, "</call", END_CALL, "<cal", SPECIAL, "l>")
    for spelled in ("<call>", "<<call>", "x</call>", "</cal</call>", "<call</call>"):
        assert not accepts(grammar, spelled), spelled
        assert not accepts(grammar, CALL, spelled, END_CALL), spelled
        free = compiled(compiler, node, forbid_spelled_markers=False)
        assert accepts(free, spelled), spelled
    rules = [[CALL, {"type": "any_tokens"}]]
    dispatch = compiled(compiler, {"type": "token_dispatch", "rules": rules, "loop": False})
    assert accepts(dispatch, "<call", CALL, "<cal")
    assert not accepts(dispatch, "<call>")
    assert not accepts(dispatch, CALL, "<call>")


def free(**bounds: Any) -> Format:
    return {"type": "any_text", **bounds}


def tag(begin: str, content: Format, *ends: str) -> Format:
    return {"type": "tag", "begin": begin, "content": content, "end": list(ends)}


def test_tokens_of_a_text_are_bounded(compiler: Compiler) -> None:
    two = free(max_tokens=2)
    grammar = compiled(compiler, two)
    assert accepts(grammar)
    assert accepts(grammar, HELLO, "a")
    assert not accepts(grammar, HELLO, "a", "b")
    assert accepts(compiled(compiler, free(max_tokens=0)))
    assert not accepts(compiled(compiler, free(max_tokens=0)), "a")
    # A token that begins before the text does not count, and the last may go on behind the end.
    grammar = compiled(compiler, {"type": "sequence", "elements": [const("hel"), free(max_tokens=1), const("!")]})
    assert accepts(grammar, HELLO, HELLO, "!")
    assert not accepts(grammar, HELLO, HELLO, HELLO, "!")
    grammar = compiled(compiler, tag("x", two, "b!", "<|end|>"))
    assert accepts(grammar, "x", HELLO, AB, "!")
    assert accepts(grammar, "x", HELLO, HELLO, "b!")
    assert accepts(grammar, "x", HELLO, HELLO, SPECIAL_END)
    assert accepts(grammar, "xab!")
    assert accepts(grammar, "xbb!")
    assert not accepts(grammar, "xaaab!")
    assert not accepts(grammar, "x", HELLO, HELLO, AB, "!")


def test_a_character_is_completed_when_the_tokens_are_used_up(compiler: Compiler) -> None:
    matcher = compiled(compiler, free(max_tokens=1)).matcher()
    assert matcher.accept_token("é".encode()[0])
    assert mask(matcher) == set(range(0x80, 0xC0))
    assert matcher.accept_token("é".encode()[1])
    assert mask(matcher) == {STOP}


def test_counted_tokens_are_taken_back(compiler: Compiler) -> None:
    matcher = compiled(compiler, tag("x", free(max_tokens=2), "y")).matcher()
    assert matcher.accept_bytes("x")
    # Bytes are no tokens.
    assert matcher.accept_bytes("hello hello hello")
    before = mask(matcher)
    assert matcher.accept_token(HELLO)
    fork = matcher.fork()
    assert matcher.accept_token(HELLO)
    assert mask(matcher) == {ord("y")}
    assert HELLO in mask(fork)
    matcher.rollback(2)
    assert mask(matcher) == before
    assert matcher.validate_tokens([HELLO, HELLO, HELLO]) == 2
    # The next text begins anew.
    matcher = compiled(compiler, {"type": "star", "content": tag("x", free(max_tokens=1), "y")}).matcher()
    for token in ids("x", HELLO, "yx", HELLO, "yxa"):
        assert matcher.accept_token(token)
    assert mask(matcher) == {ord("y")}


def test_which_texts_cannot_be_counted(compiler: Compiler) -> None:
    for node, pointer in [
        (free(max_tokens=1, max_chars=2), "/format/max_tokens"),
        (
            {"type": "or", "elements": [tag(c, free(max_tokens=1), "<") for c in "abcde"]},
            "/format/elements/4/content/max_tokens",
        ),
        (tag("a", free(max_tokens=1), "x" * 300), "/format/content/max_tokens"),
    ]:
        with pytest.raises(UnsupportedSchema) as caught:
            compiled(compiler, node)
        assert caught.value.pointer == pointer


@pytest.mark.parametrize("seed", range(6))
def test_counted_texts_against_counting(seed: int) -> None:
    """Every way to cut: no more tokens than allowed begin before the end, the first that is complete."""
    rng = random.Random(seed)
    words = ["a", "b", "<", ">", "ab", "b<", "<>", "a<>", "b<>x", "xa", "x", "aab<", ">>"]
    vocabulary = Vocabulary.from_tokens([*(w.encode() for w in words), b"</s>"], special=[len(words)])
    counting = Compiler(vocabulary, stop_token_ids=[len(words)])
    for _ in range(25):
        most, ends = rng.randint(1, 3), rng.sample(["<>", "b<>", "ab", "<"], rng.randint(1, 2))
        excludes = rng.choice([[], ["xx"], ["bb"]])
        grammar = compiled(counting, tag("x", free(max_tokens=most, excludes=excludes), *ends))
        for _ in range(60):
            matcher, taken = grammar.matcher(), []
            for _ in range(8):
                token = rng.randrange(len(words))
                allowed = mask(matcher)
                assert allowed, (most, ends, taken)
                if rng.random() < 0.8 and allowed - {len(words)}:
                    token = rng.choice(sorted(allowed - {len(words)}))
                if not matcher.accept_token(token):
                    assert token not in allowed
                    continue
                taken.append(words[token])
                assert _begun(taken, ends) <= most, (most, ends, taken)
            text = "".join(taken)
            if text.startswith("x"):
                inside = _inside(text, ends)
                right = inside is not None and not any(e in inside for e in excludes)
                assert matcher.is_complete() == right, (most, ends, taken)


def _inside(text: str, ends: list[str]) -> str | None:
    """What is inside of a whole tag; `None` if it is none."""
    for at in range(1, len(text) + 1):
        found = [e for e in ends if text.endswith(e, 1, at)]
        if found:
            return text[1 : at - len(max(found, key=len))] if at == len(text) else None
    return None


def _begun(taken: list[str], ends: list[str]) -> int:
    """Tokens that begin in the text of a tag, before the end that is complete first, or as late as one may begin."""
    text, offsets = "".join(taken), [sum(map(len, taken[:i])) for i in range(len(taken))]
    for at in range(1, len(text) + 1):
        found = [e for e in ends if text.endswith(e, 1, at)]
        if found:
            last = at - len(max(found, key=len))
            return sum(1 <= o < last for o in offsets)
    begun = [len(text) - n for e in ends for n in range(1, len(e)) if text.endswith(e[:n], 1)]
    return sum(1 <= o < min(begun, default=len(text)) for o in offsets)
