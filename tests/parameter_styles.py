"""Parameters as models write them in tags of their own, read slowly: the reference for the styles of `json_schema`.

`write` spells a value, `Reader` finds every value that a text may stand for, `valid` says whether a schema allows one.
Objects are lists of pairs, in the order in which they were written. Schemas are of the kind that `schema` draws.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

BAR = "\N{FULLWIDTH VERTICAL LINE}"
WS = " \n\r\t"
NS = "]<]minimax[>["
QUOTE = '<|"|>'
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Pairs(list[tuple[str, Any]]):
    """An object."""


class Flat(NamedTuple):
    """A style in which values are raw strings or JSON."""

    head: str
    """Before a value: `{name}`, and `{kind}` where it is told."""
    close: str
    kinds: dict[str, str]


def _dsml(space: str) -> Flat:
    head = f'<{BAR}DSML{BAR}{space}parameter name="{{name}}" string="{{kind}}">'
    others = dict.fromkeys(("number", "boolean", "null", "array", "object"), "false")
    return Flat(head, f"</{BAR}DSML{BAR}{space}parameter>", {"string": "true", **others})


FLAT = {
    "qwen_xml": Flat("<parameter={name}>", "</parameter>", {}),
    "minimax_xml": Flat('<parameter name="{name}">', "</parameter>", {}),
    "glm_xml": Flat("<arg_key>{name}</arg_key><arg_value>", "</arg_value>", {}),
    "deepseek_xml": _dsml(""),
    "deepseek_v4_1_xml": _dsml(" "),
    "kimi_k3_xml": Flat(
        '<|open|>argument key="{name}" type="{kind}"<|sep|>',
        "<|close|>argument<|sep|>",
        {k: k for k in ("string", "number", "boolean", "null", "array", "object")},
    ),
}
NESTED = ("cohere_xml", "minimax_m3_xml", "gemma")
STYLES = (*FLAT, *NESTED)
COHERE = {"string": "raw", "array": "list", "object": "dict", "number": "json", "boolean": "json", "null": "json"}


def kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case Pairs():
            return "object"
        case list():
            return "array"
        case _:
            return "number"


def write(style: str, value: Any, *, root: bool = True) -> str:
    """A value in a style; with `root` an object is its members alone."""
    if style in FLAT:
        return "".join(_flat(FLAT[style], name, v) for name, v in value)
    k = kind(value)
    if style == "gemma":
        if k == "object":
            return "{" + ",".join(f"{n}:{write(style, v)}" for n, v in value) + "}"
        if k == "array":
            return "[" + ",".join(write(style, v) for v in value) + "]"
        return QUOTE + value + QUOTE if k == "string" else to_json(value)
    if style == "minimax_m3_xml":
        if k == "object":
            return "".join(f"{NS}<{n}>{write(style, v)}{NS}</{n}>" for n, v in value)
        if k == "array":
            return "".join(f"{NS}<item>{write(style, v)}{NS}</item>" for v in value)
        return str(value) if k == "string" else to_json(value)
    content = {"string": lambda: value, "array": lambda: "".join(_cohere(None, v) for v in value)}.get(
        k, lambda: to_json(value)
    )
    return "".join(_cohere(n, v) for n, v in value) if k == "object" else content()


def _flat(style: Flat, name: str, value: Any) -> str:
    k = kind(value)
    head = style.head.replace("{name}", name).replace("{kind}", style.kinds.get(k, ""))
    return head + (value if k == "string" else to_json(value)) + style.close


def _cohere(name: str | None, value: Any) -> str:
    named = "" if name is None else f' name="{name}"'
    return f'<cofl:value{named} type="{COHERE[kind(value)]}">{write("cohere_xml", value)}</cofl:value>'


def to_json(value: Any) -> str:
    match value:
        case Pairs():
            return "{" + ", ".join(f"{json.dumps(n)}: {to_json(v)}" for n, v in value) + "}"
        case list():
            return "[" + ", ".join(map(to_json, value)) + "]"
    return json.dumps(value)


def _from_json(text: str) -> Iterator[Any]:
    def never(name: str) -> Any:
        raise ValueError(name)

    try:
        yield json.loads(text.strip(WS), object_pairs_hook=Pairs, parse_constant=never)
    except (ValueError, RecursionError):
        return


def _stripped(text: str) -> Iterator[str]:
    """A text without some of the whitespace around it."""
    lead, tail = len(text) - len(text.lstrip(WS)), len(text) - len(text.rstrip(WS))
    for i in range(lead + 1):
        for j in range(tail + 1):
            if i + j <= len(text):
                yield text[i : len(text) - j]


class Reader:
    """What a text of a style may stand for."""

    def __init__(self, style: str, text: str, *, loose: bool = False) -> None:
        """`loose`: what is told of a value's kind does not count, and space around strings does not either."""
        self.style, self.text, self.loose = style, text, loose

    def values(self) -> Iterator[Any]:
        if self.style == "gemma":
            found = self._gemma(0)
        elif self.style in FLAT:
            found = self._members(0, self._flat_member)
        else:
            found = self._members(0, self._cohere_member if self.style == "cohere_xml" else self._m3_member)
        for at, value in found:
            if at == len(self.text):
                yield value

    def _space(self, at: int) -> int:
        while at < len(self.text) and self.text[at] in WS:
            at += 1
        return at

    def _members(self, at: int, member: Any) -> Iterator[tuple[int, Any]]:
        """Every run of members from `at` on, with the space around them."""
        work: list[tuple[int, Pairs]] = [(at, Pairs())]
        while work:
            at, pairs = work.pop()
            after = self._space(at)
            yield after, pairs
            work.extend((end, Pairs([*pairs, pair])) for end, pair in member(after))

    def _flat_member(self, at: int) -> Iterator[tuple[int, tuple[str, Any]]]:
        style = FLAT[self.style]
        head = re.escape(style.head).replace(r"\{name\}", '(?P<name>[^<>"]+)').replace(r"\{kind\}", "(?P<kind>[a-z]+)")
        head = head.replace("</arg_key><arg_value>", f"</arg_key>[{WS}]*<arg_value>")
        m = re.compile(head).match(self.text, at)
        end = -1 if m is None else self.text.find(style.close, m.end())
        if m is None or end < 0:
            return
        content = self.text[m.end() : end]
        ways: list[Any] = []
        if not style.kinds or self.loose:
            ways = [*_stripped(content), *_from_json(content)]
        elif m["kind"] == style.kinds["string"]:
            ways = [content]
        else:
            ways = [v for v in _from_json(content) if style.kinds[kind(v)] == m["kind"] and kind(v) != "string"]
        for value in ways:
            yield end + len(style.close), (m["name"], value)

    def _cohere_member(self, at: int, named: bool = True) -> Iterator[tuple[int, Any]]:
        name = r' name="([^"<>\x00-\x1f]+)"' if named else "()"
        m = re.compile(rf'<cofl:value{name} type="([a-z]+)">').match(self.text, at)
        if m is None:
            return
        close = "</cofl:value>"
        for end, value in self._cohere_content(m.end(), m[2], close):
            if self.text.startswith(close, end):
                yield end + len(close), (m[1], value) if named else value

    def _cohere_content(self, at: int, told: str, close: str) -> Iterator[tuple[int, Any]]:
        end = self.text.find(close, at)
        if told == "raw" and end >= 0:
            yield from ((end, v) for v in (_stripped(self.text[at:end]) if self.loose else [self.text[at:end]]))
        elif told == "json" and end >= 0:
            scalars = (v for v in _from_json(self.text[at:end]) if COHERE[kind(v)] == "json")
            yield from ((end, v) for v in scalars)
        elif told == "dict":
            yield from self._members(at, self._cohere_member)
        elif told == "list":
            work: list[tuple[int, list[Any]]] = [(self._space(at), [])]
            while work:
                at, items = work.pop()
                yield self._space(at), items
                work.extend((e, [*items, v]) for e, v in self._cohere_member(at, named=False))

    def _m3_member(self, at: int) -> Iterator[tuple[int, tuple[str, Any]]]:
        m = re.compile(rf"{re.escape(NS)}<([^<>/]+)>").match(self.text, at)
        if m is None:
            return
        close = f"{NS}</{m[1]}>"
        for end, value in self._m3_content(m.end()):
            if self.text.startswith(close, end):
                yield end + len(close), (m[1], value)

    def _m3_content(self, at: int) -> Iterator[tuple[int, Any]]:
        end = self.text.find(NS, at)
        if end >= 0:
            yield end, self.text[at:end]
            if self.text[at:end] == self.text[at:end].strip(WS):
                yield from ((end, v) for v in _from_json(self.text[at:end]) if kind(v) in ("number", "boolean", "null"))
        for after, pairs in self._members(at, self._m3_member):
            yield after, pairs
            if all(name == "item" for name, _ in pairs):
                yield after, [v for _, v in pairs]

    def _gemma(self, at: int) -> Iterator[tuple[int, Any]]:
        text = self.text
        if text.startswith(QUOTE, at):
            end = text.find(QUOTE, at + len(QUOTE))
            if end >= 0:
                yield end + len(QUOTE), text[at + len(QUOTE) : end]
        elif text.startswith(("{", "["), at):
            yield from self._gemma_list(at + 1, "}" if text[at] == "{" else "]")
        else:
            m = re.compile(r"null|true|false|-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?").match(text, at)
            for end in range(at + 1, m.end() + 1) if m else []:
                yield from ((end, v) for v in _from_json(text[at:end]))

    def _gemma_list(self, at: int, close: str) -> Iterator[tuple[int, Any]]:
        start: Any = Pairs() if close == "}" else []
        at = self._space(at)
        if self.text.startswith(close, at):
            yield at + 1, start
        work = [(at, start)]
        while work:
            at, items = work.pop()
            for end, item in self._gemma_entry(at) if close == "}" else self._gemma(at):
                more = type(items)([*items, item])
                end = self._space(end)
                if self.text.startswith(close, end):
                    yield end + 1, more
                elif self.text.startswith(",", end):
                    work.append((self._space(end + 1), more))

    def _gemma_entry(self, at: int) -> Iterator[tuple[int, tuple[str, Any]]]:
        m = NAME.match(self.text, at)
        if m is None:
            return
        after = self._space(m.end())
        if self.text.startswith(":", after):
            yield from ((end, (m[0], v)) for end, v in self._gemma(self._space(after + 1)))


