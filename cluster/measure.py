"""Timing of compiling and masking, as `gramary bench` and `make demo` do it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter

from gramary.cluster.source import Case, Kind, Options, Source, compile_source
from gramary.compiler import Compiler, GramaryError, Vocabulary
from gramary.runtime import Bitmask, Matcher, is_allowed


def percentile(values: Sequence[float], q: float) -> float:
    """The value below which a share `q` of `values` lies; NaN of none.

    >>> percentile([3.0, 1.0, 2.0], 0.5)
    2.0
    """
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * q))] if ordered else float("nan")


class GreedyEncoder:
    """Splits text into the longest tokens of a vocabulary, from left to right.

    The result spells the text exactly, but is not always the split that the tokenizer's own merges would make: enough
    to walk masks along a text, not to feed a model.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._ids: dict[bytes, int] = {}
        self._longest = [0] * 256
        for token in range(len(vocabulary)):
            if vocabulary.token_kind(token) != "text":
                continue
            data = vocabulary.token_bytes(token)
            if data:
                self._ids.setdefault(data, token)
                self._longest[data[0]] = max(self._longest[data[0]], len(data))

    def encode(self, text: str | bytes) -> list[int]:
        """Token ids whose bytes spell `text`. Raises `ValueError` where no token does."""
        data = text.encode() if isinstance(text, str) else text
        tokens, at, end, ids = [], 0, len(data), self._ids
        while at < end:
            for stop in range(min(end, at + self._longest[data[at]]), at, -1):
                token = ids.get(data[at:stop])
                if token is not None:
                    tokens.append(token)
                    at = stop
                    break
            else:
                raise ValueError(f"no token starts with byte {data[at]:#04x} (offset {at})")
        return tokens


@dataclass
class Walk:
    """How far a text got, and what each of its positions took."""

    tokens: int
    accepted: int
    complete: bool
    seconds: list[float] = field(default_factory=list)

    @property
    def matches(self) -> bool:
        """Every token was allowed, and the text may end after the last."""
        return self.accepted == self.tokens and self.complete


def walk(matcher: Matcher, tokens: Sequence[int], bitmask: Bitmask) -> Walk:
    """Fill the mask of every position, check the token in it, and accept it; times are of fill and accept together."""
    out = Walk(len(tokens), 0, False)
    address = bitmask.ctypes.data
    for token in tokens:
        before = perf_counter()
        matcher.fill_bitmask(address)
        filled = perf_counter()
        if not is_allowed(bitmask, token):
            out.seconds.append(filled - before)
            return out
        again = perf_counter()
        accepted = matcher.accept_token(token)
        out.seconds.append(perf_counter() - again + filled - before)
        if not accepted:
            raise AssertionError(f"token {token} is in the mask and was refused")
        out.accepted += 1
    out.complete = matcher.is_complete()
    return out


@dataclass
class Figures:
    """What a run of cases measured; times in seconds."""

    cases: int = 0
    compiled: list[float] = field(default_factory=list)
    first_mask: list[float] = field(default_factory=list)
    masks: list[float] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, object]:
        """Counts, and percentiles in microseconds."""
        out: dict[str, object] = {"cases": self.cases, "refused": self.refused, "wrong": self.wrong}
        for name, values in (("compile", self.compiled), ("first_mask", self.first_mask), ("mask", self.masks)):
            out[f"{name}_count"] = len(values)
            for label, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
                out[f"{name}_{label}_us"] = _us(percentile(values, q))
            out[f"{name}_average_us"] = _us(sum(values) / len(values)) if values else None
        return out


def _us(seconds: float) -> float | None:
    return None if seconds != seconds else round(seconds * 1e6, 2)


def measure(
    compiler: Compiler, encoder: GreedyEncoder, case: Case, options: Options, bitmask: Bitmask, into: Figures
) -> None:
    """Compile one case and walk all its instances, adding to `into`; a case that does not compile is counted as
    refused.
    """
    into.cases += 1
    start = perf_counter()
    try:
        grammar = compile_source(compiler, Source(case.name, Kind.SCHEMA, case.schema), options)
    except GramaryError as error:
        into.refused[case.name] = f"{type(error).__name__}: {error}"
        return
    into.compiled.append(perf_counter() - start)
    matcher = grammar.matcher()
    matcher.fill_bitmask(bitmask)
    into.first_mask.append(perf_counter() - start)
    for text, valid in case.instances:
        matcher.reset()
        result = walk(matcher, encoder.encode(text), bitmask)
        into.masks += result.seconds
        if result.matches != valid:
            into.wrong[case.name] = f"{'refused' if valid else 'accepted'}: {text[:200]}"
