"""Dispatches as trees that unfold one byte at a time.

Such a tree is what may follow the free text so far. Its arguments: the recent text (what may become a trigger or a stop
string), the number of tags so far, the beginning of a character, since free text is UTF-8, and what is *owed*: how many
of the last bytes a pattern must cover that has to be completed, and whether only a stop string may be it.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .trees import Node

if TYPE_CHECKING:
    from .language import Json, Language

NOTHING_OWED = (0, False)

#: Where bytes change their part in UTF-8.
UTF8_BOUNDS = b"\x80\x90\xa0\xc0\xc2\xe0\xe1\xed\xee\xf0\xf1\xf4\xf5"


class Dispatches:
    """The dispatches among a grammar's rules."""

    def __init__(self, language: Language) -> None:
        self.language = language
        self.forest = language.forest

    def _spec(self, rule: int) -> Json:
        return self.language.rules[rule]["body"]["dispatch"]

    def may_end(self, node: Node) -> bool:
        """Whether the free text may end here."""
        rule, text, tags, partial, owed = node.args
        spec = self._spec(rule)
        if owed != NOTHING_OWED or partial or self._opened(spec, text, owed) is not None:
            return False
        return bool(spec["open_end"]) and tags >= spec["min_tags"]

    def bytes_apart(self, node: Node) -> Iterable[frozenset[int]]:
        """Sets of bytes such that two that are in the same ones do the same to the free text."""
        yield from (frozenset(range(bound)) for bound in UTF8_BOUNDS)
        spec = self._spec(node.args[0])
        for pattern in (p for kind in ("triggers", "stops", "excludes") for p in spec[kind]):
            yield from (frozenset([byte]) for byte in pattern)

    def handler(self, node: Node) -> Node | None:
        """What follows the trigger that has just ended, if one has."""
        rule, text, tags, _, owed = node.args
        spec = self._spec(rule)
        trigger = self._opened(spec, text, owed)
        if trigger is None:
            return None
        last = spec["max_tags"] is not None and tags + 1 == spec["max_tags"] and spec["stop_after_last"]
        rest = self.forest.empty if last else self._after(rule, b"", tags + 1)
        longer = self._continuations(spec, text, len(spec["triggers"][trigger]))
        return self.forest.cat(self.language.guard(longer, self.language.read(spec["handlers"][trigger])), rest)

    def write(self, node: Node, byte: int) -> set[Node]:
        """What may follow after one byte more of free text, or of a pattern; tags are the handler's."""
        rule, text, tags, partial, owed = node.args
        spec = self._spec(rule)
        trigger = self._opened(spec, text, owed)
        if trigger is not None:
            owed = (len(spec["triggers"][trigger]), False)
        length, only_stop = owed
        if length > 0:
            if byte not in self._continuations(spec, text, length, only_stop):
                return set()
            length += 1
        text += bytes([byte])
        partial += bytes([byte])
        try:
            if codecs.getincrementaldecoder("utf-8")().decode(partial):
                partial = b""
        except UnicodeDecodeError:
            return set()
        stops = [len(s) for s in spec["stops"] if text.endswith(bytes(s))]
        if stops:
            ends = max(stops) >= length and tags >= spec["min_tags"]
            return {self.forest.empty} if ends else set()
        if any(text.endswith(bytes(e)) for e in spec["excludes"]):
            # It does not count if it reaches into a stop string that is then completed.
            length, only_stop = max(length, 1), True
            if not self._continuations(spec, text, length, True):
                return set()
        if self._opened(spec, text, (length, only_stop)) is not None and tags == spec["max_tags"]:
            return set()
        return {self._after(rule, text, tags, partial, (length, only_stop))}

    def _after(
        self, rule: int, text: bytes, tags: int, partial: bytes = b"", owed: tuple[int, bool] = NOTHING_OWED
    ) -> Node:
        """What follows; ``text`` is cut to its longest end that begins a pattern: no other part of it can matter."""
        spec = self._spec(rule)
        patterns = [bytes(p) for kind in ("triggers", "stops", "excludes") for p in spec[kind]]
        while not any(p.startswith(text) for p in [*patterns, b""]):
            text = text[1:]
        bound = max(spec["min_tags"], spec["max_tags"] or 0)
        if spec["max_tags"] is None:
            tags = min(tags, bound)
        return self.forest.make("dispatch", rule, text, tags, partial, owed)

    @staticmethod
    def _opened(spec: Json, text: bytes, owed: tuple[int, bool]) -> int | None:
        """The longest trigger that ends here, if it is as long as what is owed."""
        length, stop = owed
        ending = [
            i for i, t in enumerate(spec["triggers"]) if text.endswith(bytes(t)) and not stop and len(t) >= length
        ]
        return max(ending, key=lambda i: len(spec["triggers"][i]), default=None)

    def _continuations(self, spec: Json, text: bytes, length: int, stop: bool = False) -> frozenset[int]:
        """Bytes that continue a pattern (a stop string) of which at least ``length`` bytes have been read."""
        found = set()
        kinds = ("stops",) if stop else ("triggers", "stops", "excludes")
        for p in (bytes(p) for kind in kinds for p in spec[kind]):
            for n in range(length, len(p)):
                if text.endswith(p[:n]):
                    found.add(p[n])
        return frozenset(found)