def valid(schema: Any, value: Any, style: str, *, inside: bool = False) -> bool:
    """Whether a schema allows a value. `inside`: it is JSON under a name of the style, where objects are open."""
    if isinstance(schema, bool):
        return schema
    if "anyOf" in schema and not any(valid(s, value, style, inside=inside) for s in schema["anyOf"]):
        return False
    if "enum" in schema and not any(_same(value, v) for v in schema["enum"]):
        return False
    types = schema.get("type", [])
    k = kind(value)
    if types and not any(
        t == k or (t == "integer" and k == "number" and value == int(value))
        for t in (types if isinstance(types, list) else [types])
    ):
        return False
    deeper = inside or style in FLAT
    if k == "string" and not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 1 << 30):
        return False
    if k == "array" and "items" in schema and not all(valid(schema["items"], v, style, inside=deeper) for v in value):
        return False
    return k != "object" or _valid_object(schema, value, style, inside, deeper)


def _valid_object(schema: Any, value: Pairs, style: str, inside: bool, deeper: bool) -> bool:
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties", inside or "properties" not in schema)
    order = [list(properties).index(n) if n in properties else len(properties) for n, _ in value]
    declared = [i for i in order if i < len(properties)]
    if order != sorted(order) or len(set(declared)) < len(declared):
        return False
    if not {n for n, _ in value}.issuperset(schema.get("required", [])):
        return False
    if not inside and style != "cohere_xml" and not all(n in properties or NAME.fullmatch(n) for n, _ in value):
        return False
    return all(valid(properties.get(n, others), v, style, inside=deeper) for n, v in value)


