"""Patterns beside bounds on the length that are too large for a state each: no text runs into a dead end."""

from __future__ import annotations

import json
import random
import re

import pytest

from gramary.compiler.errors import UnsatisfiableSchema

from .oracle import brute_force, mask
from .test_oracle_json import COMPILER, STOP, TOKENS

#: Patterns (which Python reads alike) that want something at the end, at a distance, or in pairs.
PATTERNS = [
    "[aA][12].*[zZ]",
    "^[a-z0-9]+(?:-[a-z0-9]+)*$",
    "^(?:[0-9a-f]{2})*$",
    "^(?:[A-Za-z0-9+/]{4})*={0,2}$",
    "^abc|[a-z]+$",
    "^(?:a|[^a].*end)$",
    "^(?:\\S+\\s+){0,99}\\S+$",
    '^(?:"[^"]*"|[^"])*$',
    "^(?:.{1,30}\\.){1,9}[a-z]+$",
    "^x{0,3}$|^(?:ab)*$",
]
#: Least and greatest lengths. What comes in pairs or fours has no 451 characters.
LENGTHS = [(0, 450), (10, 450), (200, 450), (451, 451), (400, None), (100_000, 100_003)]


@pytest.mark.parametrize(("least", "most"), LENGTHS)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_no_dead_end_at_either_bound(pattern: str, least: int, most: int | None) -> None:
    rng = random.Random(f"{pattern} {least} {most}")
    schema = {"type": "string", "pattern": pattern, "minLength": least}
    if most is not None:
        schema["maxLength"] = most
    try:
        grammar = COMPILER.compile_json_schema(schema)
    except UnsatisfiableSchema:
        assert most == 451
        return
    matcher, text = grammar.matcher(), bytearray()
    # Ending as soon as possible shows dead ends before the least length, going on those before the greatest.
    for eager in (True, False):
        matcher.reset()
        text.clear()
        for step in range(1000):
            allowed = mask(matcher, len(TOKENS))
            assert allowed, bytes(text)
            if step % 97 == 0:
                assert allowed == brute_force(matcher, range(len(TOKENS)))
            if STOP in allowed:
                break
            ways = [t for t in sorted(allowed) if len(TOKENS[t]) == 1 and 0x20 < TOKENS[t][0] < 0x7F]
            ending = [t for t in ways if TOKENS[t] == b'"']
            going = [t for t in ways if t not in ending] or sorted(allowed - set(ending))
            token = ending[0] if ending and (eager or not going) else rng.choice(going)
            assert matcher.accept_token(token)
            text += TOKENS[token]
        if STOP in allowed:
            value = json.loads(bytes(text))
            assert re.search(pattern, value)
            assert least <= len(value) <= (most or len(value))
        else:
            assert most is None or most > 900
