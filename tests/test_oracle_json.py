"""JSON Schema against `jsonschema` (see `judge`): a text is accepted exactly if the value it spells is valid."""

from __future__ import annotations

import json
import random
import re
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from gramary.compiler.errors import LimitExceeded, UnsatisfiableSchema, UnsupportedSchema
from gramary.runtime._core import CompiledGrammar, Compiler, Limits, Vocabulary

from . import strategies as ir
from .judge import Judge, exactly, parsed
from .oracle import brute_force, mask
from .reference import Reference

WORDS = [b'{"', b'":', b'", "', b"true", b"null", b"10", b"0.", b"\\u00", b'{"a": ', b"[]", b'"}', b", ", b"e1", b"bab"]
TOKENS = [*(bytes([b]) for b in range(256)), *WORDS, b"</s>"]
STOP = len(TOKENS) - 1
COMPILER = Compiler(Vocabulary.from_tokens(TOKENS, special=[STOP]), stop_token_ids=[STOP])


# ------------------------------------------------------------------------------------------------ schemas and values

KEYS = ["a", "b", "cc", "é"]
STRINGS = ["", "a", "b", "ab", "ba", "abab", "aabb", "é", "x\ny", '"', "c"]
NUMBERS: list[Any] = [-3, -1, 0, 1, 2, 3, 5, 7, 10, 12, 100, 0.5, 1.5, -0.25, 2.0, 10.0, 0.07, 1e3]

values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.sampled_from(STRINGS), st.sampled_from(NUMBERS), st.booleans(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)),
    max_leaves=6,
)


