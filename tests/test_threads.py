"""Many threads, one grammar: masks stay what a lone thread sees, through flushes, forks and rollbacks."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from gramary.runtime._core import CompiledGrammar, Compiler, Matcher, Vocabulary, fill_bitmasks

from .oracle import mask

WORDS = [
    b"true",
    b"tru",
    b'":',
    b'", "',
    b"  ",
    b"[[",
    b"]]",
    b"12",
    b'"a',
    b"\xc3",
    b"\xa9",
    b"\xc3\xa9",
    b"}}",
    b'\\"',
    b'{"',
    b"null",
    b"e1",
]
TOKENS = [bytes([b]) for b in range(256)] + WORDS + [b"</s>"]
STOP = len(TOKENS) - 1
THREADS = 8

SCHEMA: dict[str, Any] = {
    "$defs": {
        "tree": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "maxLength": 30},
                "value": {"anyOf": [{"type": "number"}, {"type": "boolean"}, {"type": "null"}]},
                "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
            },
            "required": ["name"],
            "additionalProperties": {"type": "string", "pattern": "^(ab?){2,9}$"},
        }
    },
    "$ref": "#/$defs/tree",
}


def compile_here() -> tuple[Compiler, CompiledGrammar]:
    compiler = Compiler(Vocabulary.from_tokens(TOKENS, special=[STOP]), stop_token_ids=[STOP])
    return compiler, compiler.compile_json_schema(SCHEMA, property_order="any")


def trail(grammar: CompiledGrammar, seed: int, steps: int = 60) -> list[tuple[set[int], int]]:
    """Masks along a random walk, each with the token taken."""
    rng, matcher = random.Random(seed), grammar.matcher()
    found = []
    for _ in range(steps):
        allowed = mask(matcher, len(TOKENS))
        ways = sorted(allowed - {STOP}) or [STOP]
        token = rng.choice(ways)
        found.append((allowed, token))
        assert matcher.accept_token(token)
        if token == STOP:
            break
    return found


def on_threads(work: Callable[[int], None], extra: Callable[[threading.Event], None] | None = None) -> None:
    """Run ``work(i)`` on eight threads, and ``extra`` on one more until they are done; raise what they raise."""
    failures: list[BaseException] = []
    done = threading.Event()

    def guarded(function: Callable[..., None], argument: Any) -> None:
        try:
            function(argument)
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=guarded, args=(work, i)) for i in range(THREADS)]
    helper = threading.Thread(target=guarded, args=(extra, done)) if extra else None
    for t in [*threads, *([helper] if helper else [])]:
        t.start()
    for t in threads:
        t.join(120)
        assert not t.is_alive()
    done.set()
    if helper:
        helper.join(120)
    if failures:
        raise failures[0]


def test_masks_are_those_of_one_thread() -> None:
    _, alone = compile_here()
    trails = [trail(alone, seed) for seed in range(THREADS)]
    _, grammar = compile_here()

    def work(i: int) -> None:
        # Every thread follows every trail, each starting with another one: they meet in the same sets.
        for k in range(THREADS):
            matcher = grammar.matcher()
            for allowed, token in trails[(i + k) % THREADS]:
                assert mask(matcher, len(TOKENS)) == allowed
                assert matcher.accept_token(token)

    def flush(done: threading.Event) -> None:
        while True:  # at least once, however quick the others are
            grammar.flush()
            if done.wait(0.002):
                return

    on_threads(work, flush)
    assert grammar.stats()["flushes"] > 0


def test_rollback_and_forks_under_flushes() -> None:
    _, alone = compile_here()
    trails = [trail(alone, 100 + seed) for seed in range(THREADS)]
    _, grammar = compile_here()

    def work(i: int) -> None:
        rng, steps = random.Random(i), trails[i]
        matcher, at = grammar.matcher(max_rollback_tokens=200), 0
        for _ in range(150):
            back = min(at, rng.randrange(5))
            if rng.random() < 0.3 and back:
                matcher.rollback(back)
                at -= back
            elif at < len(steps) - 1:
                if rng.random() < 0.2:
                    matcher = matcher.fork()
                assert matcher.accept_token(steps[at][1])
                at += 1
            else:
                matcher.reset()
                at = 0
            assert mask(matcher, len(TOKENS)) == steps[at][0]

    def flush(done: threading.Event) -> None:
        while not done.wait(0.001):
            grammar.flush()

    on_threads(work, flush)


def test_one_matcher_from_many_threads() -> None:
    """Calls on one matcher run one after the other: none is lost, none is torn."""
    compiler, _ = compile_here()
    matcher = compiler.compile_regex("a*").matcher(max_rollback_tokens=10_000)

    def work(i: int) -> None:
        for _ in range(300):
            assert matcher.accept_token(ord("a"))
            if i % 2:
                matcher.rollback(1)

    on_threads(work)
    assert matcher.num_tokens() == 300 * THREADS // 2


def test_batches_compiling_and_prefetch_at_once() -> None:
    compiler, grammar = compile_here()
    words = (len(TOKENS) + 31) // 32
    alone = [m for m, _ in (trail(grammar, 7, 1))]
    grammars: list[CompiledGrammar] = []

    def work(i: int) -> None:
        for round_ in range(10):
            other = compiler.compile_json_schema({"type": "array", "items": {"const": i * 100 + round_ % 3}})
            other.prefetch(4)
            grammars.append(other)
            matchers: list[Matcher] = [grammar.matcher() for _ in range(8)] + [other.matcher()]
            rows = np.full((9, words), -1, dtype=np.int32)
            fill_bitmasks(matchers, rows)
            lists = rows[:8].tolist()
            assert all(row == lists[0] for row in lists)
            assert ord("[") in mask(matchers[8], len(TOKENS))
            assert mask(matchers[0], len(TOKENS)) == alone[0]
            compiler.stats()

    on_threads(work)
    assert len({g.digest for g in grammars}) == THREADS * 3
