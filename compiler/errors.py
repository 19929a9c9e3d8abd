"""Every error that Gramary raises on purpose.

    GramaryError
      CompileError            compiling a source failed; `pointer` says where
        InvalidSchema         not JSON, or not a JSON Schema
        InvalidPattern        not a regular expression
        InvalidGrammar        not an EBNF grammar, a choice or a structural tag
        UnsupportedSchema     well-formed, but not enforceable: `keyword`, `reason`, `remedy`
        UnsatisfiableSchema   nothing can match: `reason`
        LimitExceeded         the work hit a bound of `Limits`: `limit`, `value`
        Cancelled             the caller withdrew the request
        ToolError             one tool of a list: `index`, `name`, and the error of its schema as `cause`
      TokenizerError          a tokenizer could not be read
      MatcherError            a matcher was used in a way that it cannot follow
        RollbackError         more tokens than the rollback window holds: `asked`, `held`

The kernel raises them too, by name, as `Class(message, **attributes)`. Attributes that a class does not declare are
refused, so that a misspelt one is found by the first test that meets it. All of them survive pickling.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar


class GramaryError(Exception):
    """Base of all errors. `str(error)` is the whole message, with place and remedy; attributes repeat them one by
    one.
    """

    _attributes: ClassVar[tuple[str, ...]] = ()

    def __init__(self, message: str, **attributes: Any) -> None:
        super().__init__(message)
        unknown = attributes.keys() - set(self._attributes)
        if unknown:
            raise TypeError(f"{type(self).__name__} has no attribute {min(unknown)!r}")
        for name, value in attributes.items():
            setattr(self, name, value)

    @property
    def message(self) -> str:
        """The text given to the constructor."""
        return str(self.args[0])

    def as_dict(self) -> dict[str, Any]:
        """Type, message and every attribute, ready for JSON.

        >>> UnsatisfiableSchema("nothing can match /a: minimum above maximum", pointer="/a").as_dict()["pointer"]
        '/a'
        """
        out: dict[str, Any] = {"type": type(self).__name__, "message": self.message}
        for name in self._attributes:
            value = getattr(self, name)
            out[name] = value.as_dict() if isinstance(value, GramaryError) else value
        return out

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.message, {name: getattr(self, name) for name in self._attributes})


def _rebuilt(cls: type[GramaryError], message: str, attributes: dict[str, Any]) -> GramaryError:
    error = cls(message, **attributes)
    error.__cause__ = attributes.get("cause")
    return error


class CompileError(GramaryError):
    """Compiling a source failed. `pointer` is a JSON pointer (RFC 6901) into the source; "" is the whole of it."""

    _attributes: ClassVar[tuple[str, ...]] = ("pointer",)
    pointer: str = ""


class _Located(CompileError):
    """A source that is not well-formed. `line` and `column` count from 1 where the text itself is broken, else None."""

    _attributes: ClassVar[tuple[str, ...]] = ("pointer", "line", "column")
    line: int | None = None
    column: int | None = None

    def __init__(self, message: str, **attributes: Any) -> None:
        found = re.search(r"\bline (\d+),? column (\d+)", message)
        if found and "line" not in attributes:
            attributes |= {"line": int(found[1]), "column": int(found[2])}
        super().__init__(message, **attributes)


class InvalidSchema(_Located):
    """The source is not JSON, or it is JSON and not a schema."""


class InvalidPattern(_Located):
    """The source is not a regular expression."""


class InvalidGrammar(_Located):
    """The source is not an EBNF grammar (`pointer` is "line 3, column 14"), not a choice, or not a structural tag."""


class UnsupportedSchema(CompileError):
    """The source asks for something that cannot be enforced exactly. It is never ignored unless `lenient=True` says
    so.
    """

    _attributes: ClassVar[tuple[str, ...]] = ("pointer", "keyword", "reason", "remedy")
    keyword: str = ""
    reason: str = ""
    remedy: str = ""


class UnsatisfiableSchema(CompileError):
    """No text at all can match."""

    _attributes: ClassVar[tuple[str, ...]] = ("pointer", "reason")
    reason: str = ""


class LimitExceeded(CompileError):
    """A bound was hit. `limit` is the field of `Limits` to raise for a trusted source, `value` what it was."""

    _attributes: ClassVar[tuple[str, ...]] = ("pointer", "limit", "value")
    limit: str = ""
    value: float | None = None


class Cancelled(CompileError):
    """The caller withdrew the request while it was compiled."""


class ToolError(CompileError):
    """One tool of a list is unusable. `index` counts from 0; `pointer` is within the list; `cause` is the tool's own
    error.
    """

    _attributes: ClassVar[tuple[str, ...]] = ("pointer", "index", "name", "cause")
    index: int = -1
    name: str = ""
    cause: GramaryError | None = None


class TokenizerError(GramaryError):
    """A tokenizer could not be read. `path` is the file at fault, where there is one."""

    _attributes: ClassVar[tuple[str, ...]] = ("path",)
    path: str | None = None


class MatcherError(GramaryError):
    """A matcher was asked for something that it cannot do."""


class RollbackError(MatcherError):
    """`asked` tokens were to be rolled back and only `held` can be."""

    _attributes: ClassVar[tuple[str, ...]] = ("asked", "held")
    asked: int = 0
    held: int = 0
