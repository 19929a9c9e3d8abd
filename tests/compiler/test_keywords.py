"""Each row of the table in docs/json-schema.md holds, in both property orders, and the page shows the rows."""

import json
from decimal import Decimal
from typing import Any

import jsonschema
import pytest

from gramary.compiler import Compiler, UnsupportedSchema
from tests.keywords import PAGE, ROWS, Row, page


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.keyword)
@pytest.mark.parametrize("order", ["declared", "any"])
def test_row(byte_compiler: Compiler, row: Row, order: str) -> None:
    grammar = byte_compiler.compile_json_schema(row.schema, property_order=order)
    for text, expected in [*((text, True) for text in row.accepts), *((text, False) for text in row.rejects)]:
        matcher = grammar.matcher()
        assert (matcher.accept_bytes(text) and matcher.is_complete()) is expected, text


def exactly(text: str) -> Any:
    """JSON as the specification sees it: decimals exact, 1.0 an integer."""

    def number(literal: str) -> int | Decimal:
        value = Decimal(literal)
        return int(value) if value == value.to_integral_value() else value

    return json.loads(text, parse_float=number)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.keyword)
def test_the_jsonschema_package_agrees(row: Row) -> None:
    schema = exactly(json.dumps(row.schema))
    dialect = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    validator = dialect(schema, format_checker=dialect.FORMAT_CHECKER)
    assert all(validator.is_valid(exactly(text)) for text in row.accepts)
    repeated = '"b": 1, "b": 2'  # a property that comes twice is lost in parsing; we refuse it whatever the schema
    assert not any(validator.is_valid(exactly(text)) for text in row.rejects if repeated not in text)


@pytest.mark.parametrize("row", [row for row in ROWS if row.refuses], ids=lambda row: row.keyword)
def test_refusals_name_the_keyword_and_lenient_warns(byte_compiler: Compiler, row: Row) -> None:
    for schema in row.refuses:
        with pytest.raises(UnsupportedSchema) as caught:
            byte_compiler.compile_json_schema(schema)
        assert caught.value.keyword
        assert caught.value.remedy
        if "$ref" not in schema:
            assert byte_compiler.compile_json_schema(schema, lenient=True).warnings


def test_the_page_shows_the_rows() -> None:
    assert PAGE.read_text() == page(), "run python tests/keywords.py"
