"""Objects as trees that unfold one pair at a time.

Such a tree is what may follow the pairs so far: the keys already written, declared ones by their place, and how many
pairs there are. Nothing is made of the keys' orders before they are written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .trees import SCALARS, Node

if TYPE_CHECKING:
    from .language import Json, Language


class Objects:
    """The objects among a grammar's rules."""

    def __init__(self, language: Language) -> None:
        self.language = language
        self.forest = language.forest
        self._unfolded: dict[Node, Node] = {}
        self._spelt: dict[str, Node] = {}

    def opened(self, rule: int) -> Node:
        """The tree of a whole object."""
        return self.forest.cat(self.forest.literal(b"{"), self._after(rule, frozenset(), 0))

    def unfold(self, node: Node) -> Node:
        """The ordinary tree that an ``object`` tree stands for: either the end, or one more pair and the rest."""
        if node not in self._unfolded:
            self._unfolded[node] = self._unfold(*node.args)
        return self._unfolded[node]

    def _spec(self, rule: int) -> Any:
        return self.language.rules[rule]["body"]["object"]

    def _after(self, rule: int, seen: frozenset[int], count: int) -> Node:
        """What follows these pairs; beyond its bounds the count tells nothing."""
        spec = self._spec(rule)
        bound = max(spec["min_properties"], spec["max_properties"] or 0, 1)
        return self.forest.make("object", rule, seen, min(count, bound) if spec["max_properties"] is None else count)

    def _unfold(self, rule: int, seen: frozenset[int], count: int) -> Node:
        """Either the end, or one more pair and the rest."""
        forest, spec = self.forest, self._spec(rule)
        pad, comma, colon = (self.language.read(spec["space"][k]) for k in ("pad", "comma", "colon"))
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
                key = self._spelling(prop["name"])
                rest = self._after(rule, seen | {i}, count + 1)
                ways.append(forest.seq([before, quote, key, quote, colon, self.language.read(prop["value"]), rest]))
            for other in spec["others"]:
                key = self._undeclared(rule, other["keys"])
                rest = self._after(rule, seen | {others} if in_order else seen, count + 1)
                ways.append(forest.seq([before, quote, key, quote, colon, self.language.read(other["value"]), rest]))
        return forest.alt(ways)

    def _spelling(self, name: str) -> Node:
        """How a declared name may be written: without needless escapes."""
        node = self._spelt.get(name)
        if node is None:
            node = self._spelt[name] = self.language.characters.json_text(name, free=False)
        return node

    def _undeclared(self, rule: int, keys: Json) -> Node:
        """An undeclared key. Where there are declared ones it has no needless escapes, like they."""
        properties = self._spec(rule)["properties"]
        text = self.forest.repeat(self.language.characters.json(SCALARS, not properties), 0, None)
        key = text if keys is None else self.language.read(keys)
        names = tuple(frozenset([self.language.characters.json_text(p["name"], free=True)]) for p in properties)
        return self.forest.make("regular", (frozenset([text]), frozenset([key])), names)
