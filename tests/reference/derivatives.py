"""Step two: what may follow once a tree has read a symbol, and the references that it may make first.

``step`` gives the *partial derivatives* of a tree: trees of which at least one describes what follows. ``calls`` gives
its first references, each with the tree that follows. Neither follows a reference; that is the recogniser's part.
"""

from __future__ import annotations

from .dispatch import Dispatches
from .language import Language
from .trees import Callee, Node, Special, Symbol


class Derivatives:
    """Of the trees of one language; each is worked out once."""

    def __init__(self, language: Language) -> None:
        self.language = language
        self.forest = language.forest
        self.dispatches = Dispatches(language)
        self.nullable_callees = NullableCallees(self)
        self._steps: dict[tuple[Node, Symbol], frozenset[Node]] = {}
        self._calls: dict[Node, frozenset[tuple[Callee, Node]]] = {}

    def nullable(self, node: Node) -> bool:
        """Whether the tree matches the empty word without making a reference."""
        kind, args = node.kind, node.args
        if kind in ("empty", "mark"):
            return True
        if kind == "cat":
            return self.nullable(args[0]) and self.nullable(args[1])
        if kind == "alt":
            return any(map(self.nullable, args[0]))
        if kind == "repeat":
            return args[1] == 0 or self.nullable(args[0])
        if kind == "regular":
            yes, no = args
            return all(any(map(self.nullable, s)) for s in yes) and not any(any(map(self.nullable, s)) for s in no)
        if kind == "automaton":
            return bool(args[0][args[1]][1])
        if kind == "dispatch":
            return self.dispatches.may_end(node)
        return False

    def marked(self, node: Node) -> bool:
        """Whether the tree begins with a mark for distinct strings, which `distinct` enforces."""
        kind, args = node.kind, node.args
        if kind == "cat":
            return self.marked(args[0]) or (self.nullable(args[0]) and self.marked(args[1]))
        return kind == "mark" or (kind == "alt" and any(map(self.marked, args[0])))

    def step(self, node: Node, symbol: Symbol) -> frozenset[Node]:
        """What may follow after the tree itself (not a reference of it) has read the symbol."""
        key = (node, symbol)
        if key not in self._steps:
            self._steps[key] = frozenset(n for n in self._step(node, symbol) if n is not self.forest.never)
        return self._steps[key]

    def _step(self, node: Node, symbol: Symbol) -> set[Node]:
        kind, args, forest = node.kind, node.args, self.forest
        if kind == "byte":
            return {forest.empty} if symbol in args[0] else set()
        if kind == "token":
            return {forest.empty} if symbol == Special(args[0]) else set()
        if kind == "cat":
            found = {forest.cat(n, args[1]) for n in self.step(args[0], symbol)}
            return found | self.step(args[1], symbol) if self.nullable(args[0]) else found
        if kind == "alt":
            return {n for part in args[0] for n in self.step(part, symbol)}
        if kind == "repeat":
            rest = self._one_less(*args)
            return {forest.cat(n, rest) for n in self.step(args[0], symbol)}
        if kind == "object":
            return set(self.step(self.language.objects.unfold(node), symbol))
        if kind == "dispatch":
            handler = self.dispatches.handler(node)
            tags = set(self.step(handler, symbol)) if handler is not None else set()
            return tags | self.dispatches.write(node, symbol) if isinstance(symbol, int) else tags
        if kind == "guard":
            if symbol in args[0]:
                return set()
            return {n for tree in self.skipping(args[1]) for n in self.step(tree, symbol)}
        if kind == "regular":
            yes, no = (tuple(frozenset(m for n in s for m in self.step(n, symbol)) for s in side) for side in args)
            return {forest.make("regular", yes, no)} if all(yes) else set()
        if kind == "automaton":
            table, state = args
            targets = [t for lo, hi, t in table[state][0] if isinstance(symbol, int) and lo <= symbol <= hi]
            return {forest.make("automaton", table, t) for t in targets}
        return set()

    def _one_less(self, body: Node, low: int, high: int | None) -> Node:
        return self.forest.repeat(body, max(low - 1, 0), None if high is None else high - 1)

    def calls(self, node: Node) -> frozenset[tuple[Callee, Node]]:
        """The references that may come first, each with the tree that follows it."""
        if node not in self._calls:
            self._calls[node] = frozenset(self._find_calls(node))
        return self._calls[node]

    def _find_calls(self, node: Node) -> set[tuple[Callee, Node]]:
        kind, args, forest = node.kind, node.args, self.forest
        if kind == "call":
            return {(args[0], forest.empty)}
        if kind == "cat":
            found = {(callee, forest.cat(rest, args[1])) for callee, rest in self.calls(args[0])}
            return found | self.calls(args[1]) if self.nullable(args[0]) else found
        if kind == "alt":
            return {call for part in args[0] for call in self.calls(part)}
        if kind == "repeat":
            return {(callee, forest.cat(rest, self._one_less(*args))) for callee, rest in self.calls(args[0])}
        if kind == "object":
            return set(self.calls(self.language.objects.unfold(node)))
        if kind == "dispatch":
            handler = self.dispatches.handler(node)
            return set(self.calls(handler)) if handler is not None else set()
        if kind == "guard":
            trees = self.skipping(args[1])
            return {(("guarded", args[0], callee), rest) for tree in trees for callee, rest in self.calls(tree)}
        return set()  # regular trees hold no references

    def skipping(self, node: Node) -> set[Node]:
        """The tree, and what is left of it when nullable references in front are skipped."""
        found, work = {node}, [node]
        while work:
            for callee, rest in self.calls(work.pop()):
                if callee in self.nullable_callees and rest not in found:
                    found.add(rest)
                    work.append(rest)
        return found


class NullableCallees:
    """The callees that match the empty word: a least fixpoint, found as callees are asked for."""

    def __init__(self, derivatives: Derivatives) -> None:
        self.derivatives = derivatives
        self.known: dict[Callee, bool] = {}

    def __contains__(self, callee: Callee) -> bool:
        if callee not in self.known:
            reached: set[Callee] = set()
            work = [callee]
            while work:
                c = work.pop()
                if c not in reached and c not in self.known:
                    reached.add(c)
                    work += self._mentioned(self.derivatives.language.start_of(c))
            value = dict.fromkeys(reached, False)
            while True:
                new = [c for c in reached if not value[c] and self._empty(self.derivatives.language.start_of(c), value)]
                if not new:
                    break
                value.update(dict.fromkeys(new, True))
            self.known.update(value)
        return self.known[callee]

    def _mentioned(self, node: Node) -> list[Callee]:
        kind, args = node.kind, node.args
        if kind == "call":
            return [args[0]]
        below = args if kind == "cat" else args[0] if kind == "alt" else args[:1] if kind == "repeat" else ()
        return [callee for n in below for callee in self._mentioned(n)]

    def _empty(self, node: Node, value: dict[Callee, bool]) -> bool:
        kind, args = node.kind, node.args
        if kind == "call":
            return self.known.get(args[0], False) or value.get(args[0], False)
        if kind == "cat":
            return self._empty(args[0], value) and self._empty(args[1], value)
        if kind == "alt":
            return any(self._empty(n, value) for n in args[0])
        if kind == "repeat":
            return args[1] == 0 or self._empty(args[0], value)
        return self.derivatives.nullable(node)
