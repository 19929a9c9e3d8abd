"""The oracle itself, against definitions even simpler than it."""

from __future__ import annotations

import itertools
import json
import random
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from . import strategies as ir
from .reference import Reference, Special
from .reference.trees import SCALARS, Characters, Forest

Words = frozenset[bytes]


class Enumeration:
    """All words of up to ``longest`` bytes over an alphabet, by Kleene iteration over sets of words."""

    def __init__(self, grammar: Any, longest: int, alphabet: bytes) -> None:
        self.longest = longest
        self.universe = frozenset(bytes(w) for n in range(longest + 1) for w in itertools.product(alphabet, repeat=n))
        self.rules: list[Words] = [frozenset()] * len(grammar["rules"])
        while True:
            new = [self.words(rule["body"]["expr"]) for rule in grammar["rules"]]
            if new == self.rules:
                break
            self.rules = new

    def join(self, left: Words, right: Words) -> Words:
        return frozenset(a + b for a in left for b in right if len(a) + len(b) <= self.longest)

    def words(self, expr: Any) -> Words:
        if expr == "empty":
            return frozenset([b""])
        ((kind, value),) = expr.items()
        if kind == "bytes":
            return frozenset([value.encode()]) & self.universe
        if kind == "class":
            return frozenset(bytes([b]) for lo, hi in value for b in range(lo, hi + 1)) & self.universe
        if kind == "chars":
            return frozenset(w for w in self.universe if self.one_char(w, value))
        if kind == "seq":
            found: Words = frozenset([b""])
            for part in value:
                found = self.join(found, self.words(part))
            return found
        if kind == "alt":
            return frozenset(w for part in value for w in self.words(part))
        if kind == "repeat":
            return self.repeat(self.words(value["body"]), value["min"], value["max"])
        if kind == "token":
            return frozenset()  # words with special tokens are left to `test_special_tokens_are_symbols`
        if kind == "rule":
            return self.rules[int(value)]
        if kind == "and":
            operands = [self.words(part) for part in value]
            return frozenset(w for w in self.universe if all(w in operand for operand in operands))
        assert kind == "sub"
        return self.words(value[0]) - self.words(value[1])

    @staticmethod
    def one_char(word: bytes, ranges: Any) -> bool:
        try:
            text = word.decode()
        except UnicodeDecodeError:
            return False
        return len(text) == 1 and any(lo <= ord(text) <= hi for lo, hi in ranges)

    def repeat(self, body: Words, low: int, high: int | None) -> Words:
        power: Words = frozenset([b""])
        for _ in range(low):
            power = self.join(power, body)
        found = power
        for _ in itertools.count() if high is None else range(high - low):
            power = self.join(power, body)
            if power <= found:
                break
            found |= power
        return found


@settings(max_examples=120)
@given(st.one_of(ir.recursive_grammars(), ir.regular_grammars()))
def test_accepts_what_enumeration_finds(grammar: Any) -> None:
    alphabet = b"abcd\xc3\xa9"
    words = Enumeration(grammar, 4, alphabet)
    reference = Reference(grammar)
    starts = {w[:n] for w in words.rules[0] for n in range(len(w) + 1)}

    def visit(state: Any, prefix: bytes) -> None:
        if state is None:
            assert prefix not in starts
            return
        assert state.complete == (prefix in words.rules[0]), prefix
        if len(prefix) < 4:
            for b in alphabet:
                visit(state.feed(b), prefix + bytes([b]))

    if not reference.start.viable:
        assert not words.rules[0]
    else:
        visit(reference.start, b"")


@settings(max_examples=60)
@given(ir.grammars, st.integers(0, 2**32))
def test_every_viable_prefix_can_be_completed(grammar: Any, seed: int) -> None:
    """From wherever a random walk ends, a breadth-first search finds a word, or has far too many ways left to end."""
    reference = Reference(grammar)
    if not reference.start.viable:
        return
    state = ir.walk(reference, 6, random.Random(seed))[-1]
    seen = 0
    symbols = [*ir.ALPHABET, *map(Special, ir.SPECIAL)]
    work = [state]
    while work and seen < 200:
        state = work.pop(0)
        if state.complete:
            return
        seen += 1
        work += [s for s in map(state.feed, symbols) if s is not None]
    assert work


