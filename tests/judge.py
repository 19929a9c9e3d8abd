"""The judge of JSON Schema: the `jsonschema` package, without its ways of being a Python program.

As it comes it is not the judge of what follows; all of it is settled here.

* Floats: texts and schemas are to be parsed with `Decimal` (see `exactly`), or 0.07 is no multiple of 0.01.
* `1.0` is an integer (from draft 6 on, and for us in draft 4), which the package only knows of `float`.
* Patterns are ECMA-262's, searched in Unicode mode by `regress`: `^a$` does not match `"a\\n"`, `\\d` and `\\w` are
  ASCII, `\\s` has the byte order mark, `\\p{L}` are letters. Patterns that only browsers take (`[\\w-.]`, `\\_`) are
  read as those read them.
* Formats are asserted where asked for (`judge_of`); most need `jsonschema[format-nongpl]`.
"""

from __future__ import annotations

import functools
import json
import re
from decimal import Decimal, InvalidOperation, getcontext
from types import SimpleNamespace
from typing import Any

import jsonschema
import regress
from jsonschema import _keywords, _legacy_keywords, _utils

# Remainders of long integers must not exhaust the precision that Decimal has by default.
getcontext().prec = 10_000
MOST_EXPONENT = 900_000


@functools.cache
def ecma(pattern: str) -> regress.Regex:
    """A pattern, compiled; raises `regress.RegressError`."""
    try:
        return regress.Regex(pattern, "u")
    except regress.RegressError:
        return regress.Regex(pattern)


def search(pattern: str, text: str) -> regress.Match | None:
    """A first match, as `re.search` would find it."""
    return ecma(pattern).find(text)


# Everything in these modules that names `re` searches for the pattern of a schema.
for module in (_keywords, _legacy_keywords, _utils):
    assert module.re is re
    module.re = SimpleNamespace(search=search)


def is_integer(_: Any, value: Any) -> bool:
    """Whether a value parsed by `exactly` is an integer."""
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, Decimal) and value == value.to_integral_value())


def validator(draft: Any) -> Any:
    """The validator class of a draft, as the judge has it. Formats are asserted only if a `format_checker` is given."""
    return jsonschema.validators.extend(draft, type_checker=draft.TYPE_CHECKER.redefine("integer", is_integer))


Judge = validator(jsonschema.Draft202012Validator)


def number(text: str) -> Decimal:
    """A number in full, but for exponents that `Decimal` has no room for."""
    try:
        return Decimal(text)
    except InvalidOperation:
        digits, exponent = text.lower().split("e")
        return Decimal(digits).scaleb(-MOST_EXPONENT if exponent.startswith("-") else MOST_EXPONENT)


def parsed(text: str | bytes | bytearray) -> Any:
    """The value that a text spells, without binary fractions."""
    return json.loads(text, parse_float=number)


def exactly(value: Any) -> Any:
    """The value as its JSON text says."""
    return parsed(json.dumps(value))


def judge_of(schema: Any) -> Any:
    """The judge of one schema, by the draft that it names; formats are asserted as far as the package knows them."""
    exact = exactly(schema)
    draft = jsonschema.validators.validator_for(exact, default=jsonschema.Draft202012Validator)
    formats = jsonschema.FormatChecker(())
    formats.checkers = dict(draft.FORMAT_CHECKER.checkers)
    formats.checkers["regex"] = (
        lambda value: not isinstance(value, str) or ecma(value) is not None,
        regress.RegressError,
    )
    return validator(draft)(exact, format_checker=formats)
