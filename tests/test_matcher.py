"""The matcher against a plain model: a stack of the reference's states."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gramary.compiler.errors import RollbackError
from gramary.runtime._core import Compiler, Limits, Matcher, Vocabulary, fill_bitmasks

from . import strategies as ir
from .oracle import Pair, advance, brute_force, compile_pair, expected, mask
from .reference import State
from .strategies import STOP, Tokens


class Model:
    """What a matcher should be: every state since the start, and how many of them can be taken back."""

    def __init__(self, pair: Pair, window: int) -> None:
        self.pair = pair
        self.window = window
        self.steps: list[tuple[State, bool]] = [(pair.reference.start, False)]
        self.taken = 0

    @property
    def now(self) -> tuple[State, bool]:
        return self.steps[-1]

    def after(self, now: tuple[State, bool], token: int) -> tuple[State, bool] | None:
        state, terminated = now
        if token == STOP:
            return (state, True) if terminated or state.complete else None
        if terminated or not 0 <= token < self.pair.size or self.pair.tokens.bytes_of[token] == b"":
            return None
        following = advance(state, self.pair.tokens, token)
        return None if following is None else (following, False)

    def push(self, step: tuple[State, bool]) -> None:
        self.steps.append(step)
        self.taken += 1
        del self.steps[: max(0, len(self.steps) - self.window - 1)]

    def accept(self, token: int) -> bool:
        step = self.after(self.now, token)
        if step is not None:
            self.push(step)
        return step is not None

    def accept_all(self, tokens: list[int]) -> int:
        for i, token in enumerate(tokens):
            if not self.accept(token):
                return i
        return len(tokens)

    def validate(self, tokens: list[int]) -> int:
        step: tuple[State, bool] | None = self.now
        for i, token in enumerate(tokens):
            step = self.after(step, token) if step is not None else None
            if step is None:
                return i
        return len(tokens)

    def accept_bytes(self, data: bytes) -> bool:
        state, terminated = self.now
        if terminated or not data:
            return not data
        following = state.feed_all(data)
        if following is not None:
            self.push((following, False))
        return following is not None

    def rollback(self, n: int) -> bool:
        if n >= len(self.steps):
            return False
        self.taken -= n
        del self.steps[len(self.steps) - n :]
        return True

    def fork(self) -> Model:
        other = Model(self.pair, self.window)
        other.steps, other.taken = list(self.steps), self.taken
        return other

    def check(self, matcher: Matcher) -> None:
        state, terminated = self.now
        assert matcher.is_terminated() == terminated
        assert matcher.is_complete() == (state.complete and not terminated)
        assert self.pair.mask(matcher) == ({STOP} if terminated else expected(state, self.pair.tokens))
        assert matcher.num_tokens() == self.taken


@settings(max_examples=80)
@given(ir.grammars, ir.vocabularies(), st.integers(0, 2**32), st.sampled_from([0, 1, 3, 100]))
def test_every_operation_does_what_the_model_does(grammar: Any, tokens: Tokens, seed: int, window: int) -> None:
    rng = random.Random(seed)
    pair = compile_pair(grammar, tokens)
    models = [(Model(pair, window), pair.compiled.matcher(max_rollback_tokens=window))]

    def some_tokens(state: State) -> list[int]:
        ids = [rng.randrange(-1, pair.size + 2) for _ in range(rng.randrange(3))]
        likely: list[int] = []
        for _ in range(rng.randrange(4)):
            token = pair.choose(state, rng)
            following = None if token is None else advance(state, tokens, token)
            if token is None or following is None:
                break
            likely.append(token)
            state = following
        return likely + ids

    for _ in range(14):
        model, matcher = rng.choice(models)
        state = model.now[0]
        operation = rng.choice(["accept", "accept", "stop", "all", "bytes", "validate", "rollback", "fork", "reset"])
        if operation == "accept":
            for token in some_tokens(state)[:1]:
                assert matcher.accept_token(token) == model.accept(token)
        elif operation == "stop":
            assert matcher.accept_token(STOP) == model.accept(STOP)
        elif operation == "all":
            many = some_tokens(state)
            assert matcher.accept_tokens(many) == model.accept_all(many)
        elif operation == "bytes":
            data = b"".join(tokens.text.get(t, b"x") for t in some_tokens(state))
            if data:
                assert matcher.accept_bytes(data) == model.accept_bytes(data)
        elif operation == "validate":
            many = some_tokens(state)
            assert matcher.validate_tokens(many) == model.validate(many)
        elif operation == "rollback":
            n = rng.randrange(4)
            if model.rollback(n):
                matcher.rollback(n)
            else:
                with pytest.raises(RollbackError):
                    matcher.rollback(n)
        elif operation == "fork":
            models.append((model.fork(), matcher.fork()))
        elif rng.random() < 0.3:
            model.steps, model.taken = [(pair.reference.start, False)], 0
            matcher.reset()
        model.check(matcher)
    for model, matcher in models:
        model.check(matcher)


# ------------------------------------------------------------------------------------------------ by hand


def bytes_vocabulary(*words: bytes, special: int = 0) -> Vocabulary:
    """All 256 bytes, then words, then special tokens."""
    tokens = [bytes([b]) for b in range(256)] + list(words) + [b"<s%d>" % i for i in range(special)]
    return Vocabulary.from_tokens(tokens, special=list(range(len(tokens) - special, len(tokens))))


def test_several_stop_tokens_and_a_padded_model() -> None:
    vocabulary = bytes_vocabulary(b"ab", special=2)
    compiler = Compiler(vocabulary, vocab_size=320, stop_token_ids=[257, 300])
    matcher = compiler.compile_regex("ab|abc").matcher()
    assert mask(matcher, 320) == {ord("a"), 256}
    assert not matcher.accept_token(257)
    assert matcher.accept_token(256)
    assert matcher.is_complete()
    assert mask(matcher, 320) == {ord("c"), 257, 300}
    for stop in (257, 300):
        fork = matcher.fork()
        assert fork.accept_token(stop)
        assert fork.is_terminated()
        assert not fork.is_complete()
        assert mask(fork, 320) == {257, 300}
        assert not fork.accept_token(ord("c"))
        fork.rollback(1)
        assert mask(fork, 320) == {ord("c"), 257, 300}
    other = compiler.compile_regex("ab|abc").matcher(stop_token_ids=[258])
    other.accept_token(256)
    assert mask(other, 320) == {ord("c"), 258}


def test_no_stop_token_at_all() -> None:
    matcher = Compiler(bytes_vocabulary()).compile_regex("a").matcher()
    assert matcher.accept_bytes("a")
    assert matcher.is_complete()
    assert mask(matcher, 256) == set()


def test_ids_that_no_vocabulary_has() -> None:
    matcher = Compiler(bytes_vocabulary(special=1), vocab_size=400, stop_token_ids=[256]).compile_regex("a+").matcher()
    assert matcher.accept_token(ord("a"))
    for token in (-1, -(2**40), 256 + 1, 399, 400, 2**31, 2**32, 2**40):
        assert not matcher.accept_token(token)
        assert matcher.accept_tokens([token]) == 0
        assert matcher.validate_tokens([ord("a"), token]) == 1
    assert matcher.num_tokens() == 1
    assert mask(matcher, 400) == {ord("a"), 256}


def test_special_tokens_are_never_text() -> None:
    """A special token is not the bytes of its name."""
    vocabulary = Vocabulary.from_tokens([b"<", b"s", b">", b"<s>", b"<s>"], special=[3])
    matcher = Compiler(vocabulary).compile_regex("<s>").matcher()
    assert mask(matcher, 5) == {0, 4}
    assert not matcher.accept_token(3)


def test_rollback_is_limited_and_says_so() -> None:
    matcher = Compiler(bytes_vocabulary()).compile_regex("[a-z]*").matcher(max_rollback_tokens=3)
    assert matcher.accept_tokens(list(b"abcdef")) == 6
    with pytest.raises(RollbackError) as error:
        matcher.rollback(4)
    assert (error.value.asked, error.value.held) == (4, 3)
    matcher.rollback(3)
    matcher.rollback(0)
    with pytest.raises(RollbackError):
        matcher.rollback(1)
    assert matcher.num_tokens() == 3
    with pytest.raises((OverflowError, ValueError)):
        matcher.rollback(-1)


def test_bytes_are_all_or_nothing() -> None:
    matcher = Compiler(bytes_vocabulary()).compile_regex("abc").matcher()
    assert not matcher.accept_bytes(b"abd")
    assert mask(matcher, 256) == {ord("a")}
    assert matcher.accept_bytes("ab")
    matcher.rollback(1)
    assert mask(matcher, 256) == {ord("a")}


def test_rows_of_a_batch() -> None:
    compiler = Compiler(bytes_vocabulary())
    patterns = ["a", "b", "[cd]", "e*"]
    matchers = [compiler.compile_regex(p).matcher() for p in patterns]
    batch = np.full((6, 8), -1, dtype=np.int32)
    fill_bitmasks(matchers, batch, [5, 0, 2, 3])
    bits = [set(np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))) for row in batch]
    assert [bits[i] for i in (5, 0, 2, 3)] == [{ord("a")}, {ord("b")}, {ord("c"), ord("d")}, {ord("e")}]
    assert (batch[[1, 4]] == -1).all()
    fill_bitmasks(matchers, batch)
    assert (batch[4:] != 0).any()
    address = batch.ctypes.data
    matchers[1].fill_bitmask(address, 4)
    assert batch[4].tolist() == batch[1].tolist()
    for wrong in ([0, 0, 1, 2], [0, 1], [0, 1, 2, 6]):
        with pytest.raises(ValueError, match="row"):
            fill_bitmasks(matchers, batch, wrong)
    with pytest.raises((TypeError, ValueError)):
        matchers[0].fill_bitmask(np.zeros(8, dtype=np.int64))
    with pytest.raises((IndexError, ValueError)):
        matchers[0].fill_bitmask(batch, 6)
    fill_bitmasks([], batch)


def test_a_mask_row_that_is_too_short_is_refused() -> None:
    matcher = Compiler(bytes_vocabulary()).compile_regex("a").matcher()
    with pytest.raises(Exception, match="words"):
        matcher.fill_bitmask(np.zeros(7, dtype=np.int32))
    wide = np.full(9, -1, dtype=np.int32)
    matcher.fill_bitmask(wide)
    assert wide[8] == 0


def test_duplicates_and_empty_tokens() -> None:
    vocabulary = Vocabulary.from_tokens([b"a", b"a", b"", None, b"ab"])
    matcher = Compiler(vocabulary).compile_regex("ab*").matcher()
    assert mask(matcher, 5) == {0, 1, 4} == brute_force(matcher, range(5))


def test_a_table_that_lives_beyond_its_budget_is_not_flushed_for_every_token() -> None:
    tokens = [bytes([b]) for b in range(256)] + [b"</s>"]
    compiler = Compiler(Vocabulary.from_tokens(tokens, special=[256]), stop_token_ids=[256])
    grammar = compiler.compile_json_schema(
        '{"type": "array", "items": {"type": "string", "maxLength": 100000}}', limits=Limits(memory=1 << 20)
    )
    matcher = grammar.matcher(max_rollback_tokens=1 << 60)
    assert matcher.accept_bytes('["')
    for _ in range(16_000):
        assert matcher.accept_token(97)
    assert grammar.stats()["flushes"] < 20
    matcher.rollback(16_000)
    assert matcher.accept_bytes('"]')
    assert matcher.is_complete()
