"""Cases that broke other engines, or an earlier version of this one."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from typing import Any

import pytest

from gramary.compiler.errors import CompileError, LimitExceeded
from gramary.runtime._core import CompiledGrammar, Compiler, Limits, Matcher, Vocabulary

from . import strategies as ir
from .oracle import brute_force, mask

BYTES = [bytes([b]) for b in range(256)]


def compiler(*words: bytes) -> Compiler:
    """All bytes, then words, then a stop token."""
    tokens = [*BYTES, *words, b"</s>"]
    stop = len(tokens) - 1
    return Compiler(Vocabulary.from_tokens(tokens, special=[stop]), stop_token_ids=[stop])


PLAIN = compiler()


def matches(grammar: CompiledGrammar, text: bytes | str) -> bool:
    matcher = grammar.matcher()
    return matcher.accept_bytes(text) and matcher.is_complete()


def begins(grammar: CompiledGrammar, text: bytes | str) -> bool:
    return grammar.matcher().accept_bytes(text)


# ------------------------------------------------------------------------------------------------ steps


@pytest.mark.parametrize(
    "pattern", [r"^#\d{6}", r"^#\d{6,9}", r"^#\d{6}$", r"^#[0-9a-f]{3}([0-9]{20}x)?", r"#\d{2,30}", r"^#\w{6}-\d{20}"]
)
def test_what_was_tried_before_changes_no_step(pattern: str) -> None:
    """A byte may take two edges of which one's guard fails; a byte that takes only that one is not its twin."""
    source = json.dumps({"type": "string", "pattern": pattern})
    used = PLAIN.compile_json_schema(source)
    for text in (b'"#', b'"#1', b'"#123', b'"#12345', b'"#123456', b'"#1234567'):
        assert begins(used, text) == begins(compiler().compile_json_schema(source), text)
        if not begins(used, text):
            continue
        for byte in BYTES:
            fresh = compiler().compile_json_schema(source)
            assert begins(used, text + byte) == begins(fresh, text + byte), text + byte


# ------------------------------------------------------------------------------------------------ tokens


def test_a_literal_that_is_a_token_unlike_the_one_before() -> None:
    words = [b")", b"))", b")))", b")))))\n", b")\n", b"\n", b"(x", b"x)"]
    used = compiler(*words)
    size = 256 + len(words) + 1
    for grammar in (
        used.compile_regex(r"\)\)\)\)\)\n"),
        used.compile_ir(json.dumps(ir.grammar(ir.lit(")))))\n")))),
        used.compile_ir(json.dumps(ir.grammar(ir.seq(ir.lit("(x"), ir.lit(")))))\n"))))),
        used.compile_ir(
            json.dumps(
                ir.grammar(
                    ir.seq(ir.lit("("), ir.ref(1), ir.lit("\n")), ir.alt(ir.lit("x"), ir.seq(ir.ref(1), ir.lit(")")))
                )
            )
        ),
    ):
        todo = [grammar.matcher()]
        checked = 0
        while todo and checked < 200:
            matcher = todo.pop()
            allowed = mask(matcher, size)
            assert allowed == brute_force(matcher, range(size))
            checked += 1
            for token in allowed - {size - 1}:
                fork = matcher.fork()
                assert fork.accept_token(token)
                todo.append(fork)
        assert checked > 5
    matcher = used.compile_regex(r"\)\)\)\)\)\n").matcher()
    assert 256 + 3 in mask(matcher, size)
    assert matcher.accept_token(256 + 3)
    assert matcher.is_complete()


def test_triggers_inside_triggers() -> None:
    """`bc` ends inside `abcd`: a byte that continues the longer one belongs to it, every other opens the shorter."""
    grammar = PLAIN.compile_tags([("bcZ", {"const": 1}, ";"), ("abcd!", {"const": 2}, ";")], ["bc", "abcd"])
    for text in ("abcZ1;", "bcZ1;", "abcd!2;", "aabcZ1;abcd!2;x", "ab", "xb"):
        assert matches(grammar, text), text
    for text in ("abc", "abcZ", "abcd", "abcd!2"):
        assert begins(grammar, text), text
        assert not matches(grammar, text), text
    for text in ("abcZ2", "abcdZ", "abc!", "bcd", "abcY"):
        assert not begins(grammar, text), text


