"""Outputs at random: texts that masks allow, and what a judge says of them."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gramary.compiler import Compiler
from gramary.runtime import CompiledGrammar, Matcher

from .judge import judge_of, parsed
from .mutants import Mutants, constants_of

LONG = 40
"""Tokens after which a text is to come to its end."""
MOST = 1000
MOST_NAMES = 40

ESCAPE = re.compile(rb"\\.", re.DOTALL)

Row = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Output:
    """A text, if it came to its end, and what is wrong with it (`""`: nothing)."""

    text: bytes
    ended: bool
    wrong: str


class Walker:
    """Writes texts that masks allow.

    Tokens are drawn at random, in favour of those that close a string or a container once a text is long; names are
    often taken from the schema, or objects would never have what they require. At each step one token more is tried:
    the mask must say whether it is accepted.
    """

    def __init__(self, compiler: Compiler, seed: int) -> None:
        vocabulary = compiler.vocabulary
        self.chance = random.Random(seed)
        self.texts = [vocabulary.token_bytes(token) for token in range(len(vocabulary))]
        self.row = np.zeros((compiler.vocab_size + 31) // 32, np.uint32)
        stops = set(compiler.stop_token_ids)
        self.writes = self._row(lambda token, _: token not in stops)
        self.short = self._row(lambda _, text: 0 < len(text) <= 2)
        #: What leads to the end, the best first: inside a string and outside.
        self.unquoting = (
            self._row(lambda _, text: text == b'"'),
            self._row(lambda _, text: text[:1] == b'"'),
            self._row(lambda _, text: len(text) == 1 and text.isascii() and not text.isalnum()),
        )
        flat = self._row(lambda _, text: text.strip() and b"{" not in text and b"[" not in text)
        self.closing = (
            self._row(lambda _, text: text in (b"}", b"]")),
            self._row(lambda _, text: text in (b",", b":", b'"')),
            self._row(lambda _, text: text.strip() and not text.strip(b'}],:" ')),
            flat,
        )

    def _row(self, of: Any) -> Row:
        bits = np.zeros(len(self.row) * 32, np.uint8)
        bits[: len(self.texts)] = [bool(of(token, text)) for token, text in enumerate(self.texts)]
        return np.packbits(bits, bitorder="little").view(np.uint32)

    def outputs(self, grammar: CompiledGrammar, schema: Any, number: int) -> Iterator[Output]:
        """So many texts of a schema's grammar, judged."""
        judge, names = judge_of(schema), sorted(names_of(schema))
        for _ in range(number):
            yield self._output(grammar, judge, names)

    def mutants(
        self, grammar: CompiledGrammar, schema: Any, values: list[Any], number: int
    ) -> Iterator[tuple[str, bool, bool]]:
        """So many texts that are nearly those of some values: the text, whether it is valid, whether it is accepted.

        The grammar must take properties in any order.
        """
        judge = judge_of(schema)
        mutants = Mutants(self.chance, sorted(names_of(schema)), constants_of(schema))
        for _ in range(number if values else 0):
            text = json.dumps(mutants.of(self.chance.choice(values)))
            matcher = grammar.matcher()
            accepted = matcher.accept_bytes(text.encode()) and matcher.is_complete()
            yield text, judge.is_valid(parsed(text)), accepted

    def _output(self, grammar: CompiledGrammar, judge: Any, names: list[str]) -> Output:
        written = bytearray()
        try:
            if not self._write(grammar, names, written):
                return Output(bytes(written), False, "")
            error = next(judge.iter_errors(parsed(written)), None)
        except (AssertionError, ValueError) as wrong:
            return Output(bytes(written), False, f"{type(wrong).__name__}: {wrong}")
        return Output(bytes(written), True, f"{error.validator} at {error.json_path}: {error.message}" if error else "")

    def _write(self, grammar: CompiledGrammar, names: list[str], written: bytearray) -> bool:
        """Whether the text ended. Raises `AssertionError` where masks are at odds with the matcher."""
        matcher, quoted = grammar.matcher(), False
        for step in range(MOST):
            assert matcher.fill_bitmask(self.row.view(np.int32)), "nothing may follow"
            allowed = self.row & self.writes
            some = self.chance.randrange(len(self.texts))
            if allowed[some >> 5] >> (some & 31) & 1 != matcher.fork().accept_token(some):
                assert not self.writes[some >> 5] >> (some & 31) & 1, f"the mask is wrong about token {some}"
            if quoted and written[-1:] == b'"' and self.chance.random() < 0.8:
                name = self._name(matcher, names)
                assert matcher.accept_bytes(name)
                written += name
                quoted = not name
                if name:
                    continue
            if matcher.is_complete() and (step > LONG or self.chance.random() < 0.3):
                return True
            token = self._choice(allowed, step > LONG, quoted)
            if token is None:
                return True
            assert matcher.accept_token(token), f"token {token} is in the mask"
            written += self.texts[token]
            quoted = ESCAPE.sub(b"", written).count(b'"') % 2 == 1
        return False

    def _name(self, matcher: Matcher, names: list[str]) -> bytes:
        """The rest of a name that may follow an opening quote, with its colon; empty if there is none."""
        for name in self.chance.sample(names, min(len(names), MOST_NAMES)):
            rest = f"{json.dumps(name)[1:]}:".encode()
            if matcher.fork().accept_bytes(rest):
                return rest
        return b""

    def _choice(self, allowed: Row, end: bool, quoted: bool) -> int | None:
        for wanted in self._wanted(end, quoted):
            token = self._any(allowed & wanted)
            if token is not None:
                return token
        return self._any(allowed)

    def _wanted(self, end: bool, quoted: bool) -> Iterator[Row]:
        """Kinds of tokens to draw from, the first that is not empty."""
        # Not always the shortest way, which may lead round in a circle.
        if self.chance.random() < (0.9 if end else 0.2):
            yield from self.unquoting if quoted else self.closing
        if self.chance.random() < 0.5:
            yield self.short

    def _any(self, allowed: Row) -> int | None:
        """Any of the tokens: any word that is not 0, and any bit of it."""
        words = np.flatnonzero(allowed)
        if not len(words):
            return None
        word = int(words[self.chance.randrange(len(words))])
        bits = [bit for bit in range(32) if allowed[word] >> bit & 1]
        return word * 32 + self.chance.choice(bits)


def names_of(schema: Any) -> set[str]:
    """The names that a schema mentions."""
    if isinstance(schema, list):
        return {name for part in schema for name in names_of(part)}
    if not isinstance(schema, dict):
        return set()
    declared, required = schema.get("properties"), schema.get("required")
    names = set(declared) if isinstance(declared, dict) else set()
    names |= {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    return names.union(*map(names_of, schema.values()))
