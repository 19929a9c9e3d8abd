"""Masks against brute force and against the reference; flushes, stored entries and jumps change nothing."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from . import strategies as ir
from .oracle import LIMITS, Pair, brute_force, compile_pair, compiler_for, expected, mask
from .reference import Reference, Special, State
from .strategies import STOP, Tokens

seeds = st.integers(0, 2**32)


@st.composite
def cases(draw: Any, grammars: Any = ir.grammars) -> tuple[Any, Tokens, random.Random]:
    """A grammar, and a vocabulary that is partly cut from its words."""
    grammar = draw(grammars)
    rng = random.Random(draw(seeds))
    reference = Reference(grammar)
    words = b"".join(ir.sample(reference, rng, 12) for _ in range(2)) if reference.start.viable else b""
    return grammar, draw(ir.vocabularies(words or b"abc")), rng


def check_everywhere(pair: Pair, rng: random.Random, steps: int = 6) -> None:
    """Along a random walk: mask, brute force and reference agree, and so do the ends."""
    matcher, state = pair.compiled.matcher(), pair.reference.start
    ids = range(pair.size)
    for _ in range(steps):
        allowed = pair.mask(matcher)
        assert allowed == expected(state, pair.tokens)
        assert allowed == brute_force(matcher, ids)
        assert matcher.is_complete() == state.complete
        before = state
        state = pair.walk(matcher, state, 1, rng)
        if state is before:
            break
    if state.complete:
        assert matcher.accept_token(STOP)
        assert matcher.is_terminated()
        assert pair.mask(matcher) == {STOP}


@settings(max_examples=100)
@given(cases(ir.recursive_grammars()))
def test_recursion(case: tuple[Any, Tokens, random.Random]) -> None:
    grammar, tokens, rng = case
    check_everywhere(compile_pair(grammar, tokens), rng)


@settings(max_examples=100)
@given(cases(st.one_of(ir.regular_grammars(), ir.counting_grammars())))
def test_regular_operators_and_counters(case: tuple[Any, Tokens, random.Random]) -> None:
    grammar, tokens, rng = case
    check_everywhere(compile_pair(grammar, tokens), rng, 10)


@settings(max_examples=60)
@given(cases(ir.object_grammars()))
def test_objects(case: tuple[Any, Tokens, random.Random]) -> None:
    grammar, tokens, rng = case
    check_everywhere(compile_pair(grammar, tokens), rng, 10)


@settings(max_examples=60)
@given(cases(ir.dispatch_grammars()))
def test_dispatch(case: tuple[Any, Tokens, random.Random]) -> None:
    grammar, tokens, rng = case
    check_everywhere(compile_pair(grammar, tokens), rng, 8)


@settings(max_examples=40)
@given(cases(), seeds)
def test_a_flush_changes_no_mask(case: tuple[Any, Tokens, random.Random], seed: int) -> None:
    """Several matchers at different places live through flushes, with their rollback windows."""
    grammar, tokens, rng = case
    pair = compile_pair(grammar, tokens)
    live = []
    for _ in range(4):
        matcher, states = pair.compiled.matcher(), [pair.reference.start]
        for _ in range(rng.randrange(6)):
            following = pair.walk(matcher, states[-1], 1, rng)
            if following is states[-1]:
                break
            states.append(following)
        live.append((matcher, states))
    before = [pair.mask(m) for m, _ in live]
    pair.compiled.flush()
    assert [pair.mask(m) for m, _ in live] == before
    for matcher, states in live:
        if len(states) > 1:
            back = rng.randrange(1, len(states))
            matcher.rollback(back)
            del states[-back:]
        pair.compiled.flush()
        assert pair.mask(matcher) == expected(states[-1], tokens)
        state = pair.walk(matcher, states[-1], 2, rng)
        assert pair.mask(matcher) == expected(state, tokens)


@settings(max_examples=40)
@given(case=cases())
def test_stored_entries_give_the_same_masks(
    case: tuple[Any, Tokens, random.Random], tmp_path_factory: pytest.TempPathFactory
) -> None:
    grammar, tokens, rng = case
    pair = compile_pair(grammar, tokens)
    matcher, state = pair.compiled.matcher(), pair.reference.start
    masks, taken = [pair.mask(matcher)], []
    for _ in range(6):
        token = pair.choose(state, rng)
        if token is None:
            break
        taken.append(token)
        state = pair.walk_to(matcher, state, token)
        masks.append(pair.mask(matcher))
    path = str(tmp_path_factory.mktemp("entries") / "entries")
    saved = pair.compiler.save_entries(path)
    fresh = compiler_for(tokens)
    assert fresh.load_entries(path) == saved
    again = fresh.compile_ir(json.dumps(grammar), limits=LIMITS).matcher()
    assert mask(again, pair.size) == masks[0]
    for token, allowed in zip(taken, masks[1:], strict=True):
        assert again.accept_token(token)
        assert mask(again, pair.size) == allowed


def forced(state: State, longest: int) -> bytes:
    """The bytes that must come next, by the reference."""
    run = bytearray()
    while len(run) < longest and not state.complete:
        ways = [(b, s) for b in range(256) if (s := state.feed(b)) is not None]
        if len(ways) != 1 or any(state.feed(Special(t)) is not None for t in ir.SPECIAL):
            break
        run.append(ways[0][0])
        state = ways[0][1]
    return bytes(run)


@settings(max_examples=40)
@given(cases())
def test_jumps(case: tuple[Any, Tokens, random.Random]) -> None:
    grammar, tokens, rng = case
    pair = compile_pair(grammar, tokens)
    matcher, state = pair.compiled.matcher(), pair.reference.start
    for _ in range(3):
        jump = matcher.jump_forward()
        assert jump[:8] == forced(state, 8)
        assert matcher.fork().accept_bytes(jump)
        fork = matcher.fork()
        jumped = matcher.jump_forward_tokens()
        for token in jumped:
            assert pair.mask(fork) == {token}
            assert fork.accept_token(token)
        # A vocabulary that lacks all other ways on can force one token for ever; a jump ends somewhere.
        assert fork.is_terminated() or len(pair.mask(fork)) != 1 or len(jumped) == 1024
        state = pair.walk(matcher, state, 1, rng)
