"""The oracle: a slow recogniser of the grammar IR, in plain Python, that shares nothing with the kernel.

It reads the JSON form of ``ir::Grammar`` (serde: variants are snake_case and externally tagged) and answers, for every
sequence of bytes and special tokens, whether some word of the language starts with it (*viable*) and whether it is a
word (*complete*).

How it works, in three steps:

* An expression is an immutable, interned tree (``Node``), so equal trees are the same object.
* ``step(node, symbol)`` gives the *partial derivatives* of a tree: the trees that describe what may follow once it has
  read the symbol. ``calls(node)`` gives the references it may make first, each with the tree that follows. Objects and
  dispatches are trees that unfold, one pair or one byte at a time, into ordinary ones.
* Recursion is left to a textbook Earley recogniser whose items are (callee, remaining tree, origin).

Trees that cannot lead to any word are dropped (``productive``). What remains at a position is therefore never a dead
end, so that *viable* means "is the start of a word", which is more than the kernel's stepping promises by itself:
a dead end in the kernel's automata shows up as a difference.
"""

from __future__ import annotations

import codecs
import itertools
from collections import ChainMap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from .trees import SCALARS, Characters, Forest, Node

# Of a dispatch: how many of the last bytes a pattern must cover that has to be completed, and whether by a stop.
NOTHING_OWED = (0, False)
Json = Any

#: Where bytes change their part in UTF-8.
UTF8_BOUNDS = b"\x80\x90\xa0\xc0\xc2\xe0\xe1\xed\xee\xf0\xf1\xf4\xf5"


# ------------------------------------------------------------------------------------------------ symbols


@dataclass(frozen=True)
class Special:
    """A special token as an input symbol. Bytes are plain integers."""

    token: int


Symbol = int | Special

#: What a reference names: ("rule", id), ("string", min, max) or ("guarded", bytes, callee).
Callee = tuple[Any, ...]


# ------------------------------------------------------------------------------------------------ the reference


@cache
def representatives(sets: frozenset[frozenset[int]]) -> list[int]:
    """One byte of each class of bytes that are in the same sets."""
    classes = [frozenset(range(256))]
    for s in sets:
        classes = [part for c in classes for part in (c & s, c - s) if part]
    return [min(c) for c in classes]


