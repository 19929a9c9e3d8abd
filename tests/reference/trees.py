"""The trees that the reference works on: interned expressions over symbols, and characters as such expressions."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Special:
    """A special token as an input symbol. Bytes are plain integers."""

    token: int


Symbol = int | Special

#: What a reference names: ("rule", id), ("string", min, max) or ("guarded", bytes, callee).
Callee = tuple[Any, ...]

Ranges = list[tuple[int, int]]

#: All Unicode scalar values.
SCALARS: Ranges = [(0, 0xD7FF), (0xE000, 0x10FFFF)]

#: What JSON may write with a letter after the backslash.
SHORT_ESCAPES = {
    0x22: b'\\"', 0x5C: b"\\\\", 0x2F: b"\\/",
    0x08: b"\\b", 0x0C: b"\\f", 0x0A: b"\\n", 0x0D: b"\\r", 0x09: b"\\t",
}  # fmt: skip


class Node:
    """An interned expression: equal means identical. Made by ``Forest.make`` only."""

    __slots__ = ("args", "kind")

    def __init__(self, kind: str, args: tuple[Any, ...]) -> None:
        self.kind = kind
        self.args = args

    def __repr__(self) -> str:
        return self.kind + (repr(self.args) if self.args else "")


class Forest:
    """The intern table, and constructors that keep trees in a small normal form."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[Hashable, ...], Node] = {}
        self.empty = self.make("empty")
        self.never = self.make("never")

    def make(self, kind: str, *args: Any) -> Node:
        key = (kind, *args)
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = Node(kind, args)
        return node

    def byte(self, ranges: Iterable[tuple[int, int]]) -> Node:
        """One byte of the ranges."""
        allowed = frozenset(b for lo, hi in ranges for b in range(lo, hi + 1))
        return self.make("byte", allowed) if allowed else self.never

    def literal(self, data: bytes) -> Node:
        return self.seq(self.byte([(b, b)]) for b in data)

    def cat(self, first: Node, second: Node) -> Node:
        if first is self.never or second is self.never:
            return self.never
        if first is self.empty:
            return second
        if second is self.empty:
            return first
        if first.kind == "cat":  # right-nested, so that equal sequences are equal trees
            return self.cat(first.args[0], self.cat(first.args[1], second))
        return self.make("cat", first, second)

    def seq(self, parts: Iterable[Node]) -> Node:
        result = self.empty
        for part in reversed(list(parts)):
            result = self.cat(part, result)
        return result

    def alt(self, parts: Iterable[Node]) -> Node:
        flat: set[Node] = set()
        for part in parts:
            flat |= part.args[0] if part.kind == "alt" else {part}
        flat.discard(self.never)
        if not flat:
            return self.never
        return next(iter(flat)) if len(flat) == 1 else self.make("alt", frozenset(flat))

    def repeat(self, body: Node, low: int, high: int | None) -> Node:
        if high is not None and high < low:
            return self.never
        if high == 0:
            return self.empty
        return body if (low, high) == (1, 1) else self.make("repeat", body, low, high)


# ------------------------------------------------------------------------------------------------ characters


def between(low: tuple[int, ...], high: tuple[int, ...], digits: Ranges) -> Iterator[Ranges]:
    """The tuples from ``low`` to ``high`` in lexicographic order, as boxes: one (lowest, highest) pair a place.

    ``digits`` gives the lowest and highest digit of each place.
    """
    if not low:
        yield []
        return
    first, last = low[0], high[0]
    least = tuple(d[0] for d in digits[1:])
    most = tuple(d[1] for d in digits[1:])
    if first == last:
        for rest in between(low[1:], high[1:], digits[1:]):
            yield [(first, first), *rest]
        return
    if low[1:] != least:
        for rest in between(low[1:], most, digits[1:]):
            yield [(first, first), *rest]
        first += 1
    if high[1:] != most:
        for rest in between(least, high[1:], digits[1:]):
            yield [(last, last), *rest]
        last -= 1
    if first <= last:
        yield [(first, last), *digits[1:]]


