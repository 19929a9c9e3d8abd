"""The kernel beside the reference: one grammar and one vocabulary compiled by both, and their masks as sets."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import assume, event

from gramary.compiler.errors import LimitExceeded, UnsatisfiableSchema, UnsupportedSchema
from gramary.runtime._core import CompiledGrammar, Compiler, Limits, Matcher, Vocabulary

from .reference import Reference, Special, State
from .strategies import STOP, Tokens

#: Random grammars can be explosive; a test is no place to wait for them.
LIMITS = Limits(fsm_states=50_000, seconds=10.0)


def compiler_for(tokens: Tokens) -> Compiler:
    vocabulary = Vocabulary.from_tokens(tokens.bytes_of, special=tokens.special)
    return Compiler(vocabulary, stop_token_ids=[STOP])


def mask(matcher: Matcher, size: int) -> set[int]:
    """The ids whose bits are set. Every bit beyond the vocabulary must be 0."""
    row = np.full((size + 31) // 32, -1, dtype=np.int32)
    some = matcher.fill_bitmask(row)
    bits = np.unpackbits(row.view(np.uint8), bitorder="little")
    assert not bits[size:].any()
    assert bool(bits.any()) == some
    return {int(i) for i in np.flatnonzero(bits)}


def brute_force(matcher: Matcher, ids: Iterable[int]) -> set[int]:
    """What a fork accepts, id by id."""
    return {t for t in ids if matcher.fork().accept_token(t)}


def advance(state: State, tokens: Tokens, token: int) -> State | None:
    """The reference's state after a token that is not the stop token."""
    data = tokens.bytes_of[token]
    if data is None or token == STOP:
        return None
    return state.feed(Special(token)) if token in tokens.special else state.feed_all(data)


def expected(state: State, tokens: Tokens) -> set[int]:
    """The mask by the reference. Empty tokens never count: a model could write them for ever."""
    reached: dict[bytes, State | None] = {b"": state}

    def after(data: bytes) -> State | None:
        if data not in reached:
            before = after(data[:-1])
            reached[data] = None if before is None else before.feed(data[-1])
        return reached[data]

    ids = {t for t, data in tokens.text.items() if data and after(data) is not None}
    ids |= {t for t in tokens.special if t != STOP and advance(state, tokens, t) is not None}
    return ids | ({STOP} if state.complete else set())


@dataclass
class Pair:
    """A grammar in the kernel and in the reference."""

    grammar: Any
    tokens: Tokens
    compiler: Compiler
    compiled: CompiledGrammar
    reference: Reference

    @property
    def size(self) -> int:
        return len(self.tokens.bytes_of)

    def mask(self, matcher: Matcher) -> set[int]:
        return mask(matcher, self.size)

    def choose(self, state: State, rng: random.Random) -> int | None:
        """A random allowed token that is not the stop token; longer ones rather than shorter."""
        ways = sorted(expected(state, self.tokens) - {STOP})
        picked = rng.sample(ways, min(2, len(ways)))
        return max(picked, key=lambda t: len(self.tokens.bytes_of[t] or b""), default=None)

    def walk(self, matcher: Matcher, state: State, steps: int, rng: random.Random) -> State:
        """Take random allowed tokens, as far as there are any."""
        for _ in range(steps):
            token = self.choose(state, rng)
            if token is None:
                break
            state = self.walk_to(matcher, state, token)
        return state

    def walk_to(self, matcher: Matcher, state: State, token: int) -> State:
        """Both take the token."""
        following = advance(state, self.tokens, token)
        assert following is not None
        assert matcher.accept_token(token), self.tokens.bytes_of[token]
        return following


def compile_pair(grammar: Any, tokens: Tokens, compiler: Compiler | None = None) -> Pair:
    """Both; leaves the test where the kernel refuses with good reason, and fails where it has none."""
    reference = Reference(grammar)
    compiler = compiler or compiler_for(tokens)
    try:
        compiled = compiler.compile_ir(json.dumps(grammar), limits=LIMITS)
    except UnsatisfiableSchema:
        event("nothing matches")
        assert not reference.start.viable
        assume(False)
        raise
    except (LimitExceeded, UnsupportedSchema) as e:
        event(f"refused: {type(e).__name__}")
        assume(False)
        raise
    assert reference.start.viable
    return Pair(grammar, tokens, compiler, compiled, reference)
