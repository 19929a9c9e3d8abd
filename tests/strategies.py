"""Random grammars, vocabularies and prefixes, small enough for the reference and awkward enough for the kernel.

Grammars are in the JSON form of ``ir::Grammar``; they use few letters, so that random words often match.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from .reference import Reference, State

Expr = Any
Json = Any
Draw = Any

# The reference is slow by design; time says nothing about an example.
settings.register_profile(
    "gramary", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
settings.load_profile("gramary")

LETTERS = "abcd"
#: Two, three and four bytes long in UTF-8.
WIDE = "é€😀"

EMPTY: Expr = "empty"


# ------------------------------------------------------------------------------------------------ building IR by hand


def lit(text: str | bytes) -> Expr:
    return {"bytes": text if isinstance(text, str) else list(text)}


def byte_class(*ranges: tuple[int, int] | str) -> Expr:
    return {"class": [[ord(r[0]), ord(r[-1])] if isinstance(r, str) else list(r) for r in ranges]}


def chars(*ranges: tuple[int, int]) -> Expr:
    return {"chars": [list(r) for r in ranges]}


def json_chars(*ranges: tuple[int, int], free: bool = True) -> Expr:
    return {"json_chars": {"ranges": [list(r) for r in ranges], "free": free}}


def seq(*parts: Expr) -> Expr:
    return {"seq": list(parts)}


def alt(*parts: Expr) -> Expr:
    return {"alt": list(parts)}


def repeat(body: Expr, low: int = 0, high: int | None = None) -> Expr:
    return {"repeat": {"body": body, "min": low, "max": high}}


def ref(rule: int) -> Expr:
    return {"rule": rule}


def text(rule: int, low: int = 0, high: int | None = None) -> Expr:
    """A JSON string with bounds on its length; ``rule`` must be the ``JSON_STRING`` rule."""
    return {"call": {"rule": rule, "args": [[low, high]]}}


def token(token_id: int) -> Expr:
    return {"token": token_id}


def both(*parts: Expr) -> Expr:
    return {"and": list(parts)}


def minus(yes: Expr, no: Expr) -> Expr:
    return {"sub": [yes, no]}


def grammar(*rules: Expr, root: int = 0) -> Json:
    """A grammar of expression rules; a rule may also be given as a whole body (``body(...)``)."""
    return {"rules": [{"name": f"r{i}", "body": as_body(rule)} for i, rule in enumerate(rules)], "root": root}


@dataclass(frozen=True)
class Body:
    json: Json


def as_body(rule: Expr) -> Json:
    return rule.json if isinstance(rule, Body) else {"expr": rule}


JSON_STRING = Body("json_string")

COMPACT: Json = {"pad": EMPTY, "comma": lit(","), "colon": lit(":")}
_SPACE = repeat(byte_class(" ", "\n"))
FLEXIBLE: Json = {"pad": _SPACE, "comma": seq(_SPACE, lit(","), _SPACE), "colon": seq(_SPACE, lit(":"), _SPACE)}


def obj(
    properties: Sequence[tuple[str, Expr | None, bool]],
    others: Sequence[tuple[Expr | None, Expr]] = (),
    order: str = "declared",
    low: int = 0,
    high: int | None = None,
    space: Json = COMPACT,
) -> Body:
    """An object; a property is (name, value, required)."""
    return Body(
        {
            "object": {
                "properties": [{"name": n, "value": v, "required": r} for n, v, r in properties],
                "others": [{"keys": k, "value": v} for k, v in others],
                "order": order,
                "min_properties": low,
                "max_properties": high,
                "space": space,
            }
        }
    )


def dispatch(
    triggers: Sequence[tuple[str, Expr]],
    stops: Sequence[str] = (),
    excludes: Sequence[str] = (),
    low: int = 0,
    high: int | None = None,
    stop_after_last: bool = False,
    open_end: bool = True,
) -> Body:
    return Body(
        {
            "dispatch": {
                "triggers": [list(t.encode()) for t, _ in triggers],
                "handlers": [h for _, h in triggers],
                "stops": [list(s.encode()) for s in stops],
                "excludes": [list(e.encode()) for e in excludes],
                "min_tags": low,
                "max_tags": high,
                "stop_after_last": stop_after_last,
                "open_end": open_end,
            }
        }
    )


# ------------------------------------------------------------------------------------------------ grammars


@st.composite
def bounds(draw: Draw, largest: int = 4) -> tuple[int, int | None]:
    low = draw(st.integers(0, largest))
    high = draw(st.one_of(st.none(), st.integers(low, largest)))
    return low, high


@st.composite
def terminals(draw: Draw) -> Expr:
    kind = draw(st.sampled_from(["bytes", "bytes", "class", "chars"]))
    if kind == "bytes":
        return lit(draw(st.text(st.sampled_from(LETTERS), min_size=1, max_size=3)))
    if kind == "class":
        return byte_class(*draw(st.sampled_from([("a-b",), ("a-c",), ("b-d",), ("a", "c"), ("a-d",)])))
    return draw(
        st.sampled_from(
            [chars((ord("a"), 0xE9)), chars((ord("b"), ord("d")), (0x20AC, 0x20AC)), chars((0x1F5FF, 0x1F601))]
        )
    )


@st.composite
def regular(draw: Draw, depth: int = 3, operators: bool = True) -> Expr:
    """An expression without references."""
    kinds = ["terminal"]
    if depth > 0:
        kinds += ["terminal", "seq", "seq", "alt", "alt", "repeat", "repeat", "empty"]
        kinds += ["and", "sub"] if operators else []
    kind = draw(st.sampled_from(kinds))
    inner = regular(depth - 1, operators)
    if kind == "terminal":
        return draw(terminals())
    if kind == "seq":
        return seq(*draw(st.lists(inner, min_size=1, max_size=3)))
    if kind == "alt":
        return alt(*draw(st.lists(inner, min_size=1, max_size=3)))
    if kind == "repeat":
        return repeat(draw(inner), *draw(bounds()))
    if kind == "and":
        return both(draw(inner), draw(inner))
    if kind == "sub":
        return minus(draw(inner), draw(inner))
    return EMPTY


@st.composite
def context_free(draw: Draw, rules: int, depth: int = 3) -> Expr:
    """An expression that may refer to any of the rules, or hold special tokens."""
    kinds = ["terminal", "ref", "ref", "ref", "ref", "token"]
    if depth > 0:
        kinds += ["seq"] * 6 + ["alt"] * 4 + ["repeat", "repeat", "regular", "regular", "empty"]
    kind = draw(st.sampled_from(kinds))
    if kind == "token":
        return token(draw(st.sampled_from(SPECIAL)))
    inner = context_free(rules, depth - 1)
    if kind == "terminal":
        return draw(terminals())
    if kind == "ref":
        return ref(draw(st.integers(0, rules - 1)))
    if kind == "seq":
        return seq(*draw(st.lists(inner, min_size=1, max_size=3)))
    if kind == "alt":
        return alt(*draw(st.lists(inner, min_size=1, max_size=3)))
    if kind == "repeat":
        return repeat(draw(inner), *draw(bounds(3)))
    if kind == "regular":
        return draw(regular(2))
    return EMPTY


@st.composite
def recursive_grammars(draw: Draw) -> Json:
    """Left, right, middle, cyclic, nullable and mutual recursion, as it comes."""
    count = draw(st.integers(1, 4))
    bodies = []
    for i in range(count):
        body = draw(context_free(count))
        # A way out that is not recursive, most of the time: otherwise most grammars match nothing.
        if draw(st.integers(0, 4)):
            body = alt(body, draw(terminals()))
        if draw(st.integers(0, 3)) == 0:
            shape = draw(st.sampled_from(["left", "right", "middle", "double", "cycle"]))
            self_ref = ref(i)
            body = {
                "left": alt(seq(self_ref, lit("a")), body),
                "right": alt(seq(lit("a"), self_ref), body),
                "middle": alt(seq(lit("a"), self_ref, lit("b")), body),
                "double": alt(seq(self_ref, self_ref), lit("a")),
                "cycle": alt(self_ref, body),
            }[shape]
        bodies.append(body)
    return grammar(*bodies)


@st.composite
def regular_grammars(draw: Draw) -> Json:
    """One rule without references: And, Sub and counted repeats in any nesting."""
    return grammar(draw(regular(4)))


@st.composite
def counting_grammars(draw: Draw) -> Json:
    """Counted repeats with larger bounds: next to each other, nested, and called from two places."""
    body = draw(st.sampled_from([byte_class("a-b"), chars((ord("a"), 0xE9)), lit("ab"), alt(lit("a"), lit("bc"))]))
    low = draw(st.integers(0, 12))
    high = draw(st.one_of(st.none(), st.integers(low, low + 12)))
    one = repeat(body, low, high)
    two = repeat(draw(terminals()), *draw(bounds(9)))
    shape = draw(st.sampled_from(["one", "two", "nested", "called", "and", "sub", "alt"]))
    if shape == "one":
        return grammar(seq(lit("c"), one, lit("d")))
    if shape == "two":
        return grammar(seq(one, lit("d"), two))
    if shape == "nested":
        return grammar(repeat(seq(one, lit("d")), *draw(bounds(3))))
    if shape == "called":
        return grammar(seq(ref(1), lit("d"), ref(1)), one)
    if shape == "and":
        return grammar(both(one, draw(regular(2, operators=False))))
    if shape == "sub":
        return grammar(minus(one, draw(regular(2, operators=False))))
    return grammar(alt(seq(one, lit("d")), seq(two, lit("c"))))


NAMES = ["a", "b", "ab", "c", "é", "a b", ""]


@st.composite
def object_grammars(draw: Draw) -> Json:
    names = draw(st.lists(st.sampled_from(NAMES), max_size=4, unique=True))
    value = st.sampled_from([lit("1"), lit("12"), alt(lit("t"), lit("tu")), text(1), text(1, 1, 2), ref(0)])
    properties = [(name, draw(st.one_of(value, value, value, st.none())), draw(st.booleans())) for name in names]
    properties = [(n, v, r and v is not None) for n, v, r in properties]
    keys: list[Expr | None] = [
        None,
        repeat(json_chars((ord("a"), ord("c"))), 1, None),
        repeat(json_chars((ord("a"), ord("b"))), 0, 2),
        json_chars((0xE9, 0xE9), free=False),
    ]
    others = [(draw(st.sampled_from(keys)), draw(value))] if draw(st.booleans()) else []
    low = draw(st.sampled_from([0, 0, 0, 1, 2, 3]))
    high = draw(st.sampled_from([None, None, None, low, low + 1, 4]))
    order = draw(st.sampled_from(["declared", "any"]))
    space = draw(st.sampled_from([COMPACT, FLEXIBLE]))
    return grammar(obj(properties, others, order, low, high, space), JSON_STRING)


@st.composite
def dispatch_grammars(draw: Draw) -> Json:
    patterns = st.text(st.sampled_from("abc"), min_size=1, max_size=4)
    triggers = draw(st.lists(patterns, min_size=1, max_size=3, unique=True))
    handler = st.sampled_from(
        [lit("x"), lit("aX"), seq(byte_class("a-c"), lit("y")), ref(1), repeat(lit("b"), 1, 3), lit("bcz")]
    )
    high = draw(st.sampled_from([None, None, 1, 2]))
    low = draw(st.sampled_from([0, 0, 1]))
    stops = draw(st.sampled_from([[], [], ["."], [".", "..."], ["e."]]))
    return grammar(
        dispatch(
            [(t, draw(handler)) for t in triggers],
            stops,
            draw(st.sampled_from([[], [], ["!"], ["e!"]])),
            low,
            high,
            draw(st.booleans()),
            draw(st.booleans()) or not stops,
        ),
        alt(lit("["), seq(lit("b"), ref(1), lit("]"))),
    )


grammars = st.one_of(
    recursive_grammars(), recursive_grammars(), regular_grammars(), counting_grammars(), object_grammars(),
    dispatch_grammars(),
)  # fmt: skip


# ------------------------------------------------------------------------------------------------ vocabularies


#: Ids of special tokens in every vocabulary of ``vocabularies``: two that grammars may use, and one to stop with.
SPECIAL = (0, 1)
STOP = 2


@dataclass(frozen=True)
class Tokens:
    """A vocabulary: bytes by id (``None``: unused). The first three ids are special."""

    bytes_of: list[bytes | None]

    @property
    def special(self) -> list[int]:
        return [*SPECIAL, STOP]

    @property
    def text(self) -> dict[int, bytes]:
        """Ids that stand for bytes, some of them for none."""
        return {i: b for i, b in enumerate(self.bytes_of) if b is not None and i > STOP}

    @staticmethod
    def of(texts: Sequence[bytes | None]) -> Tokens:
        return Tokens([b"<0>", b"a", b"</s>", *texts])


ALPHABET = sorted(set((LETTERS + WIDE + 'xyzX[]{}":,. 12t0u\\e!\n369').encode()))


@st.composite
def vocabularies(draw: Draw, words: bytes = bytes(ALPHABET)) -> Tokens:
    """Tokens that are prefixes of others, end inside characters, repeat, are empty, unused or special.

    ``words``: text that the tokens are cut from, besides random ones.
    """
    single = [bytes([b]) for b in ALPHABET]
    if draw(st.integers(0, 9)) == 0:
        return Tokens.of(draw(st.permutations(single)))
    random_text = st.text(st.sampled_from(LETTERS + WIDE), min_size=1, max_size=5).map(str.encode)
    last = max(len(words) - 1, 0)
    cut = st.builds(lambda i, n: words[i : i + n], st.integers(0, last), st.integers(1, 6))
    texts: list[bytes] = draw(st.lists(st.one_of(random_text, cut), min_size=1, max_size=25))
    texts += [t[: len(t) // 2 + 1] for t in texts if draw(st.integers(0, 3)) == 0]
    if draw(st.booleans()):
        texts += single
    if draw(st.booleans()):
        texts.append(draw(st.sampled_from(texts)))
    if draw(st.integers(0, 3)) == 0:
        texts.append(b"")
    if draw(st.booleans()):
        texts += [b"\xff", b'\xa9"']
    unused: list[bytes | None] = [None] if draw(st.integers(0, 3)) == 0 else []
    return Tokens.of(draw(st.permutations([*texts, *unused])))


# ------------------------------------------------------------------------------------------------ walks


def walk(reference: Reference, steps: int, rng: random.Random, alphabet: Sequence[int] = ALPHABET) -> list[State]:
    """States along a random path of the reference, the start included. Ends early where nothing may follow."""
    states = [reference.start]
    for _ in range(steps):
        ways = [s for s in map(states[-1].feed, alphabet) if s is not None]
        if not ways:
            break
        states.append(rng.choice(ways))
    return states


def sample(reference: Reference, rng: random.Random, longest: int = 40) -> bytes:
    """The beginning of a random word; often a whole one."""
    state, word = reference.start, bytearray()
    while len(word) < longest:
        ways = [(b, s) for b in ALPHABET if (s := state.feed(b)) is not None]
        if not ways or (state.complete and rng.random() < 0.2):
            break
        b, state = rng.choice(ways)
        word.append(b)
    return bytes(word)
