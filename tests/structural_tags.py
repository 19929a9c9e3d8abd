"""Random structural tags, and what they mean, read off `docs/structural-tags.md`: slow, with positions and sets.

`matches(format, text)` tries every place where a part may end. Leaves are `const_string`, `regex` and `json_schema`;
formats on tokens are not part of this reference. A special token in a string is one of the characters of `SPECIAL`.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Format = dict[str, Any]
Ends = set[int]

SPECIAL = "\ue000\ue001"


@dataclass(frozen=True)
class Tail:
    """What ends the tag around: one of `texts`, or nothing if `open`; then `after`."""

    texts: tuple[str, ...]
    open: bool
    after: Callable[[int], Ends]


class Reference:
    def __init__(self, text: str) -> None:
        self.text = text

    def ends(self, node: Format, at: int, around: frozenset[str], tail: Tail | None) -> Ends:
        """Where `node`, begun at `at`, may end, its tail included."""
        kind = node["type"]
        if kind in ("any_text", "triggered_tags", "dispatch"):
            return self.free_format(node, at, around, tail)
        if _one_text(node) is not None and kind != "any_text":
            return self.ends(node["content"], at, around, tail)
        if kind == "sequence":
            reached = {at}
            for i, element in enumerate(node["elements"]):
                following = node["elements"][i + 1 :]
                if following and _one_text(element) is not None and _one_text(element) == _one_text(following[0]):
                    continue  # one text with the next
                inner = tail if i + 1 == len(node["elements"]) else None
                reached = {e for p in reached for e in self.ends(element, p, around, inner)}
            return reached
        if kind == "or":
            return {e for element in node["elements"] for e in self.ends(element, at, around, tail)}
        if kind in ("optional", "star", "plus", "repeat"):
            least, most = {"optional": (0, 1), "star": (0, -1), "plus": (1, -1)}.get(kind) or (node["min"], node["max"])
            return self.repeated(node["content"], least, most, at, around, tail)
        if kind == "tag":
            return self.tag(node, at, around, tail)
        if kind == "tags_with_separator":
            return self.separated(node, at, around, tail)
        return {e for p in self.leaf(node, at) for e in self.finish(p, tail)}

    def leaf(self, node: Format, at: int) -> Ends:
        if node["type"] == "const_string":
            value = node["value"]
            return {at + len(value)} if self.text.startswith(value, at) else set()
        pattern = node["pattern"] if node["type"] == "regex" else _schema_pattern(node["json_schema"])
        return {e for e in range(at, len(self.text) + 1) if re.fullmatch(pattern, self.text[at:e], re.DOTALL)}

    def finish(self, at: int, tail: Tail | None) -> Ends:
        if tail is None:
            return {at}
        ends = {at + len(t) for t in tail.texts if self.text.startswith(t, at)}
        if tail.open:
            ends.add(at)
        return {e for p in ends for e in tail.after(p)}

    def tag(self, node: Format, at: int, around: frozenset[str], tail: Tail | None, skip: int = 0) -> Ends:
        begin = node["begin"][skip:]
        if not self.text.startswith(begin, at):
            return set()
        at += len(begin)
        ends = [node["end"]] if isinstance(node["end"], str) else node["end"]
        texts = tuple(e for e in ends if e)
        inner = around | set(texts)
        found = Ends()
        if "" in ends:
            found |= self.ends(node["content"], at, inner, tail)
        if texts:
            closed = Tail(texts, False, lambda p: self.finish(p, tail))
            found |= self.ends(node["content"], at, inner, closed)
        return found

    def repeated(
        self, content: Format, least: int, most: int, at: int, around: frozenset[str], tail: Tail | None
    ) -> Ends:
        knows = tail if _ends_free(content) else None
        found, layer, rounds, seen = Ends(), {at}, 0, set[frozenset[int]]()
        while layer and (rounds <= least or frozenset(layer) not in seen) and (most < 0 or rounds <= most):
            seen.add(frozenset(layer))
            if rounds >= least and (knows is None or rounds == 0):
                found |= {e for p in layer for e in self.finish(p, tail)}
            if knows is not None and rounds + 1 >= least and (most < 0 or rounds + 1 <= most):
                found |= {e for p in layer for e in self.ends(content, p, around, tail)}
            layer = {e for p in layer for e in self.ends(content, p, around, None)}
            rounds += 1
        return found

    def separated(self, node: Format, at: int, around: frozenset[str], tail: Tail | None) -> Ends:
        def one(p: int) -> Ends:
            return {e for tag in node["tags"] for e in self.tag(tag, p, around, None)}

        found = Ends() if node.get("at_least_one") else self.finish(at, tail)
        layer, seen = one(at), Ends()
        while layer - seen:
            seen |= layer
            found |= {e for p in layer for e in self.finish(p, tail)}
            if node.get("stop_after_first"):
                break
            sep = node["separator"]
            layer = {e for p in layer if self.text.startswith(sep, p) for e in one(p + len(sep))}
        return found

    def free_format(self, node: Format, at: int, around: frozenset[str], tail: Tail | None) -> Ends:
        kind = node["type"]
        excludes = set(node.get("excludes", ())) | around
        if kind == "any_text":
            if node.get("max_chars") is not None:
                return self.bounded(node["max_chars"], excludes, at, tail)
            return self.free(at, {}, excludes, False, tail)
        handlers: dict[str, Callable[[int], Ends]] = {}
        if kind == "dispatch":
            patterns = _shortest([p for p, _ in node["rules"]])
            for pattern in patterns:
                bodies = [f for p, f in node["rules"] if p == pattern]
                handlers[pattern] = lambda p, bodies=bodies: {  # type: ignore[misc]
                    e for f in bodies for e in self.ends(f, p, around, None)
                }
            return self.free(at, handlers, excludes, not node.get("loop", True), tail)
        once = node.get("stop_after_first", False)
        starts = {at}
        if node.get("at_least_one"):
            starts = {e for tag in node["tags"] for e in self.tag(tag, at, around, None)}
            if once:
                return {e for p in starts for e in self.finish(p, tail)}
        for trigger in _shortest(node["triggers"]):
            tags = [t for t in node["tags"] if t["begin"].startswith(trigger)]
            handlers[trigger] = lambda p, tags=tags, trigger=trigger: {  # type: ignore[misc]
                e for t in tags for e in self.tag(t, p, around, None, len(trigger))
            }
        return {e for p in starts for e in self.free(p, handlers, excludes, once, tail)}

    def bounded(self, most: int, excludes: set[str], at: int, tail: Tail | None) -> Ends:
        found = Ends()
        for e in range(at, min(len(self.text), at + most) + 1):
            body = self.text[at:e]
            if any(x in body for x in excludes) or any(c in SPECIAL for c in body):
                continue
            if tail is None or tail.open:
                found |= tail.after(e) if tail else {e}
            for end in tail.texts if tail else ():
                whole = body + end
                early = any(whole.find(x) >= 0 and whole.find(x) + len(x) < len(whole) for x in tail.texts)
                if self.text.startswith(end, e) and not early:
                    found |= tail.after(e + len(end))
        return found

    def free(
        self, at: int, handlers: dict[str, Callable[[int], Ends]], excludes: set[str], once: bool, tail: Tail | None
    ) -> Ends:
        stops = set(tail.texts) if tail else set()
        excludes = excludes - stops
        handlers = {t: h for t, h in handlers.items() if not any(x in t for x in stops | excludes)}
        patterns = [*handlers, *stops, *excludes]
        found = Ends()
        work: list[tuple[int, str]] = [(at, "")]
        seen = set[tuple[int, str]]()
        while work:
            begun = work.pop()
            start, barred = begun
            if begun in seen or (barred and self.text[start : start + 1] and self.text[start] in barred):
                continue
            seen.add(begun)
            # Occurrences that ended so far, as (begin, end).
            triggered: list[tuple[int, int]] = []
            excluded: list[int] = []
            for e in range(start, len(self.text) + 1):
                segment = self.text[start:e]
                ending = lambda words, s=segment: [w for w in words if w and s.endswith(w)]  # noqa: E731
                # A special token must be part of what ends the text or opens a tag.
                tokens = [start + i for i, c in enumerate(segment) if c in SPECIAL]
                clear = not triggered and not excluded and not tokens and not ending([*excludes, *stops, *handlers])
                if clear and (tail is None or tail.open):
                    found |= tail.after(e) if tail else {e}
                stop = max(ending(stops), key=len, default=None)
                if stop is not None:
                    b = e - len(stop)
                    if (
                        all(b < y for y in excluded)
                        and all(b <= x for x in [t[0] for t in triggered] + tokens)
                        and tail
                    ):
                        found |= tail.after(e)
                    break
                if ending(excludes):
                    excluded.append(e)
                trigger = max(ending(handlers), key=len, default=None)
                if trigger is None or excluded:
                    continue
                b = e - len(trigger)
                if all(b <= x for x in [t[0] for t in triggered] + tokens):
                    goes_on = "".join(
                        p[n] for p in patterns for n in range(len(trigger), len(p)) if segment.endswith(p[:n])
                    )
                    for after in handlers[trigger](e):
                        if once:
                            found |= self.finish(after, tail)
                        else:
                            work.append((after, goes_on if after == e else ""))
                triggered.append((b, e))
        return found


def matches(node: Format, text: str) -> bool:
    return len(text) in Reference(text).ends(node, 0, frozenset(), None)


def _one_text(node: Format) -> set[str] | None:
    """Excluded strings of what is nothing but unbounded free text, however often repeated."""
    if node["type"] == "any_text" and node.get("max_chars") is None:
        return set(node.get("excludes", ()))
    if node["type"] in ("optional", "star", "plus", "repeat") and node.get("max") != 0:
        return _one_text(node["content"])
    return None


def _shortest(patterns: list[str]) -> list[str]:
    unique = list(dict.fromkeys(patterns))
    return [p for p in unique if not any(q != p and p.startswith(q) for q in unique)]


def _ends_free(node: Format) -> bool:
    kind = node["type"]
    if kind in ("any_text", "triggered_tags", "dispatch"):
        return True
    if kind == "sequence":
        return _ends_free(node["elements"][-1])
    if kind == "or":
        return any(map(_ends_free, node["elements"]))
    if kind in ("optional", "star", "plus", "repeat"):
        return _ends_free(node["content"])
    if kind == "tag":
        return "" in ([node["end"]] if isinstance(node["end"], str) else node["end"]) and _ends_free(node["content"])
    return False


def _schema_pattern(schema: Any) -> str:
    """The schemas that the generator makes."""
    if "const" in schema:
        return re.escape(json.dumps(schema["const"]))
    return "null" if schema["type"] == "null" else "true|false"


STRINGS = ["a", "b", "ab", "ba", "<", "<a", "<b", "a>", "bab", ">"]
TOKEN_STRINGS = [
    "a",
    "b",
    "ab",
    "<a",
    ">",
    *SPECIAL,
    *(f"{t}{x}" for t in SPECIAL for x in "a<"),
    "a" + SPECIAL[0],
    SPECIAL,
]


class Generator:
    """Random formats over a small alphabet, so that ends, triggers and excluded strings meet."""

    def __init__(self, rng: random.Random, strings: Sequence[str] = STRINGS) -> None:
        self.rng = rng
        self.strings_used = strings

    def format(self, depth: int = 3) -> Format:
        rng = self.rng
        leaves = [self.const, self.regex, self.schema, self.any_text]
        if depth == 0:
            return rng.choice(leaves)()
        makers = [self.const, self.regex, self.schema, self.any_text, self.any_text]
        makers += [lambda: self.tag(depth - 1)] * 4 + [lambda: self.triggered(depth - 1)] * 4
        makers += [lambda: self.several("sequence", depth - 1)] * 3 + [lambda: self.several("or", depth - 1)] * 2
        makers += [lambda: self.repeat(depth - 1), lambda: self.separated(depth - 1), lambda: self.dispatch(depth - 1)]
        return rng.choice(makers)()

    def string(self, empty: float = 0.0) -> str:
        return "" if self.rng.random() < empty else self.rng.choice(self.strings_used)

    def strings(self, most: int) -> list[str]:
        return sorted(set(self.rng.choices(self.strings_used, k=self.rng.randint(0, most))))

    def const(self) -> Format:
        return {"type": "const_string", "value": self.string(0.1)}

    def regex(self) -> Format:
        return {"type": "regex", "pattern": self.rng.choice(["a+", "b?", "(ab|ba)", "[ab]{1,2}", "x|<a"])}

    def schema(self) -> Format:
        schemas = [{"const": "ab"}, {"type": "boolean"}, {"type": "null"}]
        return {"type": "json_schema", "json_schema": self.rng.choice(schemas)}

    def any_text(self) -> Format:
        node: Format = {"type": "any_text", "excludes": self.strings(1)}
        if self.rng.random() < 0.2:
            node["max_chars"] = self.rng.randint(0, 3)
        return node

    def tag(self, depth: int, begin: str | None = None) -> Format:
        end: str | list[str] = self.string(0.15)
        if self.rng.random() < 0.2:
            end = list(dict.fromkeys([self.string(0.2), self.string(0.1)]))
        begin = self.string(0.05) if begin is None else begin
        return {"type": "tag", "begin": begin, "content": self.format(depth), "end": end}

    def triggered(self, depth: int) -> Format:
        triggers = sorted({self.string() for _ in range(self.rng.randint(1, 3))})
        begins = [
            self.rng.choice(triggers) + self.rng.choice(["", "", "a", "b", ">"]) for _ in range(self.rng.randint(1, 3))
        ]
        return {
            "type": "triggered_tags",
            "triggers": triggers,
            "tags": [self.tag(depth, b) for b in begins],
            "at_least_one": self.rng.random() < 0.25,
            "stop_after_first": self.rng.random() < 0.25,
            "excludes": self.strings(1),
        }

    def dispatch(self, depth: int) -> Format:
        rules = [[self.string(), self.format(depth)] for _ in range(self.rng.randint(1, 2))]
        return {"type": "dispatch", "rules": rules, "loop": self.rng.random() < 0.7, "excludes": self.strings(1)}

    def several(self, kind: str, depth: int) -> Format:
        return {"type": kind, "elements": [self.format(depth) for _ in range(self.rng.randint(1, 3))]}

    def repeat(self, depth: int) -> Format:
        kind = self.rng.choice(["optional", "star", "plus", "repeat"])
        node: Format = {"type": kind, "content": self.format(depth)}
        if kind == "repeat":
            node["min"] = self.rng.randint(0, 2)
            node["max"] = self.rng.choice([-1, node["min"], node["min"] + 1])
        return node

    def separated(self, depth: int) -> Format:
        return {
            "type": "tags_with_separator",
            "tags": [self.tag(depth) for _ in range(self.rng.randint(1, 2))],
            "separator": self.string(0.1),
            "at_least_one": self.rng.random() < 0.4,
            "stop_after_first": self.rng.random() < 0.2,
        }


def random_texts(rng: random.Random, count: int, strings: Sequence[str] = STRINGS) -> list[str]:
    pieces = [*strings, "x", '"ab"', "true", "é"]
    return sorted({"".join(rng.choices(pieces, k=rng.randint(0, 5))) for _ in range(count)})


def derive(rng: random.Random, node: Format) -> str:
    """A text that `node` may well match; ends of free text are left to chance."""
    kind = node["type"]
    free = lambda: "".join(rng.choices([*STRINGS, "x", "é"], k=rng.choice([0, 0, 1, 1, 2])))  # noqa: E731
    if kind == "any_text":
        return free()
    if kind == "const_string":
        return str(node["value"])
    if kind == "regex":
        return rng.choice(["a", "aa", "", "b", "ab", "ba", "x", "<a"])
    if kind == "json_schema":
        return rng.choice(['"ab"', "true", "false", "null"])
    if kind in ("sequence", "or"):
        chosen = node["elements"] if kind == "sequence" else [rng.choice(node["elements"])]
        return "".join(derive(rng, e) for e in chosen)
    if kind in ("optional", "star", "plus", "repeat"):
        return "".join(derive(rng, node["content"]) for _ in range(rng.randint(0, 2)))
    if kind == "tag":
        end = node["end"] if isinstance(node["end"], str) else rng.choice(node["end"])
        return str(node["begin"]) + derive(rng, node["content"]) + str(end)
    if kind == "tags_with_separator":
        return str(node["separator"]).join(derive(rng, rng.choice(node["tags"])) for _ in range(rng.randint(0, 2)))
    text = free() if not node.get("at_least_one") or rng.random() < 0.2 else ""
    for _ in range(rng.randint(0, 2)):
        if kind == "dispatch":
            pattern, body = rng.choice(node["rules"])
            text += pattern + derive(rng, body) + free()
        else:
            text += derive(rng, rng.choice(node["tags"])) + free()
    return text


def mutated(rng: random.Random, text: str, strings: Sequence[str] = STRINGS) -> str:
    """`text` with a piece put in, taken out or written twice."""
    i, j = sorted((rng.randint(0, len(text)), rng.randint(0, len(text))))
    return rng.choice([text[:i] + rng.choice(strings) + text[i:], text[:i] + text[j:], text[:j] + text[i:]])