def _same(a: Any, b: Any) -> bool:
    return kind(a) == kind(b) and a == b


def matches(style: str, schema: Any, text: str, *, loose: bool = False) -> bool:
    """Whether a text stands for some value that the schema allows."""
    return any(valid(schema, v, style, inside=False) for v in Reader(style, text, loose=loose).values())


def without(of: Any, *keywords: str) -> Any:
    """The same schema without some keywords."""
    if isinstance(of, dict):
        return {k: without(v, *keywords) for k, v in of.items() if k not in keywords}
    return [without(v, *keywords) for v in of] if isinstance(of, list) else of


def schema(rng: random.Random, depth: int = 2, *, root: bool = True) -> dict[str, Any]:
    """A schema; at the root of an object."""
    choice = (
        "object" if root else rng.choice(["string", "integer", "boolean", "enum", "union", "length", "array", "object"])
    )
    if depth == 0 and choice in ("array", "object"):
        choice = "string"
    match choice:
        case "enum":
            return {"enum": rng.sample(["x", "y z", 1, None, True], rng.randint(1, 3))}
        case "union":
            return {"anyOf": [schema(rng, 0, root=False), {"type": rng.choice(["null", "integer"])}]}
        case "length":
            return {"type": "string", "minLength": rng.randint(0, 1), "maxLength": rng.randint(1, 3)}
        case "array":
            return {"type": "array", "items": schema(rng, depth - 1, root=False)}
        case "object":
            names = ["a", "b", "c"][: rng.randint(0 if root else 1, 3)]
            made: dict[str, Any] = {
                "type": "object",
                "properties": {n: schema(rng, depth - 1, root=False) for n in names},
                "required": [n for n in names if rng.random() < 0.5],
            }
            if rng.random() < 0.3:
                made["additionalProperties"] = rng.choice([False, schema(rng, 0, root=False)])
            return made
    return {"type": choice}