@st.composite
def strings(draw: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    if draw(st.booleans()):
        schema["minLength"] = draw(st.integers(0, 3))
    if draw(st.booleans()):
        schema["maxLength"] = draw(st.integers(0, 4))
    if draw(st.booleans()):
        schema["pattern"] = draw(st.sampled_from(["^a", "b", "^(?:ab)*$", "^[^a]*$", "^a?b{1,2}", "^.{2,3}$", "a|é"]))
    return schema


@st.composite
def numbers(draw: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": draw(st.sampled_from(["integer", "number"]))}
    for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        if draw(st.integers(0, 3)) == 0:
            schema[keyword] = draw(st.sampled_from([-3, 0, 1, 3, 10, 0.5, 1.5, -0.25]))
    if draw(st.integers(0, 5)) == 0:
        schema["multipleOf"] = draw(st.sampled_from([1, 2, 3, 0.5, 0.01]))
    return schema


@st.composite
def objects(draw: Any, inner: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    names = draw(st.lists(st.sampled_from(KEYS), max_size=3, unique=True))
    if names:
        schema["properties"] = {n: draw(inner) for n in names}
    if draw(st.booleans()):
        schema["required"] = draw(st.lists(st.sampled_from([*names, "a"]), max_size=2, unique=True))
    extra = draw(st.integers(0, 3))
    if extra == 0:
        schema["additionalProperties"] = False
    elif extra == 1:
        schema["additionalProperties"] = draw(inner)
    if draw(st.integers(0, 4)) == 0:
        schema["patternProperties"] = {draw(st.sampled_from(["^c", "é", "a|b"])): draw(inner)}
    if draw(st.integers(0, 4)) == 0:
        schema["propertyNames"] = {"maxLength": draw(st.integers(0, 2))}
    if draw(st.integers(0, 4)) == 0:
        schema["minProperties"] = draw(st.integers(0, 2))
    if draw(st.integers(0, 4)) == 0:
        schema["maxProperties"] = draw(st.integers(0, 3))
    return schema


@st.composite
def arrays(draw: Any, inner: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "array"}
    if draw(st.booleans()):
        schema["items"] = draw(inner)
    if draw(st.integers(0, 2)) == 0:
        schema["prefixItems"] = draw(st.lists(inner, min_size=1, max_size=2))
    if draw(st.integers(0, 2)) == 0:
        schema["minItems"] = draw(st.integers(0, 3))
    if draw(st.integers(0, 2)) == 0:
        schema["maxItems"] = draw(st.integers(0, 3))
    if draw(st.integers(0, 6)) == 0:
        schema["contains"] = draw(inner)
    return schema


leaves = st.one_of(
    strings(),
    numbers(),
    st.builds(lambda v: {"const": v}, st.one_of(st.sampled_from(STRINGS), st.sampled_from(NUMBERS), st.just([1, "a"]))),
    st.builds(lambda v: {"enum": v}, st.lists(values, min_size=1, max_size=3)),
    st.sampled_from([True, True, {}, False, {"type": ["string", "null"]}, {"type": "boolean"}, {"type": "null"}]),
)


def combined(inner: Any) -> Any:
    """Keywords that apply together with others."""
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        st.builds(lambda v: {"anyOf": v}, several),
        st.builds(lambda v: {"allOf": v}, several),
        st.builds(lambda v: {"oneOf": v}, several),
        st.builds(lambda v: {"not": v}, leaves),
        st.builds(lambda i, t, e: {"if": i, "then": t, "else": e}, leaves, inner, inner),
        st.builds(lambda a, v: {**a, "anyOf": v} if isinstance(a, dict) else a, inner, several),
        st.builds(lambda k, n: {"dependentRequired": {k: [n]}}, st.sampled_from(KEYS), st.sampled_from(KEYS)),
    )


@st.composite
def documents(draw: Any, combine: bool) -> Any:
    layers = [leaves, objects, arrays, *([combined] if combine else [])]
    base: Any = leaves
    reference = st.just({"$ref": "#/$defs/d"})
    for _ in range(2):
        inner = st.one_of(base, base, leaves, reference)
        base = st.one_of(*(layer if layer is leaves else layer(inner) for layer in layers))  # type: ignore[operator]
    schema = draw(base)
    if "#/$defs/d" in json.dumps(schema) and isinstance(schema, dict):
        schema = {**schema, "$defs": {"d": draw(st.one_of(leaves, objects(st.one_of(leaves, reference))))}}
    return schema


def likely(schema: Any, rng: random.Random, root: Any, depth: int = 4) -> Any:
    """A value that has a fair chance of being valid."""
    anything: list[Any] = [*STRINGS, *NUMBERS, True, None, [], {}, [1, "a"], {"a": 1}]
    if not isinstance(schema, dict) or depth == 0 or rng.random() < 0.1:
        return rng.choice(anything)
    if "$ref" in schema:
        return likely(root["$defs"]["d"], rng, root, depth - 1)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return rng.choice(schema["enum"])
    for keyword in ("anyOf", "oneOf", "allOf"):
        if keyword in schema and ("type" not in schema or rng.random() < 0.3):
            return likely(rng.choice(schema[keyword]), rng, root, depth - 1)
    if "if" in schema:
        return likely(schema[rng.choice(["if", "then", "else"])], rng, root, depth - 1)
    kind = schema.get("type", rng.choice(["string", "number", "object", "array"]))
    if isinstance(kind, list):
        kind = rng.choice(kind)
    if kind == "string":
        return rng.choice(STRINGS)
    if kind in ("integer", "number"):
        return rng.choice(NUMBERS)
    if kind == "array":
        prefix = schema.get("prefixItems", [])
        size = rng.randrange(max(schema.get("minItems", 0), 0), 4)
        items = schema.get("items", True)
        return [likely(prefix[i] if i < len(prefix) else items, rng, root, depth - 1) for i in range(size)]
    if kind == "object":
        known = schema.get("properties", {})
        required = schema.get("required", [])
        chosen = [k for k in known if k in required or rng.random() < 0.6]
        chosen += [k for k in [*required, rng.choice(KEYS)] if k not in chosen and rng.random() < 0.5]
        extra = schema.get("additionalProperties", True)
        return {k: likely(known.get(k, extra), rng, root, depth - 1) for k in chosen}
    return rng.choice(anything)


def compiled(schema: Any, **options: Any) -> CompiledGrammar | type[Exception]:
    try:
        return COMPILER.compile_json_schema(schema, limits=Limits(seconds=10.0), **options)
    except (UnsupportedSchema, LimitExceeded, UnsatisfiableSchema) as e:
        keyword = getattr(e, "keyword", "")
        event(f"{type(e).__name__} {keyword}")
        return type(e)


def spellings(value: Any) -> list[str]:
    """How `json.dumps` may write it."""
    return [
        json.dumps(value),
        json.dumps(value, ensure_ascii=False),
        json.dumps(value, indent=2),
        json.dumps(value, separators=(",", ":")),
    ]


def accepts(grammar: CompiledGrammar, text: str) -> bool:
    matcher = grammar.matcher()
    return matcher.accept_bytes(text) and matcher.is_complete()


@settings(max_examples=250)
@given(documents(combine=True), st.integers(0, 2**32))
def test_accepts_what_is_valid_and_nothing_else(schema: Any, seed: int) -> None:
    grammar = compiled(schema, property_order="any")
    judge, rng = Judge(exactly(schema)), random.Random(seed)
    for _ in range(12):
        value = likely(schema, rng, schema)
        valid = judge.is_valid(exactly(value))
        event(f"valid: {valid}")
        if grammar is UnsatisfiableSchema:
            assert not valid, value
        elif isinstance(grammar, CompiledGrammar):
            for text in spellings(value):
                assert accepts(grammar, text) == valid, text


def in_order(schema: Any, value: Any, root: Any) -> bool:
    """Declared keys in the order of the schema, then the others, everywhere."""
    if isinstance(schema, dict) and "$ref" in schema:
        schema = root["$defs"]["d"]
    if not isinstance(schema, dict):
        schema = {}
    if isinstance(value, list):
        prefix = schema.get("prefixItems", [])
        items = schema.get("items", True)
        return all(in_order(prefix[i] if i < len(prefix) else items, v, root) for i, v in enumerate(value))
    if isinstance(value, dict) and "const" not in schema and "enum" not in schema:
        known = schema.get("properties", {})
        places = [list(known).index(k) if k in known else len(known) for k in value]
        extra = schema.get("additionalProperties", True)
        below = (in_order(known.get(k, extra), v, root) for k, v in value.items())
        return places == sorted(places) and all(below)
    return True


def plain(schema: Any) -> bool:
    """Whether the order of keys is plain to see: no keyword declares or restricts them from elsewhere."""
    text = json.dumps(schema)
    return not any(f'"{k}"' in text for k in ("patternProperties", "enum", "const", "contains", "propertyNames"))


@settings(max_examples=150)
@given(documents(combine=False).filter(plain), st.integers(0, 2**32))
def test_declared_order_is_kept(schema: Any, seed: int) -> None:
    grammar = compiled(schema)
    judge, rng = Judge(exactly(schema)), random.Random(seed)
    for _ in range(12):
        value = likely(schema, rng, schema)
        valid = judge.is_valid(exactly(value))
        required = isinstance(schema, dict) and set(schema.get("required", ())) - set(schema.get("properties", ()))
        if grammar is UnsatisfiableSchema:
            assert not valid, value
        elif isinstance(grammar, CompiledGrammar) and not required:
            assert accepts(grammar, json.dumps(value)) == (valid and in_order(schema, value, schema)), value


@settings(max_examples=100)
@given(documents(combine=True), st.integers(0, 2**32), st.sampled_from(["declared", "any"]))
def test_what_masks_allow_is_valid(schema: Any, seed: int, order: str) -> None:
    """A random walk through the masks never ends in a dead end, and what it writes validates."""
    grammar = compiled(schema, property_order=order, whitespace="compact")
    if not isinstance(grammar, CompiledGrammar):
        return
    judge, rng = Judge(exactly(schema)), random.Random(seed)
    printable = [
        i for i, t in enumerate(TOKENS) if t.isascii() and (len(t) > 1 or t in b'{}[]",:-.0123456789abcetruflsn')
    ]
    for _ in range(2):
        matcher, text = grammar.matcher(), bytearray()
        for step in range(60):
            allowed = mask(matcher, len(TOKENS))
            assert allowed, bytes(text)
            if step < 3:
                assert allowed == brute_force(matcher, range(len(TOKENS)))
            if STOP in allowed and (rng.random() < 0.3 or step > 40):
                break
            ways = list(allowed & set(printable)) or sorted(allowed - {STOP})
            # What closes, later on: otherwise few walks would end.
            closing = [t for t in ways if TOKENS[t] in (b'"', b"}", b"]")]
            token = rng.choice(closing if step > 20 and closing else sorted(ways))
            text += TOKENS[token]
            assert matcher.accept_token(token)
        if matcher.is_complete():
            written = text.decode()
            event("finished")
            assert judge.is_valid(parsed(written)), written


# ------------------------------------------------------------------------------------------------ strings


@st.composite
def patterns(draw: Any, depth: int = 2) -> tuple[str, Any]:
    """A pattern, and the same over characters of a JSON string (spelt without needless escapes), as IR."""
    kind = draw(st.sampled_from(["letter", "letter", *(["seq", "alt", "count", "count"] if depth else [])]))
    if kind == "letter":
        lo, hi = draw(st.sampled_from(["aa", "bb", "ab", "bc", "ac"]))
        return f"[{lo}-{hi}]", ir.json_chars((ord(lo), ord(hi)), free=False)
    if kind == "count":
        text, body = draw(patterns(depth - 1))
        low = draw(st.integers(0, 9))
        high = draw(st.one_of(st.none(), st.integers(low, low + 9)))
        return f"(?:{text}){{{low},{'' if high is None else high}}}", ir.repeat(body, low, high)
    texts, bodies = zip(*draw(st.lists(patterns(depth - 1), min_size=1, max_size=3)), strict=True)
    if kind == "seq":
        return "".join(texts), ir.seq(*bodies)
    return "(?:" + "|".join(texts) + ")", ir.alt(*bodies)


@settings(max_examples=80)
@given(
    st.lists(patterns(), min_size=1, max_size=2),
    st.integers(0, 12),
    st.one_of(st.none(), st.integers(0, 16)),
    st.integers(0, 2**32),
)
def test_constraints_on_one_string_leave_no_dead_end(
    parts: list[tuple[str, Any]], low: int, high: int | None, seed: int
) -> None:
    """Patterns and lengths of one string, counters and all: every mask is what the reference says."""
    schema: dict[str, Any] = {
        "type": "string",
        "minLength": low,
        "allOf": [{"pattern": f"^(?:{p})$"} for p, _ in parts],
    }
    if high is not None:
        schema["maxLength"] = high
    length = ir.repeat(ir.json_chars((0, 0xD7FF), (0xE000, 0x10FFFF)), low, high)
    body = ir.both(*(e for _, e in parts), length)
    reference = Reference(ir.grammar(ir.seq(ir.lit('"'), body, ir.lit('"'))))
    grammar = compiled(schema)
    if grammar is UnsatisfiableSchema:
        assert not reference.start.viable
        return
    if not isinstance(grammar, CompiledGrammar):
        return
    matcher, state, rng = grammar.matcher(), reference.start, random.Random(seed)
    probe = [t for t, b in enumerate(TOKENS) if b in (b'"', b"a", b"b", b"c", b"d", b"\\", b"bab", b'"}', b"\\u00")]
    for _ in range(14):
        allowed = mask(matcher, len(TOKENS))
        assert allowed & set(probe) == {t for t in probe if state.feed_all(TOKENS[t]) is not None}
        assert (STOP in allowed) == state.complete
        ways = [t for t in allowed if TOKENS[t] in (b'"', b"a", b"b", b"c", b"bab")]
        if not ways:
            break
        token = rng.choice([t for t in ways if TOKENS[t] != b'"'] or ways)
        assert matcher.accept_token(token)
        following = state.feed_all(TOKENS[token])
        assert following is not None
        state = following


def test_a_constant_within_another_alternative_of_one_of_is_no_match() -> None:
    for value, around in (("", {"type": "string"}), (1, {"type": "integer"}), (None, {"type": ["null", "string"]})):
        for branches in ([{"const": value}, around], [around, {"enum": [value]}]):
            grammar = COMPILER.compile_json_schema({"oneOf": branches})
            assert not accepts(grammar, json.dumps(value))
            assert accepts(grammar, json.dumps(2 if value == 1 else "x"))


def test_every_escape_of_a_name_is_the_name() -> None:
    grammar = COMPILER.compile_json_schema(
        {"type": "object", "properties": {"name": {"type": "string"}}, "additionalProperties": {"type": "integer"}}
    )
    for key in ("name", "n\\u0061me", "\\u006eame", "na\\u006De"):
        assert not accepts(grammar, f'{{"{key}":1}}'), key
    assert accepts(grammar, '{"name":"x"}')
    assert accepts(grammar, '{"nam":1}')
    assert accepts(grammar, '{"names":1}')


# ------------------------------------------------------------------------------------------------ what must exist

some_property = st.one_of(
    st.builds(lambda s: {"propertyNames": s}, strings()),
    st.builds(lambda v: {"propertyNames": {"enum": v}}, st.lists(st.sampled_from(KEYS), min_size=1, max_size=2)),
    st.builds(
        lambda v: {"propertyNames": {"not": {"enum": v}}}, st.lists(st.sampled_from(KEYS), min_size=1, max_size=2)
    ),
    st.builds(lambda p: {"patternProperties": {p: False}}, st.sampled_from(["^a", "b", "^(?:ab)*$", "é|c", "^.$"])),
    st.builds(
        lambda n, p: {"properties": dict.fromkeys(n, True), **p, "additionalProperties": False},
        st.lists(st.sampled_from(KEYS), max_size=2, unique=True),
        st.sampled_from([{}, {"patternProperties": {"^c": True}}, {"patternProperties": {"^[^b]": True, "..": True}}]),
    ),
    st.builds(
        lambda v: {"const": v}, st.dictionaries(st.sampled_from(KEYS), st.sampled_from([1, "a", []]), max_size=2)
    ),
    st.builds(
        lambda v: {"enum": v}, st.lists(st.lists(st.sampled_from([1, 2, "a"]), max_size=2), min_size=1, max_size=2)
    ),
)
around = st.sampled_from(
    [
        {},
        {"properties": {"a": {"type": "integer"}, "b": True}, "required": ["b"]},
        {"maxProperties": 1},
        {"maxProperties": 2, "required": ["b"]},
        {"maxProperties": 2, "required": ["b", "cc"]},
        {"propertyNames": {"minLength": 2}},
        {"patternProperties": {"^c": {"type": "string"}}},
        {"additionalProperties": {"type": "integer"}},
        {"properties": {"a": False}, "additionalProperties": {"type": "string"}},
        {"properties": {"a": True}, "patternProperties": {"^[ab]b?$": True, "^x": True}, "additionalProperties": False},
        {"patternProperties": {"^(a|b|cc)$": {"type": ["integer", "string"]}}, "additionalProperties": False},
        {"patternProperties": {"^(a|b|cc)$": {"type": "integer"}}, "additionalProperties": False, "minProperties": 2},
        {"patternProperties": {"^(a|b|cc)$": {"type": "integer"}}, "additionalProperties": False, "maxProperties": 2},
    ]
)
names = st.sampled_from([*KEYS, "ab", "abab", "bb", "c", ""])
members = st.one_of(
    st.dictionaries(names, st.sampled_from([1, "a", []]), max_size=3),
    st.lists(st.sampled_from([1, 2, "a"]), max_size=3),
)


@settings(max_examples=120)
@given(
    around,
    st.lists(some_property, min_size=1, max_size=3),
    st.sampled_from(["allOf", "anyOf", "oneOf"]),
    st.lists(members, min_size=10, max_size=20),
    st.integers(0, 2**32),
)
def test_what_must_exist(base: Any, kinds: list[Any], keyword: str, instances: list[Any], seed: int) -> None:
    """Negations that ask for a property (or item) somewhere, on open objects, alone and together."""
    schema = {"type": ["object", "array"], **base, keyword: [{"not": s} for s in kinds]}
    judge, rng = Judge(exactly(schema)), random.Random(seed)
    for order in ("any", "declared"):
        grammar = compiled(schema, property_order=order)
        for value in instances:
            valid = judge.is_valid(exactly(value))
            if grammar is UnsatisfiableSchema:
                assert not valid, value
            elif isinstance(grammar, CompiledGrammar) and (order == "any" or not valid):
                assert accepts(grammar, json.dumps(value)) == valid, value
        if not isinstance(grammar, CompiledGrammar):
            continue
        # No dead end: a walk finds a way on at every step, and what it ends with is valid.
        printable = [t for t, b in enumerate(TOKENS) if b.isascii() and b.strip() == b and b"\\" not in b]
        matcher, text = grammar.matcher(), bytearray()
        for step in range(80):
            allowed = mask(matcher, len(TOKENS))
            assert allowed, bytes(text)
            if STOP in allowed and (rng.random() < 0.3 or step > 60):
                break
            ways = sorted(allowed & set(printable)) or sorted(allowed - {STOP})
            closing = [t for t in ways if TOKENS[t] in (b'"', b"}", b"]")]
            token = rng.choice(closing if step > 30 and closing else ways)
            text += TOKENS[token]
            assert matcher.accept_token(token)
        if matcher.is_complete():
            written = parsed(text)
            assert judge.is_valid(written), bytes(text)


# ------------------------------------------------------------------------------------------------ patterns

#: Counted classes that overlap with what comes after them, above all.
PIECES = [
    r"\d{6}",
    r"[0-9a-f]{3}",
    r"[a-c]{2,9}",
    r"\d{20,24}",
    r"(ab?){5}",
    r"[^b]{3}",
    ".*",
    "a*",
    r"\w+",
    "#",
    "b|",
    "c?",
]


@settings(max_examples=60)
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=4), st.booleans(), st.booleans(), st.randoms())
def test_patterns_whatever_was_tried_before(pieces: list[str], begin: bool, end: bool, rng: random.Random) -> None:
    """Every byte is tried at every place first: what a step leaves in memory must not change another's result."""
    pattern = "^" * begin + "(" + "".join(pieces) + ")" + "$" * end
    try:
        grammar = COMPILER.compile_json_schema(json.dumps({"type": "string", "pattern": pattern}))
    except LimitExceeded:
        return
    for _ in range(4):
        text = "".join(rng.choice("0123ab#") for _ in range(rng.choice([2, 6, 7, 12, 26])))
        matcher, taken = grammar.matcher(), True
        for byte in ('"' + text + '"').encode():
            for tried in range(32, 127):
                matcher.fork().accept_bytes(bytes([tried]))
            taken = matcher.accept_bytes(bytes([byte]))
            if not taken:
                break
        assert (taken and matcher.is_complete()) == bool(re.search(pattern, text)), text
