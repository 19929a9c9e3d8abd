"""Which trees match anything at all.

The recogniser drops those that do not. What remains at a position is therefore never a dead end, so that *viable* means
"is the start of a word".
"""

from __future__ import annotations

import itertools
from collections import ChainMap
from collections.abc import Iterable, Mapping
from functools import cache

from .derivatives import Derivatives
from .trees import Node, Special, Symbol


@cache
def representatives(sets: frozenset[frozenset[int]]) -> list[int]:
    """One byte of each class of bytes that are in the same sets."""
    classes = [frozenset(range(256))]
    for s in sets:
        classes = [part for c in classes for part in (c & s, c - s) if part]
    return [min(c) for c in classes]


class Productivity:
    """Tells which trees of one language have a word."""

    def __init__(self, derivatives: Derivatives) -> None:
        self.derivatives = derivatives
        self.language = derivatives.language
        self.forest = derivatives.forest
        self._productive: dict[Node, bool] = {}
        self._found_parts: dict[Node, list[Node]] = {}

    def productive(self, node: Node) -> bool:
        """Whether the tree has a word: the least fixpoint over everything that the tree reaches."""
        if node not in self._productive:
            reached, work = {node}, [node]
            while work:
                for child in self._parts(work.pop()):
                    if child not in reached and child not in self._productive:
                        reached.add(child)
                        work.append(child)
            value = dict.fromkeys(reached, False)
            known = ChainMap(value, self._productive)
            while True:
                new = [n for n in reached if not value[n] and self._has_word(n, known)]
                if not new:
                    break
                value.update(dict.fromkeys(new, True))
            self._productive.update(value)
        return self._productive[node]

    def _parts(self, node: Node) -> Iterable[Node]:
        """The trees on whose productivity that of the tree depends."""
        if node not in self._found_parts:
            self._found_parts[node] = list(self._find_parts(node))
        return self._found_parts[node]

    def _find_parts(self, node: Node) -> Iterable[Node]:
        kind, args = node.kind, node.args
        if kind == "cat":
            return args
        if kind == "alt":
            return args[0]  # type: ignore[no-any-return]
        if kind == "repeat":
            return [args[0]]
        if kind == "call":
            return [self.language.start_of(args[0])]
        if kind == "object":
            return [self.language.objects.unfold(node)]
        if kind in ("dispatch", "guard"):
            following = (self.derivatives.step(node, symbol) for symbol in self._alphabet(node))
            return [*itertools.chain.from_iterable(following), *self._called(node)]
        return []

    def _called(self, node: Node) -> list[Node]:
        """Each reference that the tree may make first, followed by its rest."""
        return [
            self.forest.cat(self.forest.make("call", callee), rest) for callee, rest in self.derivatives.calls(node)
        ]

    def _has_word(self, node: Node, known: Mapping[Node, bool]) -> bool:
        kind, args = node.kind, node.args
        if kind in ("empty", "mark", "byte", "token"):
            return True
        if kind == "cat":
            return known[args[0]] and known[args[1]]
        if kind == "repeat":
            return args[1] == 0 or known[args[0]]
        if kind in ("regular", "automaton"):
            return self._regular_has_word(node)
        if kind == "dispatch" and self.derivatives.nullable(node):
            return True
        return any(known[part] for part in self._parts(node))

    def _regular_has_word(self, node: Node) -> bool:
        """Search the (finitely many) derivatives for one that matches the empty word."""
        symbols = self._alphabet(node)
        seen, work = {node}, [node]
        while work:
            tree = work.pop()
            if self.derivatives.nullable(tree):
                return True
            for symbol in symbols:
                for n in self.derivatives.step(tree, symbol) - seen:
                    seen.add(n)
                    work.append(n)
        return False

    def _alphabet(self, node: Node) -> list[Symbol]:
        """One symbol of each kind that the tree (without its references) can tell apart."""
        sets: set[frozenset[int]] = set()
        tokens: set[Symbol] = set()
        seen, work = {node}, [node]
        while work:
            tree = work.pop()
            kind, args = tree.kind, tree.args
            below: Iterable[Node] = ()
            if kind == "byte":
                sets.add(args[0])
            elif kind == "token":
                tokens.add(Special(args[0]))
            elif kind == "cat":
                below = args
            elif kind == "alt":
                below = args[0]
            elif kind == "repeat":
                below = args[:1]
            elif kind == "guard":
                sets.add(args[0])
                below = self.derivatives.skipping(args[1])
            elif kind == "regular":
                below = [n for side in args for s in side for n in s]
            elif kind == "automaton":
                sets |= {frozenset(range(lo, hi + 1)) for edges, _ in args[0] for lo, hi, _ in edges}
            elif kind == "object":
                below = [self.language.objects.unfold(tree)]
            elif kind == "dispatch":
                sets.update(self.derivatives.dispatches.bytes_apart(tree))
                handler = self.derivatives.dispatches.handler(tree)
                below = [] if handler is None else [handler]
            for n in below:
                if n not in seen:
                    seen.add(n)
                    work.append(n)
        return [*representatives(frozenset(sets)), *sorted(tokens, key=repr)]
