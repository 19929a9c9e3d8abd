"""Step one: the trees of a grammar, read from the JSON form of ``ir::Grammar``.

Serde writes that form: variants are snake_case and externally tagged. Objects and dispatches become trees that stand
for a state of theirs and unfold as they are read (`objects`, `dispatch`); a reference stays a ``call``, whose tree is
read when somebody follows it, so that recursion needs no end.
"""

from __future__ import annotations

from typing import Any

from .dispatch import NOTHING_OWED
from .objects import Objects
from .trees import SCALARS, Callee, Characters, Forest, Node

Json = Any


class Language:
    """A grammar's rules, and the trees of what references name."""

    def __init__(self, grammar: Json) -> None:
        self.rules: list[Json] = grammar["rules"]
        self.root: Callee = ("rule", grammar["root"])
        self.forest = Forest()
        self.characters = Characters(self.forest)
        self.objects = Objects(self)
        self._starts: dict[Callee, Node] = {}

    def start_of(self, callee: Callee) -> Node:
        """The tree of what a reference names."""
        node = self._starts.get(callee)
        if node is None:
            if callee[0] == "string":
                node = self._json_string(callee[1], callee[2])
            elif callee[0] == "guarded":
                node = self.guard(callee[1], self.start_of(callee[2]))
            else:
                node = self._body(callee[1])
            self._starts[callee] = node
        return node

    def _body(self, rule: int) -> Node:
        body = self.rules[rule]["body"]
        if body == "json_string":
            return self._json_string(0, None)
        ((kind, value),) = body.items()
        if kind == "expr":
            return self.read(value)
        if kind == "object":
            return self.objects.opened(rule)
        assert kind == "dispatch", kind
        return self.forest.make("dispatch", rule, b"", 0, b"", NOTHING_OWED)

    def _json_string(self, low: int, high: int | None) -> Node:
        quote = self.forest.literal(b'"')
        return self.forest.seq([quote, self.forest.repeat(self.characters.json(SCALARS, True), low, high), quote])

    def read(self, expr: Json) -> Node:
        forest = self.forest
        if expr == "empty":
            return forest.empty
        if expr == "never":
            return forest.never
        if expr == "distinct":
            return forest.make("mark")
        ((kind, value),) = expr.items()
        if kind == "bytes":
            return forest.literal(value.encode() if isinstance(value, str) else bytes(value))
        if kind == "class":
            return forest.byte((lo, hi) for lo, hi in value)
        if kind == "chars":
            return self.characters.utf8((lo, hi) for lo, hi in value)
        if kind == "json_chars":
            return self.characters.json([(lo, hi) for lo, hi in value["ranges"]], value["free"])
        if kind == "seq":
            return forest.seq(self.read(e) for e in value)
        if kind == "alt":
            return forest.alt(self.read(e) for e in value)
        if kind == "repeat":
            return forest.repeat(self.read(value["body"]), value["min"], value["max"])
        if kind == "rule":
            return forest.make("call", ("rule", value))
        if kind == "call":
            assert self.rules[value["rule"]]["body"] == "json_string", "only JSON strings take arguments"
            ((low, high),) = value["args"]
            return forest.make("call", ("string", low, high))
        if kind == "token":
            return forest.make("token", value)
        if kind == "hole":
            return forest.never
        if kind == "and":
            return forest.make("regular", tuple(frozenset([self.read(e)]) for e in value), ())
        if kind == "sub":
            yes, no = value
            return forest.make("regular", (frozenset([self.read(yes)]),), (frozenset([self.read(no)]),))
        assert kind == "automaton", kind
        table = tuple((tuple(map(tuple, s["edges"])), s["accept"]) for s in value["states"])
        return forest.make("automaton", table, 0) if table else forest.never

    def guard(self, no: frozenset[int], node: Node) -> Node:
        """The words of a tree that are not empty and do not begin with one of the bytes."""
        return self.forest.make("guard", no, node) if no else node