@pytest.mark.parametrize("free", [False, True])
def test_json_characters(free: bool) -> None:
    """Every spelling of every sampled character, and none of its neighbours'."""
    points = [0, 8, 9, 0x1F, 0x20, 0x22, 0x2F, 0x5B, 0x5C, 0x7E, 0x7F, 0xE9, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF]
    points += [0x10000, 0x103FF, 0x10400, 0x1F600, 0x10FFFF]

    def spellings(c: int) -> set[bytes]:
        units = chr(c).encode("utf-16-be")
        escaped = "".join(f"\\u{units[i] << 8 | units[i + 1]:04x}" for i in range(0, len(units), 2))
        found = {escaped.encode(), re.sub("[a-f]", lambda m: m[0].upper(), escaped).encode()}
        if not free and 0x20 <= c < 0x7F:
            found.clear()
        found.add(json.dumps(chr(c), ensure_ascii=False)[1:-1].encode())
        return found | {b"\\/"} if c == 0x2F else found

    def whole(c: int) -> Any:
        return {"rules": [{"name": "", "body": {"expr": ir.json_chars((c, c), free=free)}}], "root": 0}

    for c in points:
        reference = Reference(whole(c))
        for other in {c, *points}:
            for text in spellings(other):
                assert reference.accepts(text) == (c == other), (hex(c), text)


def test_all_scalars_are_utf8_without_surrogates() -> None:
    characters = Characters(Forest())
    reference = Reference(ir.grammar(ir.chars(*SCALARS)))
    assert characters.utf8(SCALARS).kind == "alt"
    for c in [*range(0, 0x900), *range(0xD700, 0xD800), *range(0xE000, 0xE100), *range(0x10FF00, 0x110000)]:
        assert reference.accepts(chr(c).encode())
    assert not reference.viable(b"\xed\xa0")
    for text in (b"\xc0", b"\xf4\x90", b"\xe0\x80"):
        assert not reference.viable(text)


def check(grammar: Any, yes: list[str], no: list[str], dead: list[str]) -> None:
    reference = Reference(grammar)
    for text in yes:
        assert reference.accepts(text.encode()), text
    for text in no:
        assert reference.viable(text.encode()), text
        assert not reference.accepts(text.encode()), text
    for text in dead:
        assert not reference.viable(text.encode()), text


def test_objects_in_declared_order() -> None:
    one, text = ir.lit("1"), ir.text(1)
    grammar = ir.grammar(
        ir.obj([("a", one, True), ("b", text, False), ("no", None, False)], [(None, one)], high=3), ir.JSON_STRING
    )
    check(
        grammar,
        [
            '{"a":1}',
            '{"a":1,"b":"x"}',
            '{"a":1,"b":"","c":1}',
            '{"a":1,"no!":1}',
            '{"a":1,"\\u00e9":1}',
            '{"a":1,"c":1,"c":1}',
        ],
        ["", '{"', '{"a":1,', '{"a":1,"n', '{"a":1,"no', '{"a":1,"b', '{"a":1,"b":"\\ud83d\\ude0'],
        [
            "{}",
            '{"b',
            '{"c',
            '{"a":1,"a"',
            '{"a":1,"no"',
            '{"a":1,"c":1,"b"',
            '{"a":1,"b":"","c":1,',
            '{"a":1,"b":"\\ud83dx',
        ],
    )


def test_objects_in_any_order() -> None:
    one = ir.lit("1")
    properties: list[tuple[str, Any, bool]] = [("a", one, True), ("b", one, True), ("c", one, False)]
    grammar = ir.grammar(ir.obj(properties, order="any", low=2, high=2))
    check(
        grammar,
        ['{"a":1,"b":1}', '{"b":1,"a":1}'],
        ['{"a":1,"b'],
        ['{"c', '{"a":1,"a', '{"a":1,"c', '{"a":1}', '{"a":1,"b":1,'],
    )


def test_dispatch() -> None:
    grammar = ir.grammar(ir.dispatch([("bc", ir.lit("Z")), ("abcd", ir.lit("!"))], stops=["."], high=2, open_end=False))
    check(
        grammar,
        [".", "abcZ.", "abcd!abcZ.", "xxbcZab."],
        ["abc", "abcd", "abcZ", "ab"],
        ["abcd.", "abcdZ", "abc!", "bcd", "bcZbcZbc", "abcZ.a"],
    )
    inside = ir.grammar(
        ir.dispatch([("b", ir.ref(1)), ("abc", ir.lit("x"))], low=1, high=1, stop_after_last=True), ir.lit("c")
    )
    check(inside, ["bc", "abcx", "aabcx"], ["ab", ""], ["abcd", "bca", "abx"])


def test_special_tokens_are_symbols() -> None:
    reference = Reference(ir.grammar(ir.seq(ir.lit("a"), ir.repeat(ir.token(7), 1, 2), ir.lit("b"))))
    start = reference.start
    state = start.feed_all([97, Special(7), 98])
    assert state is not None
    assert state.complete
    assert start.feed_all([97, 98]) is None
    assert start.feed_all([97, Special(8)]) is None
