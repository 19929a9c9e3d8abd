"""Digests: equal for equal structure, whatever the names, order and company; different for different languages."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gramary.compiler.errors import CompileError
from gramary.runtime._core import CompiledGrammar, Compiler, Vocabulary

from . import strategies as ir
from .oracle import LIMITS
from .reference import Reference

VOCABULARY = Vocabulary.from_tokens([bytes([b]) for b in range(256)])


def compiled(grammar: Any) -> CompiledGrammar:
    """Each in a compiler of its own: what another grammar left in a cache must not matter."""
    try:
        return Compiler(VOCABULARY).compile_ir(json.dumps(grammar), limits=LIMITS)
    except CompileError:
        assume(False)
        raise


def digests(grammar: CompiledGrammar) -> set[str]:
    return {unit["digest"] for unit in grammar.units()}


def identity(grammar: CompiledGrammar) -> tuple[bytes, bool]:
    """A unit never matches the empty text, so whether a grammar does is kept beside the digest of its root."""
    return grammar.digest, grammar.matcher().is_complete()


def renumber(expr: Any, places: list[int]) -> Any:
    """The same JSON with every rule number replaced."""
    if isinstance(expr, list):
        return [renumber(e, places) for e in expr]
    if not isinstance(expr, dict):
        return expr
    return {k: places[v] if k == "rule" and isinstance(v, int) else renumber(v, places) for k, v in expr.items()}


def check_renumbered(grammar: Any, seed: int) -> None:
    """Rules in another order, renamed, and beside others that are not used."""
    rng = random.Random(seed)
    rules = grammar["rules"]
    extra = rng.randrange(3)
    places = list(range(len(rules) + extra))
    rng.shuffle(places)
    other: list[Any] = [None] * len(places)
    for i, rule in enumerate(rules):
        other[places[i]] = {"body": renumber(rule["body"], places), "name": f"renamed {i}"}
    for i in range(len(rules), len(places)):
        other[places[i]] = {"name": "unused", "body": {"expr": ir.seq(ir.lit("zz"), ir.ref(places[0]))}}
    one, two = compiled(grammar), compiled({"root": places[grammar["root"]], "rules": other})
    assert one.digest == two.digest
    assert digests(one) == digests(two)


@settings(max_examples=100)
@given(ir.grammars, st.integers(0, 2**32))
def test_names_order_and_unused_rules_do_not_matter(grammar: Any, seed: int) -> None:
    check_renumbered(grammar, seed)


@st.composite
def alike(draw: Any) -> Any:
    """Rules that all refer to each other, of which little tells which is which."""
    number = draw(st.integers(2, 4))
    around = st.tuples(st.sampled_from(["", "u", "v"]), st.sampled_from(["x", "y"]))
    bodies = []
    for _ in range(number):
        ways = [
            ir.seq(ir.lit(before), ir.ref(i), ir.lit(after)) for i in range(number) for before, after in [draw(around)]
        ]
        if draw(st.booleans()):
            # Nothing but what it leads to tells one reference from another.
            ways = [ir.seq(ir.lit("u"), ir.ref(i), ir.ref(draw(st.integers(0, number - 1)))) for i in range(number)]
        bodies.append({"alt": [*ways, ir.lit("a")]})
    return ir.grammar(*bodies)


@settings(max_examples=300)
@given(alike(), st.integers(0, 2**32))
def test_rules_that_are_alike_may_come_in_any_order(grammar: Any, seed: int) -> None:
    check_renumbered(grammar, seed)


def reshape(expr: Any, rng: random.Random) -> Any:
    """Another way to write the same language."""
    if not isinstance(expr, dict):
        return {"seq": []} if expr == "empty" and rng.random() < 0.5 else expr
    ((kind, value),) = expr.items()
    if kind in ("seq", "alt", "and"):
        value = [reshape(e, rng) for e in value]
        if kind != "seq":
            rng.shuffle(value)
        if kind != "and" and len(value) > 1 and rng.random() < 0.5:
            cut = rng.randrange(1, len(value))
            value = [{kind: value[:cut]}, {kind: value[cut:]}]
        if kind != "seq" and value and rng.random() < 0.3:
            value.append(value[0])
        return {kind: value}
    if kind == "sub":
        return {kind: [reshape(e, rng) for e in value]}
    if kind == "repeat":
        return {kind: {**value, "body": reshape(value["body"], rng)}}
    if kind == "bytes" and isinstance(value, str) and len(value) > 1:
        return {"seq": [{"bytes": c} for c in value]}
    return expr


@settings(max_examples=100)
@given(ir.recursive_grammars(), st.integers(0, 2**32))
def test_spelling_does_not_matter(grammar: Any, seed: int) -> None:
    rng = random.Random(seed)
    bodies = [reshape(rule["body"]["expr"], rng) for rule in grammar["rules"]]
    assert compiled(grammar).digest == compiled(ir.grammar(*bodies)).digest


def words(grammar: Any, longest: int = 3) -> set[bytes]:
    reference = Reference(grammar)
    texts = (bytes(w) for n in range(longest + 1) for w in itertools.product(b"abcd", repeat=n))
    return {w for w in texts if reference.accepts(w)}


small = st.one_of(ir.regular(2), ir.regular(1))


@settings(max_examples=200)
@given(small, small)
def test_different_languages_have_different_digests(one: Any, two: Any) -> None:
    first, second = ir.grammar(one), ir.grammar(two)
    if identity(compiled(first)) == identity(compiled(second)):
        assert words(first) == words(second)


@settings(max_examples=60)
@given(ir.recursive_grammars(), st.integers(0, 3), st.sampled_from([ir.lit("ab"), ir.lit("d"), ir.EMPTY, ir.ref(0)]))
def test_a_change_of_language_changes_the_digest(grammar: Any, place: int, addition: Any) -> None:
    rules = [rule["body"]["expr"] for rule in grammar["rules"]]
    place %= len(rules)
    changed = ir.grammar(*rules[:place], ir.alt(rules[place], addition), *rules[place + 1 :])
    if identity(compiled(grammar)) == identity(compiled(changed)):
        assert words(grammar) == words(changed)


def test_isomorphic_components_are_one() -> None:
    """Two rings of rules that differ in names and length of the way round, and mean the same."""
    ring = ir.grammar(
        ir.seq(ir.ref(1), ir.lit("-"), ir.ref(3)),
        ir.alt(ir.lit("x"), ir.seq(ir.lit("("), ir.ref(2), ir.lit(")"))),
        ir.alt(ir.lit("y"), ir.seq(ir.lit("["), ir.ref(1), ir.lit("]"))),
        ir.alt(ir.lit("x"), ir.seq(ir.lit("("), ir.ref(4), ir.lit(")"))),
        ir.alt(ir.lit("y"), ir.seq(ir.lit("["), ir.ref(3), ir.lit("]"))),
    )
    assert len(digests(compiled(ring))) == 3
    longer = ir.grammar(
        ir.seq(ir.ref(1), ir.lit("-"), ir.ref(1)),
        ir.alt(ir.lit("x"), ir.seq(ir.lit("("), ir.ref(2), ir.lit(")"))),
        ir.alt(ir.lit("y"), ir.seq(ir.lit("["), ir.ref(1), ir.lit("]"))),
    )
    assert compiled(ring).digest == compiled(longer).digest
    different = ir.grammar(
        ir.seq(ir.ref(1), ir.lit("-"), ir.ref(1)),
        ir.alt(ir.lit("x"), ir.seq(ir.lit("("), ir.ref(2), ir.lit(")"))),
        ir.alt(ir.lit("y"), ir.seq(ir.lit("["), ir.ref(2), ir.lit("]"))),
    )
    assert compiled(different).digest != compiled(longer).digest
