"""What can go wrong with work that was handed to a worker, and errors as text for the wire.

    GramaryError
      ExecutorError            the work could not be done here
        WorkerDied             the worker process ended while it worked; `attempts` says how often it was tried
        DeadlineExceeded       the time that the caller gave was over
        UnknownTokenizer       entries were asked for a tokenizer that was never registered

An error about a *source* (`CompileError`) is the source's fate and is remembered; an `ExecutorError` says something
about the machinery, and trying again may help (`retryable`).
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

from gramary.compiler import errors as compiler_errors
from gramary.compiler.errors import GramaryError

MOST_TEXT = 4096
"""Characters of a message or attribute that travel; a schema's pointer can be as long as the schema."""


class ExecutorError(GramaryError):
    """Work that was handed to an executor was not done. `retryable`: trying again, here or elsewhere, may help."""

    _attributes: ClassVar[tuple[str, ...]] = ("retryable",)
    retryable: bool = True


class WorkerDied(ExecutorError):
    """The worker ended while it worked on this. After several `attempts`, each in a fresh worker, it is given up and
    no longer `retryable`: the source is what ends them.
    """

    _attributes: ClassVar[tuple[str, ...]] = ("retryable", "attempts")
    attempts: int = 1


class DeadlineExceeded(ExecutorError):
    """The caller's time was over before the work was done."""


class UnknownTokenizer(ExecutorError):
    """Mask entries were asked for a tokenizer that the executor does not have: register it first."""

    retryable = False


class KernelFault(ExecutorError):
    """The kernel failed in a way that it should not (a bug). The worker lives; the same source fails again."""

    retryable = False


_HERE: tuple[type[GramaryError], ...] = (ExecutorError, WorkerDied, DeadlineExceeded, UnknownTokenizer, KernelFault)
_KNOWN: dict[str, type[GramaryError]] = {
    **{c.__name__: c for c in vars(compiler_errors).values() if isinstance(c, type) and issubclass(c, GramaryError)},
    **{c.__name__: c for c in _HERE},
}


def encode_error(error: BaseException) -> dict[str, str]:
    """An error as strings: `type`, `message`, and every attribute (those that are no strings as JSON).

    >>> encode_error(LimitExceeded("too deep", pointer="/a", limit="depth", value=128))["value"]
    '128'
    """
    if not isinstance(error, GramaryError):
        return encode_error(KernelFault(f"{type(error).__name__}: {error}"))
    out = {"type": type(error).__name__, "message": error.message[:MOST_TEXT]}
    for name, value in error.as_dict().items():
        if name not in out:
            out[name] = (value if isinstance(value, str) else json.dumps(value))[:MOST_TEXT]
    return out


def decode_error(data: dict[str, str]) -> GramaryError:
    """The inverse of `encode_error`, for data from outside: an unknown class or attribute becomes its nearest base.

    >>> decode_error({"type": "LimitExceeded", "message": "too deep", "limit": "depth", "value": "128"}).value
    128
    """
    cls = _KNOWN.get(data.get("type", ""), GramaryError)
    attributes: dict[str, Any] = {}
    for name in cls._attributes:
        text = data.get(name)
        if text is None or name == "cause":
            continue
        if isinstance(getattr(cls, name, None), str):
            attributes[name] = text
            continue
        try:
            value = json.loads(text)
        except ValueError:
            continue
        if value is None or isinstance(value, bool | int | float):
            attributes[name] = value
    return cls(data.get("message", "the peer gave no message"), **attributes)


def is_retryable(error: dict[str, str]) -> bool:
    """Whether an encoded error says nothing about its source."""
    return error.get("retryable") == "true"
