"""The error classes: attributes, JSON form, pickling, and that they are documented."""

import inspect
import pickle
from pathlib import Path

import pytest

from gramary.compiler import errors

CLASSES = [
    cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, errors.GramaryError) and not cls.__name__.startswith("_")
]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_attributes_survive_pickling(cls: type[errors.GramaryError]) -> None:
    attributes = {name: f"a {name}" for name in cls._attributes if name != "cause"}
    error = pickle.loads(pickle.dumps(cls("what happened", **attributes)))
    assert type(error) is cls
    assert str(error) == error.message == "what happened"
    assert attributes.items() <= error.as_dict().items()


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_attribute_has_a_default_and_no_other_is_taken(cls: type[errors.GramaryError]) -> None:
    assert cls("x").as_dict().keys() == {"type", "message", *cls._attributes}
    with pytest.raises(TypeError, match="no attribute 'colour'"):
        cls("x", colour="red")


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_class_is_documented(cls: type[errors.GramaryError]) -> None:
    text = Path(__file__).parents[2].joinpath("docs/errors.md").read_text()
    assert f"`{cls.__name__}`" in text
    for name in cls._attributes:
        assert f"`{name}`" in text


def test_the_cause_of_a_tool_error_is_kept() -> None:
    cause = errors.UnsupportedSchema("no", pointer="/properties/a", keyword="not")
    error = pickle.loads(pickle.dumps(errors.ToolError("tool 3", index=3, name="t", cause=cause)))
    assert isinstance(error.__cause__, errors.UnsupportedSchema)
    assert error.as_dict()["cause"]["keyword"] == "not"


def test_line_and_column_are_read_from_the_message() -> None:
    error = errors.InvalidSchema("expected value at line 3 column 14 (at the top level)")
    assert (error.line, error.column) == (3, 14)


def test_every_compile_error_can_be_caught_as_one() -> None:
    for cls in (errors.ToolError, errors.Cancelled, errors.LimitExceeded, errors.InvalidPattern):
        assert issubclass(cls, errors.CompileError)
