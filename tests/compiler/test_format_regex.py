"""`"format": "regex"`: what the grammar takes is a pattern to an ECMA-262 engine in Unicode mode."""

from __future__ import annotations

import json
import random
import re

import pytest
import regress

from gramary.compiler import Compiler, Vocabulary
from gramary.runtime import CompiledGrammar

from ..oracle import brute_force, mask

ALONE = {"type": "string", "format": "regex"}
#: With other constraints it is an automaton: groups two deep, and no names.
FORMS = {"alone": ALONE, "with a length": {**ALONE, "maxLength": 60}, "with a pattern": {**ALONE, "pattern": "^"}}
PIECES = r"""
    a b c ab a1 1 é $ _ , . ^ \b \d | * +? {2} {3,1} [a-z] [^] [b-a] [ ] { } \u0061 \ ? = !
    ( ) ( ) (?: (?= (?! (?<= (?<! (?< (?<a> (?<b> (?<c>x) < > \k \k \k<a> \k<b> \k<
"""
#: What goes across the units of the grammar, as it is written in JSON.
RUNS = r')(?< (?<a (?<b> x)( >x) )\\k<a> k< )) (( "( )" \\d{2})-(?<m'
TOKENS = [*(bytes([byte]) for byte in range(256)), *RUNS.encode().split()]


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return Compiler(Vocabulary.from_tokens([*TOKENS, b"</s>"], special=[len(TOKENS)]), stop_token_ids=[len(TOKENS)])


def takes(grammar: CompiledGrammar, pattern: str) -> bool:
    matcher = grammar.matcher()
    return bool(matcher.accept_bytes(json.dumps(pattern))) and matcher.is_complete()


def is_valid(pattern: str) -> bool:
    """To the engine; names that are declared twice, if only in other alternatives, are not valid before ES2025."""
    names = re.findall(r"\(\?<([^=!>][^>]*)>", re.sub(r"\\.|\[(?:\\.|[^\]])*\]", "x", pattern))
    try:
        regress.Regex(pattern, "u")
    except regress.RegressError:
        return False
    return len(set(names)) == len(names)


@pytest.mark.parametrize("form", FORMS)
def test_what_is_taken_is_a_pattern(compiler: Compiler, form: str) -> None:
    """Whatever is put together from the pieces of patterns."""
    grammar, pieces = compiler.compile_json_schema(FORMS[form]), PIECES.split()
    rng, taken, named = random.Random(5), 0, 0
    for _ in range(60_000):
        pattern = "".join(rng.choice(pieces) for _ in range(rng.randint(1, 8)))
        if takes(grammar, pattern):
            assert is_valid(pattern), pattern
            taken += 1
            named += bool(re.search(r"\(\?<\w", pattern))
    assert taken > 2000
    assert (named > 100) == (form == "alone"), named


def test_masks_of_patterns(compiler: Compiler) -> None:
    """Along walks they are those of brute force, every state can be completed, and what ends is a pattern."""
    grammar, rng, ends = compiler.compile_json_schema(ALONE), random.Random(5), 0
    stop = len(TOKENS)
    for _ in range(40):
        matcher, text = grammar.matcher(), b""
        for step in range(60):
            allowed = mask(matcher, stop + 1)
            if step % 5 == 0:
                assert allowed == brute_force(matcher, range(stop + 1)), text
            assert allowed, text
            # Tokens of structure rather than letters; once the text is long, what closes it.
            favoured = [t for t in allowed - {stop} if t >= 256 or TOKENS[t] in b'"()<>\\kab|']
            closing = [t for t in favoured if TOKENS[t] in (b'"', b")", b">", b"a")] if step > 25 else []
            token = rng.choice(closing or favoured or sorted(allowed - {stop}) or [stop])
            if token == stop:
                break
            assert matcher.accept_token(token)
            text += TOKENS[token]
        if matcher.is_complete():
            ends += 1
            assert is_valid(json.loads(text)), text
    assert ends > 20


def test_names_that_models_write(compiler: Compiler) -> None:
    grammar = compiler.compile_json_schema(ALONE)
    for pattern in [
        r"^(?<year>\d{4})-(?<month>\d{2})$",
        r"^(?<year>\d{4})-(?<month>0[1-9]|1[0-2])-(?<day>\d{2})$",
        r"(?<hour>\d\d):(?<minute>\d\d)(?::(?:\d\d))?",
        r"^(?<key>[^=]+)=(?<value>.*)$",
        r"(?<q>[\x22'])(?:(?!x)[^'])*\k<q>",
        "(" * 50 + "a" + ")" * 50,
    ]:
        assert takes(grammar, pattern), pattern
        assert is_valid(pattern), pattern