def test_text_is_utf8_and_has_no_lone_surrogates() -> None:
    wrong = [
        b"\xff",
        b"\xc0\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xc3\xc3",
        b"\xa9",
        b"\xe2\x82",
        b"\xe2\x82\xac\xac",
    ]
    escapes = [rb"\ud83d", rb"\udc00", rb"\ude00", rb"\ud83dx", rb"\ud83d\u0041", rb"\ud83d\ude00", rb"\ud8", rb"\uDC"]
    words = [*wrong, *escapes]
    used = compiler(*words)
    size = 256 + len(words) + 1
    names = {256 + i: w for i, w in enumerate(words)}

    def allowed(matcher: Matcher) -> set[bytes]:
        found = mask(matcher, size)
        assert found == brute_force(matcher, range(size))
        return {names[t] for t in found if t in names}

    for schema in ({"type": "string"}, {"type": "string", "maxLength": 5}, {"type": "string", "pattern": "^.*$"}, True):
        matcher = used.compile_json_schema(schema).matcher()
        assert matcher.accept_bytes(b'"')
        assert allowed(matcher) == {b"\xe2\x82", rb"\ud83d", rb"\ud83d\ude00", rb"\ud8"}, schema
        after = matcher.fork()
        assert after.accept_bytes(b"\xe2\x82")
        assert mask(after, size) == set(range(0x80, 0xC0)) | {256 + 5}
        after = matcher.fork()
        assert after.accept_bytes(rb"\ud83d")
        assert allowed(after) == {rb"\udc00", rb"\ude00", rb"\uDC"}
        assert after.accept_bytes(rb"\u")
        assert mask(after, size) == {ord("d"), ord("D")}
    free = used.compile_tools([{"name": "t"}]).matcher()
    assert allowed(free) & set(wrong) == {b"\xe2\x82"}
    for pattern in (".*", "[^a]*", r"\S+", r"(?:\W|é)*"):
        assert not begins(PLAIN.compile_regex(pattern), b"\xed\xa0"), pattern
        assert not begins(PLAIN.compile_regex(pattern), b"\xff"), pattern


# ------------------------------------------------------------------------------------------------ counters


def test_two_registers_in_one_unit() -> None:
    """A counted group of the pattern and the length of the string count at once."""
    schema = {"type": "string", "pattern": "^(?:[a-z]-){3,200}$", "maxLength": 50}
    used = compiler(b"a-", b"a-a-", b"a-a-a-a-a-a-a-a-", b"-a", b'-"')
    grammar = used.compile_json_schema(schema)
    for n in (0, 1, 2, 3, 4, 24, 25, 26):
        assert matches(grammar, '"' + "a-" * n + '"') == (3 <= n <= 25), n
    matcher = grammar.matcher()
    matcher.accept_bytes(b'"')
    for _ in range(26):
        allowed = mask(matcher, 262)
        assert allowed == brute_force(matcher, range(262))
        if not matcher.accept_token(256):
            break
    assert allowed == {ord('"')}
    exact = used.compile_json_schema(
        {"type": "string", "pattern": "^(?:ab){3,200}c{2,90}$", "minLength": 40, "maxLength": 41}
    )
    for pairs in (3, 10, 18, 19, 20):
        for tail in (1, 2, 3, 4, 20, 34, 35):
            length = 2 * pairs + tail
            text = '"' + "ab" * pairs + "c" * tail + '"'
            assert matches(exact, text) == (pairs >= 3 and tail >= 2 and 40 <= length <= 41), (pairs, tail)


def test_two_counters_that_cannot_both_be_met_are_no_dead_end() -> None:
    """What a counter forbids later is not begun."""
    grammar = PLAIN.compile_json_schema({"type": "string", "pattern": "^(?:ab|c{5})$", "minLength": 4})
    assert begins(grammar, '"cccc')
    assert not begins(grammar, '"a')
    with pytest.raises(CompileError):
        PLAIN.compile_json_schema({"type": "string", "pattern": "^a{2,3}$", "minLength": 4})


def cost(grammar: CompiledGrammar) -> tuple[int, int, int]:
    units = grammar.units()
    return len(units), sum(u["states"] for u in units), sum(u["entries"] for u in units)