class Reference:
    """The language of a grammar."""

    def __init__(self, grammar: Json) -> None:
        self.rules: list[Json] = grammar["rules"]
        self.root: Callee = ("rule", grammar["root"])
        self.forest = Forest()
        self.characters = Characters(self.forest)
        self._starts: dict[Callee, Node] = {}
        self._steps: dict[tuple[Node, Symbol], frozenset[Node]] = {}
        self._calls: dict[Node, frozenset[tuple[Callee, Node]]] = {}
        self._unfolded: dict[Node, Node] = {}
        self._productive: dict[Node, bool] = {}
        self._found_parts: dict[Node, list[Node]] = {}
        self._spelt: dict[tuple[int, str], Node] = {}
        self.nullable_callees = NullableCallees(self)

    @cached_property
    def start(self) -> State:
        """The state before the first symbol."""
        return State(self, (self._close([], 0, {(self.root, self.start_of(self.root), 0)}),))

    def accepts(self, text: bytes) -> bool:
        state = self.start.feed_all(text)
        return state is not None and state.complete

    def viable(self, text: bytes) -> bool:
        return self.start.feed_all(text) is not None

    # -- reading the JSON form

    def start_of(self, callee: Callee) -> Node:
        """The tree of what a reference names."""
        node = self._starts.get(callee)
        if node is None:
            if callee[0] == "string":
                node = self._json_string(callee[1], callee[2])
            elif callee[0] == "guarded":
                node = self._guard(callee[1], self.start_of(callee[2]))
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
            return self.forest.cat(self.forest.literal(b"{"), self._object(rule, frozenset(), 0))
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
            return self._minus(self.read(yes), [self.read(no)])
        assert kind == "automaton", kind
        table = tuple((tuple(map(tuple, s["edges"])), s["accept"]) for s in value["states"])
        return forest.make("automaton", table, 0) if table else forest.never

    def _minus(self, yes: Node, no: Iterable[Node]) -> Node:
        return self.forest.make("regular", (frozenset([yes]),), tuple(frozenset([n]) for n in no))

    # -- objects: after `{`, the keys already written and how many pairs there are

    def _object(self, rule: int, seen: frozenset[int], count: int) -> Node:
        spec = self.rules[rule]["body"]["object"]
        bound = max(spec["min_properties"], spec["max_properties"] or 0, 1)
        return self.forest.make("object", rule, seen, min(count, bound) if spec["max_properties"] is None else count)

    def _unfold_object(self, rule: int, seen: frozenset[int], count: int) -> Node:
        """Either the end, or one more pair and the rest."""
        forest, spec = self.forest, self.rules[rule]["body"]["object"]
        pad, comma, colon = (self.read(spec["space"][k]) for k in ("pad", "comma", "colon"))
        quote = forest.literal(b'"')
        properties = spec["properties"]
        in_order = spec["order"] == "declared"
        others = len(properties)  # the mark in `seen` of "an undeclared key was written"
        ways = []
        required = {i for i, p in enumerate(properties) if p["required"]}
        if required <= seen and count >= spec["min_properties"]:
            ways.append(forest.cat(pad, forest.literal(b"}")))
        if spec["max_properties"] is None or count < spec["max_properties"]:
            before = comma if count else pad
            last = max(seen, default=-1)
            for i, prop in enumerate(properties):
                if prop["value"] is None or i in seen or (in_order and i < last):
                    continue
                key = self.spelling(rule, prop["name"])
                rest = self._object(rule, seen | {i}, count + 1)
                ways.append(forest.seq([before, quote, key, quote, colon, self.read(prop["value"]), rest]))
            for other in spec["others"]:
                key = self._undeclared(rule, other["keys"])
                rest = self._object(rule, seen | {others} if in_order else seen, count + 1)
                ways.append(forest.seq([before, quote, key, quote, colon, self.read(other["value"]), rest]))
        return forest.alt(ways)

    def spelling(self, rule: int, name: str) -> Node:
        """How a declared name may be written: without needless escapes."""
        node = self._spelt.get((rule, name))
        if node is None:
            node = self._spelt[rule, name] = self.characters.json_text(name, free=False)
        return node

    def _undeclared(self, rule: int, keys: Json) -> Node:
        """An undeclared key. Where there are declared ones it has no needless escapes, like they."""
        properties = self.rules[rule]["body"]["object"]["properties"]
        text = self.forest.repeat(self.characters.json(SCALARS, not properties), 0, None)
        key = text if keys is None else self.read(keys)
        names = tuple(frozenset([self.characters.json_text(p["name"], free=True)]) for p in properties)
        return self.forest.make("regular", (frozenset([text]), frozenset([key])), names)

    # -- dispatch: the recent free text (what may become a trigger or stop string), the number of tags so far, and the
    #    beginning of a character, since free text is UTF-8

    def _dispatch(
        self, rule: int, text: bytes, tags: int, partial: bytes = b"", owed: tuple[int, bool] = NOTHING_OWED
    ) -> Node:
        """``owed``: how many of the last bytes a pattern must cover that has to be completed, and whether only a stop
        string may be it.

        ``text`` may be cut to its longest end that begins a pattern: no other part of it can matter."""
        spec = self.rules[rule]["body"]["dispatch"]
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

    def _handler(self, node: Node) -> Node | None:
        """What follows the trigger that has just ended, if one has."""
        rule, text, tags, _, owed = node.args
        spec = self.rules[rule]["body"]["dispatch"]
        trigger = self._opened(spec, text, owed)
        if trigger is None:
            return None
        last = spec["max_tags"] is not None and tags + 1 == spec["max_tags"] and spec["stop_after_last"]
        rest = self.forest.empty if last else self._dispatch(rule, b"", tags + 1)
        handler = self._guard(
            self._continuations(spec, text, len(spec["triggers"][trigger])), self.read(spec["handlers"][trigger])
        )
        return self.forest.cat(handler, rest)

    def _step_dispatch(self, node: Node, symbol: Symbol) -> set[Node]:
        rule, text, tags, partial, owed = node.args
        spec = self.rules[rule]["body"]["dispatch"]
        trigger = self._opened(spec, text, owed)
        if trigger is not None:
            owed = (len(spec["triggers"][trigger]), False)
        found: set[Node] = set()
        handler = self._handler(node)
        if handler is not None:
            found |= self.step(handler, symbol)
        if isinstance(symbol, Special):
            return found
        length, only_stop = owed
        if length > 0:
            if symbol not in self._continuations(spec, text, length, only_stop):
                return found
            length += 1
        text += bytes([symbol])
        partial += bytes([symbol])
        try:
            if codecs.getincrementaldecoder("utf-8")().decode(partial):
                partial = b""
        except UnicodeDecodeError:
            return found
        stops = [len(s) for s in spec["stops"] if text.endswith(bytes(s))]
        if stops:
            ends = max(stops) >= length and tags >= spec["min_tags"]
            return found | ({self.forest.empty} if ends else set())
        if any(text.endswith(bytes(e)) for e in spec["excludes"]):
            # It does not count if it reaches into a stop string that is then completed.
            length, only_stop = max(length, 1), True
            if not self._continuations(spec, text, length, True):
                return found
        if self._opened(spec, text, (length, only_stop)) is not None and tags == spec["max_tags"]:
            return found
        return found | {self._dispatch(rule, text, tags, partial, (length, only_stop))}

    def _guard(self, no: frozenset[int], node: Node) -> Node:
        """The words of a tree that are not empty and do not begin with one of the bytes."""
        return self.forest.make("guard", no, node) if no else node

    def _skipping(self, node: Node) -> set[Node]:
        """The tree, and what is left of it when nullable references in front are skipped."""
        found, work = {node}, [node]
        while work:
            for callee, rest in self.calls(work.pop()):
                if callee in self.nullable_callees and rest not in found:
                    found.add(rest)
                    work.append(rest)
        return found

    # -- derivatives

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
            rule, text, tags, partial, owed = args
            spec = self.rules[rule]["body"]["dispatch"]
            if owed != NOTHING_OWED or partial or self._opened(spec, text, owed) is not None:
                return False
            return bool(spec["open_end"]) and tags >= spec["min_tags"]
        return False

    def marked(self, node: Node) -> bool:
        """Whether the tree begins with a mark for distinct strings, which `reference_distinct` enforces."""
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
            return set(self.step(self.unfold(node), symbol))
        if kind == "dispatch":
            return self._step_dispatch(node, symbol)
        if kind == "guard":
            if symbol in args[0]:
                return set()
            return {n for tree in self._skipping(args[1]) for n in self.step(tree, symbol)}
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
            return set(self.calls(self.unfold(node)))
        if kind == "dispatch":
            handler = self._handler(node)
            return set(self.calls(handler)) if handler is not None else set()
        if kind == "guard":
            trees = self._skipping(args[1])
            return {(("guarded", args[0], callee), rest) for tree in trees for callee, rest in self.calls(tree)}
        return set()  # regular trees hold no references

    def unfold(self, node: Node) -> Node:
        if node not in self._unfolded:
            self._unfolded[node] = self._unfold_object(*node.args)
        return self._unfolded[node]

    # -- which trees match anything at all

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
            return [self.start_of(args[0])]
        if kind == "object":
            return [self.unfold(node)]
        if kind in ("dispatch", "guard"):
            following = (self.step(node, symbol) for symbol in self._alphabet(node))
            return [*itertools.chain.from_iterable(following), *self._called(node)]
        return []

    def _called(self, node: Node) -> list[Node]:
        """Each reference that the tree may make first, followed by its rest."""
        return [self.forest.cat(self.forest.make("call", callee), rest) for callee, rest in self.calls(node)]

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
        if kind == "dispatch" and self.nullable(node):
            return True
        return any(known[part] for part in self._parts(node))

    def _regular_has_word(self, node: Node) -> bool:
        """Search the (finitely many) derivatives for one that matches the empty word."""
        symbols = self._alphabet(node)
        seen, work = {node}, [node]
        while work:
            tree = work.pop()
            if self.nullable(tree):
                return True
            for symbol in symbols:
                for n in self.step(tree, symbol) - seen:
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
                below = self._skipping(args[1])
            elif kind == "regular":
                below = [n for side in args for s in side for n in s]
            elif kind == "automaton":
                sets |= {frozenset(range(lo, hi + 1)) for edges, _ in args[0] for lo, hi, _ in edges}
            elif kind == "object":
                below = [self.unfold(tree)]
            elif kind == "dispatch":
                spec = self.rules[args[0]]["body"]["dispatch"]
                sets |= {
                    frozenset(range(b))
                    for b in (0x80, 0x90, 0xA0, 0xC0, 0xC2, 0xE0, 0xE1, 0xED, 0xEE, 0xF0, 0xF1, 0xF4, 0xF5)
                }
                for pattern in (p for k in ("triggers", "stops", "excludes") for p in spec[k]):
                    sets |= {frozenset([b]) for b in pattern}
                handler = self._handler(tree)
                below = [] if handler is None else [handler]
            for n in below:
                if n not in seen:
                    seen.add(n)
                    work.append(n)
        return [*representatives(frozenset(sets)), *sorted(tokens, key=repr)]

    # -- Earley

    def _close(self, earlier: list[Items], here: int, items: set[Item], unmarked: bool = False) -> Items:
        """Predict and complete until nothing is new; then drop what leads nowhere, and marked trees if so told."""
        found: dict[Item, None] = {}
        done: set[Callee] = set()  # callees that matched the empty word here
        work = [item for item in items if self.productive(item[1])]
        while work:
            item = work.pop()
            if item in found or (unmarked and self.marked(item[1])):
                continue
            found[item] = None
            callee, tree, origin = item
            for called, rest in self.calls(tree):
                if not (self.productive(self.start_of(called)) and self.productive(rest)):
                    continue
                work.append((called, self.start_of(called), here))
                if called in done:
                    work.append((callee, rest, origin))
            if self.nullable(tree):
                if origin == here:
                    done.add(callee)
                for caller, above, start in list(found) if origin == here else earlier[origin]:
                    work += [
                        (caller, rest, start)
                        for called, rest in self.calls(above)
                        if called == callee and self.productive(rest)
                    ]
        return frozenset(found)


