"""Random EBNF grammars with a recogniser of their own: what a text means is read off the tree, not off a parser."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

ALPHABET = "abc-é"


@dataclass(frozen=True)
class Literal:
    text: str


@dataclass(frozen=True)
class CharClass:
    members: str
    negated: bool


@dataclass(frozen=True)
class Name:
    name: str


@dataclass(frozen=True)
class Sequence:
    items: tuple[Node, ...]


@dataclass(frozen=True)
class Either:
    items: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat:
    body: Node
    least: int
    most: int | None


Node = Literal | CharClass | Name | Sequence | Either | Repeat


@dataclass
class Grammar:
    rules: dict[str, Node]
    root: str = "root"
    # (rule, start) -> ends, for one text.
    _ends: dict[tuple[str, int], frozenset[int]] = field(default_factory=dict)

    def text(self) -> str:
        return "\n".join(f"{name} ::= {show(body)}" for name, body in self.rules.items())

    def accepts(self, text: str) -> bool:
        """Least fixpoint over (rule, start) -> possible ends."""
        table: dict[tuple[str, int], frozenset[int]] = {
            (name, i): frozenset() for name in self.rules for i in range(len(text) + 1)
        }
        changed = True
        while changed:
            changed = False
            for (name, i), known in table.items():
                found = frozenset(_ends(self.rules[name], text, i, table))
                if found != known:
                    table[name, i] = found
                    changed = True
        return len(text) in table[self.root, 0]


def _ends(node: Node, text: str, at: int, table: dict[tuple[str, int], frozenset[int]]) -> set[int]:
    if isinstance(node, Literal):
        return {at + len(node.text)} if text.startswith(node.text, at) else set()
    if isinstance(node, CharClass):
        return {at + 1} if at < len(text) and (text[at] in node.members) != node.negated else set()
    if isinstance(node, Name):
        return set(table[node.name, at])
    if isinstance(node, Sequence):
        ends = {at}
        for item in node.items:
            ends = {e for i in ends for e in _ends(item, text, i, table)}
        return ends
    if isinstance(node, Either):
        return {e for item in node.items for e in _ends(item, text, at, table)}
    reached, layer, round_ = set[int](), {at}, 0
    seen = set[frozenset[int]]()
    while True:
        if round_ >= node.least:
            reached |= layer
            # From here on only growth counts; layers repeat at last.
            if frozenset(layer) in seen or round_ == node.most:
                return reached
            seen.add(frozenset(layer))
        elif not layer:
            return reached
        layer = {e for i in layer for e in _ends(node.body, text, i, table)}
        round_ += 1


def show(node: Node, inside: bool = False) -> str:
    """EBNF text; `inside`: something follows or precedes, so alternatives need parentheses."""
    if isinstance(node, Literal):
        return '"' + node.text + '"'
    if isinstance(node, CharClass):
        return "[" + ("^" if node.negated else "") + node.members.replace("-", "\\-") + "]"
    if isinstance(node, Name):
        return node.name
    if isinstance(node, Sequence):
        return "(" + " ".join(show(i, True) for i in node.items) + ")"
    if isinstance(node, Either):
        body = " | ".join(show(i) for i in node.items)
        return f"({body})" if inside else body
    body = show(node.body, True)
    if isinstance(node.body, Repeat):
        body = f"({body})"
    bounds = (node.least, node.most)
    mark = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get(bounds)
    if mark is None:
        least, most = bounds
        mark = f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}"
    return body + mark


def random_grammar(rng: random.Random, rules: int = 4) -> Grammar:
    names = ["root"] + [f"r{i}" for i in range(1, rng.randint(1, rules))]
    return Grammar({name: _random_node(rng, names, 3) for name in names})


def _random_node(rng: random.Random, names: list[str], depth: int) -> Node:
    kind = rng.random()
    if depth == 0 or kind < 0.3:
        return Literal("".join(rng.choice("abc") for _ in range(rng.choice([0, 1, 1, 1, 2]))))
    if kind < 0.4:
        members = "".join(sorted(set(rng.choices(ALPHABET, k=rng.randint(1, 3)))))
        return CharClass(members, rng.random() < 0.3)
    if kind < 0.58:
        return Name(rng.choice(names))
    if kind < 0.74:
        return Sequence(tuple(_random_node(rng, names, depth - 1) for _ in range(rng.randint(2, 3))))
    if kind < 0.88:
        return Either(tuple(_random_node(rng, names, depth - 1) for _ in range(rng.randint(2, 3))))
    least = rng.choice([0, 0, 1, 2])
    most = rng.choice([None, None, least + 1, least + 3, max(1, least)])
    return Repeat(_random_node(rng, names, depth - 1), least, most)


def texts_of(grammar: Grammar, rng: random.Random, count: int, longest: int = 12) -> list[str]:
    """Texts from random derivations, and mutations of them."""
    found: list[str] = []
    for _ in range(count):
        text = _derive(grammar, Name(grammar.root), rng, [60])[:longest]
        found.append(text)
        i = rng.randint(0, len(text))
        found.append(rng.choice([text[:i] + rng.choice(ALPHABET) + text[i:], text[:i], text[:i] + text[i + 1 :]]))
    found += ["".join(rng.choices(ALPHABET, k=rng.randint(0, 5))) for _ in range(count)]
    return sorted(set(found))


def _derive(grammar: Grammar, node: Node, rng: random.Random, fuel: list[int]) -> str:
    fuel[0] -= 1
    if fuel[0] < 0:
        return ""
    if isinstance(node, Literal):
        return node.text
    if isinstance(node, CharClass):
        fitting = [c for c in ALPHABET if (c in node.members) != node.negated]
        return rng.choice(fitting) if fitting else ""
    if isinstance(node, Name):
        return _derive(grammar, grammar.rules[node.name], rng, fuel)
    if isinstance(node, Sequence):
        return "".join(_derive(grammar, i, rng, fuel) for i in node.items)
    if isinstance(node, Either):
        return _derive(grammar, rng.choice(node.items), rng, fuel)
    most = node.least + 2 if node.most is None else node.most
    return "".join(_derive(grammar, node.body, rng, fuel) for _ in range(rng.randint(node.least, most)))