@pytest.mark.parametrize(
    ("few", "many"),
    [
        ({"type": "string", "maxLength": 100}, {"type": "string", "maxLength": 100_000}),
        ({"type": "string", "minLength": 90}, {"type": "string", "minLength": 90_000}),
        (
            {"type": "array", "items": {"type": "boolean"}, "maxItems": 100},
            {"type": "array", "items": {"type": "boolean"}, "maxItems": 100_000},
        ),
        ({"type": "string", "pattern": "^[a-f]{7,100}$"}, {"type": "string", "pattern": "^[a-f]{7,100000}$"}),
    ],
    ids=["maxLength", "minLength", "maxItems", "pattern"],
)
def test_bounds_cost_nothing(few: Any, many: Any) -> None:
    """States and entries do not depend on the bounds; nor does the time of a mask, anywhere in the text."""
    used = compiler(b"aaaa", b"aaaaaaaa", b"true,", b"e,", b'a"')
    costs = []
    for schema in (few, many):
        used.clear()
        grammar = used.compile_json_schema(schema, whitespace="compact")
        matcher = grammar.matcher()
        array = schema["type"] == "array"
        assert matcher.accept_bytes(b"[" if array else b'"')
        for _ in range(20):
            allowed = mask(matcher, 262)
            assert allowed == brute_force(matcher, range(262))
            assert matcher.accept_bytes(b"true," if array else b"a")
        costs.append(cost(grammar))
    assert costs[0] == costs[1]


def test_a_mask_deep_in_a_long_string_is_as_cheap_as_the_first() -> None:
    """Masks are made of the entries of a few classes, however many positions there are; a second needs nothing new."""
    used = compiler()
    grammar = used.compile_json_schema({"type": "string", "minLength": 200, "maxLength": 100_000})
    matcher = grammar.matcher()
    assert matcher.accept_bytes(b'"')
    position, known = 0, []
    for at in (1, 150, 199, 200, 300, 50_000, 99_989, 99_990):
        assert matcher.accept_bytes(b"x" * (at - position))
        position = at
        allowed = mask(matcher, 257)
        assert (ord('"') in allowed) == (at >= 200)
        stats = grammar.stats()
        known.append((used.stats()["entries_built"], stats["masks"]))
        assert mask(matcher, 257) == allowed
        assert (used.stats()["entries_built"], grammar.stats()["masks"]) == known[-1]
    assert known[1] == known[0]
    assert known[7] == known[3]
    assert matcher.accept_bytes(b"x" * 10)
    assert mask(matcher, 257) == {ord('"')}


# ------------------------------------------------------------------------------------------------ bombs

#: Seconds and bytes that one bomb may take. Generous: the machine may be busy, and the interpreter itself counts.
SECONDS, BYTES_OF_MEMORY = 60, 3 << 30

PRELUDE = """
import json, sys
from gramary.compiler.errors import GramaryError
from gramary.runtime._core import Compiler, Vocabulary
tokens = [bytes([b]) for b in range(256)] + [b"</s>", b'":', b"[[", b"aaaa"]
compiler = Compiler(Vocabulary.from_tokens(tokens, special=[256]), stop_token_ids=[256])
def run(work):
    try:
        matcher = work().matcher()
        import numpy
        for _ in range(3):
            matcher.fill_bitmask(numpy.zeros(9, dtype=numpy.int32))
            matcher.accept_bytes(matcher.jump_forward()[:1] or b'{')
        print("ok")
    except GramaryError as e:
        assert str(e)
        print(type(e).__name__)
schema = compiler.compile_json_schema
"""