#: (callee, what is left of its tree, position where it began)
Item = tuple[Callee, Node, int]
Items = frozenset[Item]


class NullableCallees:
    """The callees that match the empty word: a least fixpoint, found as callees are asked for."""

    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        self.known: dict[Callee, bool] = {}

    def __contains__(self, callee: Callee) -> bool:
        if callee not in self.known:
            reached: set[Callee] = set()
            work = [callee]
            while work:
                c = work.pop()
                if c not in reached and c not in self.known:
                    reached.add(c)
                    work += self._mentioned(self.reference.start_of(c))
            value = dict.fromkeys(reached, False)
            while True:
                new = [c for c in reached if not value[c] and self._empty(self.reference.start_of(c), value)]
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
        return self.reference.nullable(node)


@dataclass(frozen=True)
class State:
    """What a reference knows after some input: one Earley set a position. Never empty: a state is viable."""

    reference: Reference
    sets: tuple[Items, ...]

    def feed(self, symbol: Symbol, unmarked: bool = False) -> State | None:
        """The state one symbol on, or ``None`` if no word begins that way; `unmarked`: without marked trees."""
        here = len(self.sets)
        step = self.reference.step
        moved = {(callee, n, origin) for callee, tree, origin in self.sets[-1] for n in step(tree, symbol)}
        items = self.reference._close(list(self.sets), here, moved, unmarked)
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
        return any(self.reference.marked(tree) for _, tree, _ in self.sets[-1])

    @property
    def viable(self) -> bool:
        """False only for the start of an empty language."""
        return bool(self.sets[-1])

    @property
    def complete(self) -> bool:
        root, nullable = self.reference.root, self.reference.nullable
        return any(callee == root and origin == 0 and nullable(tree) for callee, tree, origin in self.sets[-1])

    @cached_property
    def next_bytes(self) -> bytes:
        """Every byte that may come next."""
        return bytes(b for b in range(256) if self.feed(b) is not None)
