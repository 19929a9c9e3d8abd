"""Masks of grammars with marks for distinct strings, against the reference, at every step of random walks."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gramary.compiler.errors import CompileError
from gramary.runtime._core import Compiler, Vocabulary

from . import strategies as ir
from .oracle import brute_force, mask
from .reference import Reference
from .reference.distinct import DistinctState

WORDS = [
    b'["',
    b'","',
    b'",',
    b'"]',
    b'"],["',
    b"ab",
    b"ba",
    b"bb",
    b'b"',
    b'a","a',
    b"\\u0061",
    b"\\u00",
    b'":1',
    b'a":1,"',
]
TOKENS = [*(bytes([byte]) for byte in b'[]{}",:1ab\\u06'), *WORDS, b"</s>"]
STOP = len(TOKENS) - 1
COMPILER = Compiler(Vocabulary.from_tokens(TOKENS, special=[STOP]), stop_token_ids=[STOP])
MARK = "distinct"


@st.composite
def strings(draw: Any, endless: bool) -> Any:
    """Some of finitely many, and all that begin with `b`: always where there must be strings without end."""
    words = draw(st.lists(st.sampled_from(["a", "ab", "aba", "ba", ""]), max_size=3, unique=True))
    char = {c: ir.json_chars((ord(c), ord(c))) for c in "ab"}
    ways = [ir.seq(*(char[c] for c in word)) for word in words]
    if not words or endless or draw(st.booleans()):
        ways.append(ir.seq(char["b"], ir.repeat(ir.alt(char["a"], char["b"]))))
    return ir.seq(ir.lit('"'), ir.alt(*ways), ir.lit('"'))


@st.composite
def marked(draw: Any) -> Any:
    """Arrays of strings and of such arrays, or objects whose names are strings; marked or not, also side by side."""
    rules = []
    kinds = draw(st.integers(1, 2))
    for _ in range(kinds):
        mark = [MARK] if draw(st.integers(0, 3)) else []
        inner = ir.ref(draw(st.integers(1, kinds)))
        string = ir.seq(draw(strings(bool(mark))), *mark)
        if draw(st.booleans()):
            item, (opening, closing) = draw(st.sampled_from([string, ir.alt(string, inner)])), "[]"
        else:
            item, (opening, closing) = ir.seq(string, ir.lit(":"), ir.alt(ir.lit("1"), inner)), "{}"
        items = ir.seq(item, ir.repeat(ir.seq(ir.lit(","), item)))
        rules.append(ir.seq(ir.lit(opening), *mark, ir.alt(items, ir.EMPTY), ir.lit(closing)))
    root = ir.alt(*(ir.ref(rule + 1) for rule in range(kinds)))
    return ir.grammar(root, *rules)


def expected(state: DistinctState) -> set[int]:
    reached = {token: state.feed_all(TOKENS[token]) for token in range(STOP)}
    found = {token for token, after in reached.items() if after is not None and after.viable()}
    return found | ({STOP} if state.complete else set())


@settings(max_examples=120, deadline=None)
@given(marked(), st.integers(0, 2**32))
def test_masks_are_what_the_reference_says(grammar: Any, seed: int) -> None:
    try:
        compiled = COMPILER.compile_ir(json.dumps(grammar))
    except CompileError:
        assume(False)
        raise
    rng, matcher, state = random.Random(seed), compiled.matcher(), DistinctState.start(Reference(grammar))
    for _ in range(12):
        allowed = mask(matcher, len(TOKENS))
        assert allowed == expected(state)
        assert allowed == brute_force(matcher, range(len(TOKENS)))
        ways = sorted(allowed - {STOP})
        if not ways:
            break
        # Longer texts have more to compare: what closes everything is for the end.
        token = rng.choice([t for t in ways if not TOKENS[t].endswith((b"]", b"}"))] or ways)
        assert matcher.accept_token(token)
        following = state.feed_all(TOKENS[token])
        assert following is not None
        state = following