SCHEMA_BOMBS = {
    "nesting 10,000": """'{"items":' * 10_000 + "{}" + "}" * 10_000""",
    "arrays 10,000 deep": """'[' * 10_000 + ']' * 10_000""",
    "properties 5,000 deep": """'{"properties":{"a":' * 5_000 + "{}" + "}}" * 5_000""",
    "arrays 1,000 deep": """'{"type":"array","items":' * 1_000 + '{"type":"null"}' + "}" * 1_000""",
    "anyOf nested 30 deep": """'{"anyOf":[{"type":"string"},' * 30 + "{}" + "]}" * 30""",
    "anyOf with two ways, 30 deep": """
        '{"$ref":"#/$defs/d0","$defs":{' + ",".join(
            '"d%d":{"anyOf":[{"properties":{"a":{"$ref":"#/$defs/d%d"}}},{"properties":{"b":{"$ref":"#/$defs/d%d"}}}]}'
            % (i, i + 1, i + 1) for i in range(30)) + ',"d30":{}}}'""",
    "allOf of anyOf": """
        json.dumps(
            {"allOf": [{"anyOf": [{"required": ["a%d" % i]}, {"required": ["b%d" % i]}]} for i in range(30)]}
        )""",
    "oneOf nested 12 deep": """
        '{"oneOf":[{"type":"object","required":["a"]},' * 12 + '{"type":"null"}' + "]}" * 12""",
    "pattern of 1 MB": """json.dumps({"type": "string", "pattern": "a" * 1_000_000})""",
    "pattern of 1 MB of classes": """json.dumps({"type": "string", "pattern": "[a-z]" * 200_000})""",
    "100,000 properties": """
        json.dumps({"type": "object", "properties": {"p%d" % i: {"type": "integer"} for i in range(100_000)}})""",
    "100,000 properties, closed and required": """
        json.dumps({"type": "object", "properties": {"p%d" % i: {} for i in range(100_000)},
                    "required": ["p%d" % i for i in range(100_000)], "additionalProperties": False})""",
    "references in a ring": """
        json.dumps({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}})""",
    "maxLength of 10^30": """'{"type":"string","maxLength":1' + "0" * 30 + "}" """,
    "a number of 100,000 digits": """'{"type":"integer","minimum":1' + "0" * 100_000 + "}" """,
    "an exponent": """'{"multipleOf":1e-999999999,"maximum":1e999999999}'""",
    "minItems of 10^9": """'{"type":"array","items":{"enum":[1,[2]]},"minItems":1000000000}'""",
    "a deep enum": """'{"enum":[' + '[' * 5_000 + ']' * 5_000 + "]}" """,
}

PATTERN_BOMBS = [
    '"(?:a{1000}){1000}"',
    '"(?:(?:a{100}){100}){100}b"',
    '"(?:a|b)*a(?:a|b){1000}"',
    '"(?:a|aa){1,100000}"',
    '"(" * 10_000 + "a" + ")" * 10_000',
    '"(?:" * 5_000 + "a" + ")*" * 5_000',
    '"a?" * 5_000 + "a" * 5_000',
    '"(?=" * 50 + "a" + ".*)" * 50',
    '"(?!.*a.{40}).*"',
    '"[^" + "".join(chr(i) for i in range(0x100, 0x9000, 2)) + "]{2,50}"',
    r'"\\p{L}" * 2_000',
    '"|".join(str(i * 7919) for i in range(20_000))',
    '"a{4294967296}"',
    '"a{5,2}"',
]


def explode(program: str) -> str:
    """Run in a process of its own, with its time and memory bounded; what it printed."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (BYTES_OF_MEMORY, BYTES_OF_MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + program],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        preexec_fn=limit,
        env={**os.environ, "RAYON_NUM_THREADS": "2"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


@pytest.mark.parametrize("name", SCHEMA_BOMBS)
def test_schema_bombs(name: str) -> None:
    program = f"text = {SCHEMA_BOMBS[name].strip()}\nrun(lambda: schema(text))\n"
    printed = explode(program + "run(lambda: schema(text, property_order='any'))")
    assert set(printed.split()) <= {"ok", "LimitExceeded", "UnsupportedSchema", "UnsatisfiableSchema", "InvalidSchema"}
    if name == "arrays 1,000 deep":
        assert printed.split() == ["ok", "ok"]


def test_pattern_bombs() -> None:
    program = "".join(f"run(lambda: compiler.compile_regex({p}))\nsys.stdout.flush()\n" for p in PATTERN_BOMBS)
    printed = explode(program).split()
    assert len(printed) == len(PATTERN_BOMBS)
    assert set(printed) <= {"ok", "LimitExceeded", "UnsupportedSchema", "UnsatisfiableSchema", "InvalidPattern"}


def test_ambiguous_grammars_end_at_a_limit() -> None:
    """`S = S S | a` has ever more ways to read a text: a typed error, and the matcher stays where it was."""
    source = json.dumps(ir.grammar(ir.alt(ir.seq(ir.ref(0), ir.ref(0)), ir.lit("a"))))
    grammar = PLAIN.compile_ir(source, limits=Limits(items_per_set=50))
    matcher = grammar.matcher()
    assert matcher.accept_bytes(b"a" * 10)
    with pytest.raises(LimitExceeded, match="items_per_set"):
        matcher.accept_bytes(b"a" * 500)
    assert mask(matcher, 257) == {ord("a"), 256}
    assert matcher.accept_bytes(b"a" * 10)
    assert matcher.num_tokens() == 2