def clip(ranges: Iterable[tuple[int, int]], low: int, high: int) -> Ranges:
    """The part of the ranges that lies in ``low..=high``."""
    return [(max(lo, low), min(hi, high)) for lo, hi in ranges if max(lo, low) <= min(hi, high)]


def without(ranges: Iterable[tuple[int, int]], points: Iterable[int]) -> Ranges:
    rest = list(ranges)
    for p in points:
        rest = clip(rest, 0, p - 1) + clip(rest, p + 1, 0x10FFFF)
    return rest


class Characters:
    """Code point ranges as trees over bytes: in UTF-8, and as JSON strings may spell them."""

    def __init__(self, forest: Forest) -> None:
        self.forest = forest

    def boxes(self, boxes: Iterable[Ranges]) -> Node:
        return self.forest.alt(self.forest.seq(self.forest.byte([place]) for place in box) for box in boxes)

    def utf8(self, ranges: Iterable[tuple[int, int]]) -> Node:
        ranges = list(ranges)
        parts = []
        for length, (low, high) in enumerate([(0, 0x7F), (0x80, 0x7FF), (0x800, 0xFFFF), (0x10000, 0x10FFFF)], 1):
            for lo, hi in clip(ranges, low, high):
                for a, b in clip([(lo, hi)], 0, 0xD7FF) + clip([(lo, hi)], 0xE000, 0x10FFFF):
                    digits = [(0, 255)] + [(0x80, 0xBF)] * (length - 1)
                    parts.append(self.boxes(between(tuple(chr(a).encode()), tuple(chr(b).encode()), digits)))
        return self.forest.alt(parts)

    def hex_unit(self, low: int, high: int) -> Node:
        r"""``\uXXXX`` for the UTF-16 code units from ``low`` to ``high``."""

        def nibbles(n: int) -> tuple[int, ...]:
            return (n >> 12, n >> 8 & 15, n >> 4 & 15, n & 15)

        def digit(lo: int, hi: int) -> Node:
            text = "".join(f"{d:x}{d:X}" for d in range(lo, hi + 1))
            return self.forest.byte((ord(c), ord(c)) for c in text)

        parts = [
            self.forest.seq(digit(*place) for place in box)
            for box in between(nibbles(low), nibbles(high), [(0, 15)] * 4)
        ]
        return self.forest.cat(self.forest.literal(b"\\u"), self.forest.alt(parts))

    def hex_escape(self, ranges: Iterable[tuple[int, int]]) -> Node:
        r"""The ranges as ``\uXXXX``, or as a surrogate pair."""
        ranges = list(ranges)
        parts = [self.hex_unit(lo, hi) for lo, hi in clip(ranges, 0, 0xD7FF) + clip(ranges, 0xE000, 0xFFFF)]
        for lo, hi in clip(ranges, 0x10000, 0x10FFFF):
            a, b = lo - 0x10000, hi - 0x10000
            pairs = between((a >> 10, a & 0x3FF), (b >> 10, b & 0x3FF), [(0, 0x3FF)] * 2)
            for (h0, h1), (l0, l1) in pairs:
                head = self.hex_unit(0xD800 + h0, 0xD800 + h1)
                parts.append(self.forest.cat(head, self.hex_unit(0xDC00 + l0, 0xDC00 + l1)))
        return self.forest.alt(parts)

    def json(self, ranges: Iterable[tuple[int, int]], free: bool) -> Node:
        r"""One character of the ranges inside a JSON string.

        Raw where JSON allows it, by its short escape if it has one, and as ``\uXXXX``: always where it is a control
        character or not ASCII, and everywhere if ``free``.
        """
        ranges = list(ranges)
        raw = self.utf8(without(clip(ranges, 0x20, 0x10FFFF), [0x22, 0x5C]))
        short = self.forest.alt(self.forest.literal(s) for c, s in SHORT_ESCAPES.items() if clip(ranges, c, c))
        spelt = ranges if free else clip(ranges, 0, 0x1F) + clip(ranges, 0x7F, 0x10FFFF)
        return self.forest.alt([raw, short, self.hex_escape(spelt)])

    def json_text(self, text: str, free: bool = True) -> Node:
        """All spellings of one string, without its quotes."""
        return self.forest.seq(self.json([(ord(c), ord(c))], free) for c in text)
