"""What masks allow is valid, and what is valid is accepted: outputs at random, and mutants of them.

Schemas are some of the bundled catalogue and hand-made ones. `tests/benchmarks/random_outputs.py` does the same at
length, with a real tokenizer.
"""

from __future__ import annotations

import gzip
import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gramary.compiler import Compiler, Vocabulary

from .mutants import plain
from .outputs import Walker

CATALOGUE = Path(__file__).parent / "data" / "tools.jsonl.gz"
#: One for each way of being constrained of which real tools make little use.
HAND_MADE: list[Any] = [
    {"type": "string", "pattern": "^[a-z]+(-[a-z]+)*$", "minLength": 3, "maxLength": 70},
    {"type": "string", "pattern": "\\s\\w$", "not": {"pattern": "^\\d"}},
    {"type": "array", "items": {"type": "string", "maxLength": 2}, "uniqueItems": True, "minItems": 3},
    {"type": "array", "contains": {"const": 7}, "maxContains": 2, "items": {"type": "integer"}, "maxItems": 6},
    {"type": "number", "multipleOf": 0.05, "minimum": -2, "exclusiveMaximum": 12345678901234567890},
    {"type": "object", "patternProperties": {"^x": {"type": "integer"}, "y$": {"minimum": 5}}, "minProperties": 2},
    {"type": "object", "propertyNames": {"maxLength": 3}, "additionalProperties": {"type": "boolean"}},
    {"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {"a": {"const": 1}, "b": {"enum": [2, "c"]}}},
    {"type": "object", "required": ["a"], "if": {"properties": {"a": {"const": "é"}}}, "then": {"required": ["b"]}},
    {"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2}}},
    {"type": "string", "format": "date-time"},
    {"type": "string", "format": "regex"},
    {"type": ["string", "null"], "format": "ipv4", "not": {"const": "10.0.0.1"}},
    {"$schema": "http://json-schema.org/draft-04/schema#", "type": "number", "minimum": 3, "exclusiveMinimum": True},
]


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    """With tokens for the words of the catalogue, and many that go across what JSON writes between them."""
    text = gzip.decompress(CATALOGUE.read_bytes()).decode()
    words = Counter(re.findall(r" ?[A-Za-z_]+|\d{1,3}|[^\w\s]{2,4}|\W{2}", text))
    tokens = [bytes([byte]) for byte in range(256)] + [word.encode() for word, _ in words.most_common(3000)]
    tokens = [*dict.fromkeys(tokens), b"</s>"]
    stop = len(tokens) - 1
    return Compiler(Vocabulary.from_tokens(tokens, special=[stop]), stop_token_ids=[stop])


def catalogue(number: int) -> list[Any]:
    with gzip.open(CATALOGUE, "rt", encoding="utf-8") as lines:
        schemas = [json.loads(line)["parameters"] for line in lines]
    return random.Random(11).sample(schemas, number)


@pytest.mark.parametrize("order", ["any", "declared"])
@pytest.mark.parametrize("schemas", [catalogue(20), HAND_MADE], ids=["catalogue", "hand-made"])
def test_outputs_at_random_are_valid(compiler: Compiler, schemas: list[Any], order: str) -> None:
    walker = Walker(compiler, 11)
    ended = 0
    for schema in schemas:
        grammar = compiler.compile_json_schema(json.dumps(schema), property_order=order)
        for output in walker.outputs(grammar, schema, 5):
            assert not output.wrong, (schema, output)
            ended += output.ended
    assert ended > 4 * len(schemas), "outputs come to their end"


@pytest.mark.parametrize("schemas", [catalogue(40), HAND_MADE], ids=["catalogue", "hand-made"])
def test_mutants_of_outputs_are_accepted_if_they_are_valid(compiler: Compiler, schemas: list[Any]) -> None:
    walker = Walker(compiler, 12)
    seen: Counter[bool] = Counter()
    for schema in schemas:
        grammar = compiler.compile_json_schema(json.dumps(schema), property_order="any")
        values = [plain(output.text) for output in walker.outputs(grammar, schema, 3) if output.ended]
        for text, valid, accepted in walker.mutants(grammar, schema, values, 60):
            assert accepted == valid, (schema, text)
            seen[valid] += 1
    assert min(seen[True], seen[False]) > 5 * len(schemas), "there are enough of both kinds"
