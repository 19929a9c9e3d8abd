"""A node's figures at one moment: what the Stats call carries and `gramary top` shows.

`NodeStats` holds the same fields as the wire's message. What a node sends is data from outside: `from_json` bounds and
checks it, and what a figure is missing reads as 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gramary.cluster.counting import Group, Histogram

MOST_VALUES = 5000
MOST_TOKENIZERS = 100
MOST_SLOWEST = 20
MOST_NAME = 200

_SERIES = re.compile(r'([A-Za-z_:][A-Za-z0-9_:]*)(?:\{([^{}]*)\})?')  # fmt: skip
_LABEL = re.compile(r'([a-z_]+)="([^"\\]*)"')


@dataclass(frozen=True, slots=True)
class TokenizerFigures:
    """What one tokenizer takes in a node's store."""

    fingerprint: bytes
    entries: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SlowUnit:
    """A unit that was dear to compile."""

    digest: bytes
    name: str
    cost_ns: int


@dataclass(frozen=True, slots=True)
class NodeStats:
    """A node's figures. `values`: counters and gauges by series, `gramary_lookups_total{tier="lmdb",result="hit"}`.

    `error`: why there are none (the node could not be asked); empty if there are.
    """

    node: str
    uptime_s: float = 0.0
    values: Mapping[str, float] = field(default_factory=dict)
    tokenizers: Sequence[TokenizerFigures] = ()
    slowest: Sequence[SlowUnit] = ()
    error: str = ""

    def total(self, name: str, **labels: str) -> float:
        """The sum of a metric's series that have these labels."""
        return sum(value for one, have, value in self._series() if one == name and labels.items() <= have.items())

    def by(self, name: str, label: str) -> dict[str, float]:
        """A metric's sums by the values of one label."""
        out: dict[str, float] = {}
        for one, have, value in self._series():
            if one == name and label in have:
                out[have[label]] = out.get(have[label], 0) + value
        return out

    def _series(self) -> Iterable[tuple[str, dict[str, str], float]]:
        for series, value in self.values.items():
            match = _SERIES.fullmatch(series)
            if match:
                yield match[1], dict(_LABEL.findall(match[2] or "")), value

    def hit_rates(self) -> dict[str, float]:
        """By tier: the share of the look-ups that reached it which it answered."""
        hits, asked = {}, self.by("gramary_lookups_total", "tier")
        for tier, number in asked.items():
            hits[tier] = self.total("gramary_lookups_total", tier=tier, result="hit") / number if number else 0.0
        return hits

    def as_json(self) -> dict[str, Any]:
        """Ready for `json.dumps`; digests in hexadecimal."""
        return {
            "node": self.node,
            "uptime_s": self.uptime_s,
            "values": dict(self.values),
            "tokenizers": [
                {"fingerprint": one.fingerprint.hex(), "entries": one.entries, "size_bytes": one.size_bytes}
                for one in self.tokenizers
            ],
            "slowest": [{"digest": one.digest.hex(), "name": one.name, "cost_ns": one.cost_ns} for one in self.slowest],
            "error": self.error,
        }

    @classmethod
    def from_json(cls, data: Any) -> NodeStats:
        """The inverse of `as_json`; raises `ValueError` for anything else, or too much of it."""
        try:
            values = {_text(name): _number(value) for name, value in _most(data["values"].items(), MOST_VALUES)}
            tokenizers = [
                TokenizerFigures(_hex(one["fingerprint"]), _count(one["entries"]), _count(one["size_bytes"]))
                for one in _most(data["tokenizers"], MOST_TOKENIZERS)
            ]
            slowest = [
                SlowUnit(_hex(one["digest"]), _text(one["name"]), _count(one["cost_ns"]))
                for one in _most(data["slowest"], MOST_SLOWEST)
            ]
            uptime = _number(data["uptime_s"])
            return cls(_text(data["node"]), uptime, values, tokenizers, slowest, _text(data["error"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"these are no figures of a node: {type(error).__name__} {error}") from None


def _most(items: Iterable[Any], most: int) -> list[Any]:
    listed = list(items)
    if len(listed) > most:
        raise ValueError(f"a node sends at most {most} of these, not {len(listed)}")
    return listed


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MOST_NAME:
        raise ValueError(f"not a text of at most {MOST_NAME} characters: {str(value)[:MOST_NAME]!r}")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"not a finite number: {str(value)[:MOST_NAME]!r}")
    return float(value)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(f"not a count: {str(value)[:MOST_NAME]!r}")
    return value


def _hex(value: Any) -> bytes:
    if not isinstance(value, str) or len(value) > 64:
        raise ValueError("not a digest in hexadecimal")
    return bytes.fromhex(value)


def values_of(groups: Iterable[Group]) -> dict[str, float]:
    """What is not zero in these groups, by series; of a histogram its `_count` and `_sum`."""
    out: dict[str, float] = {}
    for family, rows in ((one, one.snapshot()) for group in groups for one in group.families()):
        for labels, value in zip(family.rows, rows, strict=True):
            pairs = ",".join(f'{name}="{text}"' for name, text in zip(family.labels, labels, strict=True))
            braces = f"{{{pairs}}}" if pairs else ""
            if isinstance(family, Histogram):
                *counts, total = value
                if any(counts):
                    out[f"{family.name}_count{braces}"] = sum(counts)
                    out[f"{family.name}_sum{braces}"] = total
            elif value:
                out[family.name + braces] = value
    return out
