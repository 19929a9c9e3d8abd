"""The oracle for distinct strings: reads the text beside the reference and drops marked trees where one comes again.

A text is viable if some word begins with it. Within a string the reference alone cannot tell, as only a repetition may
be possible; so an end of the string is looked for. Behind it there is always a way on: marks are for strings without
end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from .recogniser import Reference, State

#: What that search writes: the closing quote, then what the tests' strings are made of, escapes included.
WRITTEN = b'"abu0612'


@dataclass(frozen=True)
class DistinctState:
    """A state of the reference, and what has been read of the string and the containers around it."""

    state: State
    #: The strings of each open container so far; `None`: it is not marked.
    containers: tuple[frozenset[str] | None, ...] = ()
    #: The string that is being read, from its quote on.
    string: bytes = b""

    @classmethod
    def start(cls, reference: Reference) -> DistinctState:
        return cls(reference.start)

    def feed(self, byte: int) -> DistinctState | None:
        if self.string:
            return self._within(byte)
        state = self.state.feed(byte)
        if state is None:
            return None
        if byte in b"[{":
            return replace(self, state=state, containers=(*self.containers, frozenset() if state.marked else None))
        if byte in b"]}":
            return replace(self, state=state, containers=self.containers[:-1])
        return replace(self, state=state, string=b'"' if byte == ord('"') else b"")

    def _within(self, byte: int) -> DistinctState | None:
        string = self.string + bytes([byte])
        escaped = (len(self.string) - len(self.string.rstrip(b"\\"))) % 2 == 1
        if byte != ord('"') or escaped:
            state = self.state.feed(byte)
            return None if state is None else replace(self, state=state, string=string)
        state = self.state.feed(byte)
        earlier = self.containers[-1] if self.containers else None
        if state is None:
            return None
        text = json.loads(string)
        if earlier is not None and text in earlier:
            state = self.state.feed(byte, unmarked=True)
            return None if state is None else replace(self, state=state, string=b"")
        if earlier is None or not state.marked:
            return replace(self, state=state, string=b"")
        return replace(self, state=state, string=b"", containers=(*self.containers[:-1], earlier | {text}))

    def feed_all(self, data: Iterable[int]) -> DistinctState | None:
        state: DistinctState | None = self
        for byte in data:
            if state is None:
                return None
            state = state.feed(byte)
        return state

    @property
    def complete(self) -> bool:
        return self.state.complete

    def viable(self, most: int = 12) -> bool:
        """Whether the string that is being read can end, with at most so many bytes more."""
        if not self.string:
            return True
        following = (self.feed(byte) for byte in WRITTEN) if most else ()
        return any(state.viable(most - 1) for state in following if state is not None)
