"""Step three: a textbook Earley recogniser whose items are (callee, remaining tree, origin)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from .derivatives import Derivatives
from .language import Json, Language
from .productivity import Productivity
from .trees import Callee, Node, Symbol

#: (callee, what is left of its tree, position where it began)
Item = tuple[Callee, Node, int]
Items = frozenset[Item]


class Reference:
    """The language of a grammar."""

    def __init__(self, grammar: Json) -> None:
        self.language = Language(grammar)
        self.derivatives = Derivatives(self.language)
        self.productivity = Productivity(self.derivatives)

    @cached_property
    def start(self) -> State:
        """The state before the first symbol."""
        root = self.language.root
        return State(self, (self.close([], 0, {(root, self.language.start_of(root), 0)}),))

    def accepts(self, text: bytes) -> bool:
        state = self.start.feed_all(text)
        return state is not None and state.complete

    def viable(self, text: bytes) -> bool:
        return self.start.feed_all(text) is not None

    def close(self, earlier: list[Items], here: int, items: set[Item], unmarked: bool = False) -> Items:
        """Predict and complete until nothing is new; then drop what leads nowhere, and marked trees if so told."""
        derivatives, start_of, productive = self.derivatives, self.language.start_of, self.productivity.productive
        found: dict[Item, None] = {}
        done: set[Callee] = set()  # callees that matched the empty word here
        work = [item for item in items if productive(item[1])]
        while work:
            item = work.pop()
            if item in found or (unmarked and derivatives.marked(item[1])):
                continue
            found[item] = None
            callee, tree, origin = item
            for called, rest in derivatives.calls(tree):
                if not (productive(start_of(called)) and productive(rest)):
                    continue
                work.append((called, start_of(called), here))
                if called in done:
                    work.append((callee, rest, origin))
            if derivatives.nullable(tree):
                if origin == here:
                    done.add(callee)
                for caller, above, start in list(found) if origin == here else earlier[origin]:
                    work += [
                        (caller, rest, start)
                        for called, rest in derivatives.calls(above)
                        if called == callee and productive(rest)
                    ]
        return frozenset(found)


@dataclass(frozen=True)
class State:
    """What a reference knows after some input: one Earley set a position. Never empty: a state is viable."""

    reference: Reference
    sets: tuple[Items, ...]

    def feed(self, symbol: Symbol, unmarked: bool = False) -> State | None:
        """The state one symbol on, or ``None`` if no word begins that way; `unmarked`: without marked trees."""
        here = len(self.sets)
        step = self.reference.derivatives.step
        moved = {(callee, n, origin) for callee, tree, origin in self.sets[-1] for n in step(tree, symbol)}
        items = self.reference.close(list(self.sets), here, moved, unmarked)
        return State(self.reference, (*self.sets, items)) if items else None

    def feed_all(self, symbols: Iterable[Symbol]) -> State | None:
        state: State | None = self
        for symbol in symbols:
            if state is None:
                return None
            state = state.feed(symbol)
        return state

    @property
    def marked(self) -> bool:
        """Whether a tree begins with a mark here."""
        return any(self.reference.derivatives.marked(tree) for _, tree, _ in self.sets[-1])

    @property
    def viable(self) -> bool:
        """False only for the start of an empty language."""
        return bool(self.sets[-1])

    @property
    def complete(self) -> bool:
        root, nullable = self.reference.language.root, self.reference.derivatives.nullable
        return any(callee == root and origin == 0 and nullable(tree) for callee, tree, origin in self.sets[-1])

    @cached_property
    def next_bytes(self) -> bytes:
        """Every byte that may come next."""
        return bytes(b for b in range(256) if self.feed(b) is not None)