def instance(rng: random.Random, of: Any, depth: int = 3) -> Any:
    """A value that the schema allows, mostly."""
    if rng.random() < 0.04 or not isinstance(of, dict):
        return rng.choice(["x", 1, None, True, [], Pairs()])
    if "enum" in of:
        return rng.choice(of["enum"])
    if "anyOf" in of:
        return instance(rng, rng.choice(of["anyOf"]), depth)
    match of.get("type"):
        case "string":
            return "".join(
                rng.choice("xyz <>1é") for _ in range(rng.randint(of.get("minLength", 0), of.get("maxLength", 3)))
            )
        case "integer":
            return rng.choice([0, 7, -12])
        case "boolean":
            return rng.random() < 0.5
        case "null":
            return None
        case "array":
            return [instance(rng, of["items"], depth - 1) for _ in range(rng.randint(0, 2))]
    properties = of.get("properties", {})
    pairs = [
        (n, instance(rng, s, depth - 1))
        for n, s in properties.items()
        if rng.random() < (0.97 if n in of.get("required", []) else 0.5)
    ]
    if rng.random() < 0.05:
        rng.shuffle(pairs)
    others = of.get("additionalProperties", "properties" not in of or rng.random() < 0.1)
    if others is not False and rng.random() < 0.4:
        pairs.append(("other", instance(rng, others, depth - 1)))
    return Pairs(pairs)


def mutated(rng: random.Random, text: str) -> str:
    """A text with a small change, whitespace mostly."""
    at = rng.randrange(len(text) + 1)
    if rng.random() < 0.6:
        return text[:at] + rng.choice(" \n") + text[at:]
    return text[:at] + rng.choice(["", "x", "1", '"']) + text[min(at + 1, len(text)) :]
