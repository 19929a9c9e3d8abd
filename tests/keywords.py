"""The table of JSON Schema keywords in docs/json-schema.md: each row is a case that the tests run.

python tests/keywords.py      # write the table into the page
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "json-schema.md"
START, END = "<!-- table: made by tests/keywords.py -->\n", "<!-- end of table -->\n"


@dataclass(frozen=True)
class Row:
    """A keyword, what is done about it, and a schema with texts that show it."""

    keyword: str
    note: str
    schema: dict[str, Any] | bool
    accepts: tuple[str, ...]
    rejects: tuple[str, ...]
    refuses: tuple[dict[str, Any], ...] = field(default=())


def _on(draft: str, schema: dict[str, Any]) -> dict[str, Any]:
    uris = {"4": "http://json-schema.org/draft-04/schema#", "7": "http://json-schema.org/draft-07/schema#"}
    return {"$schema": uris.get(draft, f"https://json-schema.org/draft/{draft}/schema"), **schema}


_NAMED = {"a": {"type": "integer"}, "b": {"type": "integer"}}
_CLOSED = {"type": "object", "properties": _NAMED, "additionalProperties": False}

ROWS = [
    Row("type", "one or a list", {"type": ["integer", "null"]}, ("7", "null", "1.0"), ("1.5", '"7"', "true")),
    Row(
        "enum",
        "any JSON values; see Text for the spellings",
        {"enum": ["a", 1, None]},
        ('"a"', "1", "null"),
        ('"b"', "2"),
    ),
    Row("const", "any JSON value", {"const": [1, {"k": "v"}]}, ('[1, {"k": "v"}]',), ("[1]", '[1, {"k": "w"}]')),
    Row(
        "properties, required",
        "in the order declared, or in any",
        {"type": "object", "properties": _NAMED, "required": ["b"]},
        ('{"a": 1, "b": 2}', '{"b": 2}', '{"b": 2, "c": "x"}'),
        ("{}", '{"a": 1}', '{"a": "x", "b": 2}', '{"b": 1, "b": 2}'),
    ),
    Row(
        "additionalProperties",
        "a declared name is never an additional one, however it is escaped",
        {"type": "object", "properties": _NAMED, "additionalProperties": {"type": "string"}},
        ('{"a": 1, "c": "x"}', '{"c": "x"}'),
        ('{"c": 1}', '{"\\u0061": "x"}'),
    ),
    Row(
        "patternProperties",
        "overlapping patterns apply together",
        {
            "type": "object",
            "patternProperties": {"^x": {"type": "integer"}, "y$": {"minimum": 5}},
            "additionalProperties": False,
        },
        ('{"x1": 1}', '{"xy": 6}'),
        ('{"xy": 1}', '{"z": 1}', '{"x": "1"}'),
    ),
    Row(
        "propertyNames",
        "",
        {"type": "object", "propertyNames": {"pattern": "^[a-z]+$", "maxLength": 3}},
        ('{"abc": 1}', "{}"),
        ('{"abcd": 1}', '{"A": 1}'),
    ),
    Row(
        "minProperties, maxProperties",
        "a name counts once, undeclared ones included",
        {**_CLOSED, "minProperties": 1, "maxProperties": 1},
        ('{"a": 1}', '{"b": 1}'),
        ("{}", '{"a": 1, "b": 2}'),
        (
            {
                "properties": {"c": True},
                "patternProperties": {"^[a-z]{2}$": True},
                "additionalProperties": False,
                "minProperties": 2,
            },
        ),
    ),
    Row(
        "dependentRequired",
        "and `dependencies` with lists",
        {**_CLOSED, "dependentRequired": {"a": ["b"]}},
        ('{"a": 1, "b": 2}', '{"b": 2}', "{}"),
        ('{"a": 1}',),
    ),
    Row(
        "dependentSchemas",
        "and `dependencies` with schemas",
        {**_CLOSED, "dependentSchemas": {"a": {"properties": {"b": {"minimum": 5}}}}},
        ('{"a": 1, "b": 5}', '{"b": 2}'),
        ('{"a": 1, "b": 2}',),
    ),
    Row(
        "unevaluatedProperties",
        "",
        {
            "type": "object",
            "allOf": [{"properties": {"a": {"type": "integer"}}}],
            "properties": {"b": {"type": "integer"}},
            "unevaluatedProperties": False,
        },
        ('{"b": 1}', "{}"),
        ('{"c": 1}', '{"b": "x"}'),
    ),
    Row(
        "items, prefixItems",
        "and `items` with a list, `additionalItems`, in the drafts that have them",
        {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}},
        ("[]", '["a"]', '["a", 1, 2]'),
        ("[1]", '["a", "b"]'),
    ),
    Row(
        "minItems, maxItems",
        "a counter",
        {"type": "array", "minItems": 1, "maxItems": 2},
        ("[1]", "[1, 2]"),
        ("[]", "[1, 2, 3]"),
    ),
    Row(
        "contains",
        "with `minContains`, `maxContains`",
        {"type": "array", "items": {"enum": [1, 2]}, "contains": {"const": 2}},
        ("[2]", "[1, 2, 1]"),
        ("[]", "[1, 1]"),
    ),
    Row(
        "uniqueItems",
        "values are compared as JSON Schema does; refused beside `contains`, and where what is left cannot be counted",
        {"type": "array", "items": {"type": ["string", "number", "object"]}, "uniqueItems": True},
        ("[]", '["a", 1, "1"]', '[{"a": 1}, {"a": 2}]'),
        ('["a", "\\u0061"]', "[10, 1e1]", '[{"a": 1, "b": 2}, {"b": 2.0, "a": 1}]'),
        (
            {"type": "array", "contains": {"type": "number"}, "uniqueItems": True},
            {"items": {"type": ["string", "object"], "pattern": "^[ab]$"}, "uniqueItems": True},
        ),
    ),
    Row(
        "unevaluatedItems",
        "",
        {"type": "array", "prefixItems": [{"type": "string"}], "unevaluatedItems": False},
        ("[]", '["a"]'),
        ('["a", 1]',),
    ),
    Row(
        "minLength, maxLength",
        "code points, however escaped; a counter",
        {"type": "string", "minLength": 2, "maxLength": 3},
        ('"ab"', '"\\n\\u00e4\\""', '"äöü"'),
        ('"a"', '"abcd"'),
    ),
    Row(
        "pattern",
        "ECMA-262, found anywhere; with lengths and `format` by intersection",
        {"type": "string", "pattern": "^[a-z]+$", "maxLength": 3},
        ('"abc"', '"a"'),
        ('"abcd"', '"ab1"', '""'),
        ({"type": "string", "pattern": "^(a|b)\\1$"},),
    ),
    Row(
        "format",
        "all of 2020-12 and OpenAPI's common ones (`regex`: see Text); unknown ones are annotations",
        {"type": "string", "format": "date"},
        ('"2024-02-29"',),
        ('"2024-13-01"', '"today"'),
    ),
    Row(
        "minimum, maximum",
        "exact, also for decimals and beyond 64 bits",
        {"type": "integer", "minimum": -3, "maximum": 12},
        ("-3", "0", "12"),
        ("-4", "13", "1.5"),
    ),
    Row(
        "exclusiveMinimum, exclusiveMaximum",
        "numbers, and draft 4's booleans",
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        ("0.5", "0.01"),
        ("0", "1", "-1"),
    ),
    Row("multipleOf", "integers and decimals", {"type": "number", "multipleOf": 0.01}, ("0.07", "3"), ("0.075",)),
    Row("allOf", "intersection", {"allOf": [{"type": "integer"}, {"minimum": 3}]}, ("3",), ("2", '"x"')),
    Row(
        "anyOf",
        "union, together with its siblings",
        {**_CLOSED, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        ('{"a": 1}', '{"b": 1}', '{"a": 1, "b": 1}'),
        ("{}", '{"a": "x"}'),
    ),
    Row(
        "oneOf",
        "where alternatives can be told apart",
        {"oneOf": [{"type": "string"}, {"type": "integer", "minimum": 3}]},
        ('"a"', "3"),
        ("2", "null"),
        (
            {
                "oneOf": [
                    {"items": {"type": "string"}, "uniqueItems": True},
                    {"items": {"type": "string", "minLength": 1}, "uniqueItems": True},
                ]
            },
        ),
    ),
    Row(
        "not",
        "whatever is regular",
        {"not": {"anyOf": [{"enum": ["a", {"k": 1}]}, {"propertyNames": {"maxLength": 2}}]}},
        ('{"abc": 1}', '{"k": 1, "abc": 2}'),
        ('"a"', '{"k": 1}', '{"k": 2, "ab": 1}', "{}"),
        ({"not": {"uniqueItems": True}},),
    ),
    Row(
        "if, then, else",
        "whatever is regular",
        {"type": "integer", "if": {"minimum": 10}, "then": {"multipleOf": 10}, "else": {"minimum": 5}},
        ("7", "20"),
        ("4", "15"),
    ),
    Row(
        "$ref, $defs",
        "anywhere in the document; recursion; siblings apply from 2019-09 on",
        {"$ref": "#/$defs/s", "maxLength": 2, "$defs": {"s": {"type": "string"}}},
        ('"ab"',),
        ('"abc"', "1"),
    ),
    Row(
        "$id, $anchor",
        "other documents are never fetched",
        {"$ref": "#here", "$defs": {"x": {"$anchor": "here", "type": "null"}}},
        ("null",),
        ("1",),
        ({"$ref": "https://example.com/other.json"},),
    ),
    Row(
        "$dynamicRef, $dynamicAnchor",
        "and `$recursiveRef` of 2019-09",
        {
            "$dynamicAnchor": "node",
            "type": "object",
            "properties": {"next": {"$dynamicRef": "#node"}},
            "additionalProperties": False,
        },
        ("{}", '{"next": {"next": {}}}'),
        ('{"next": 1}',),
    ),
    Row(
        "$ref in drafts 4 to 7",
        "its siblings are ignored, with a note, as those drafts say",
        _on("7", {"$ref": "#/definitions/s", "maxLength": 2, "definitions": {"s": {"type": "string"}}}),
        ('"abc"',),
        ("1",),
    ),
    Row("true, false", "as schemas anywhere", {"type": "array", "items": False}, ("[]",), ("[1]",)),
]


def table() -> str:
    """The table as Markdown."""
    lines = ["| keyword | how | accepts | does not accept | refused by name |", "|---|---|---|---|---|"]
    for row in ROWS:
        refused = tuple(json.dumps(schema) for schema in row.refuses)
        keywords = _code(tuple(row.keyword.split(", ")))
        cells = [keywords, row.note, _code(row.accepts), _code(row.rejects), _code(refused)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _code(texts: tuple[str, ...]) -> str:
    return " ".join(f"`{text}`".replace("|", "\\|") for text in texts)


def page() -> str:
    """The page with the table as it should be."""
    text = PAGE.read_text()
    before, after = text.split(START)[0], text.split(END)[1]
    return before + START + table() + END + after


if __name__ == "__main__":
    PAGE.write_text(page())
