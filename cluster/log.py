"""Structured logs.

Code here logs through `get_logger(__name__)`: an event name and fields. Without `configure` that is plain `logging`, at
the cost of plain `logging`, so that a library user sees what they set up and a worker imports nothing more. `configure`
(for our own processes) writes every record of the process, other libraries' included, through structlog as JSON lines
or, on a terminal, in colour.

What comes from outside may be in a field: long values are cut, and a line stays a line.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from gramary.cluster.settings import Log

MOST_CHARACTERS = 2000
MOST_FIELDS = 50

# Loud libraries: what they say at "info" is about themselves.
_QUIET = ("asyncio", "grpc", "ray", "urllib3", "opentelemetry")

_bound: ContextVar[dict[str, Any]] = ContextVar("gramary_log_fields", default={})  # noqa: B039 (never changed in place)


class Logger:
    """Logs events with fields: `log.info("shard_received", peer=name, bytes=n)`. Event names are constants."""

    def __init__(self, name: str) -> None:
        self._log = logging.getLogger(name)

    def _write(self, level: int, event: str, fields: dict[str, Any], exc_info: bool = False) -> None:
        if self._log.isEnabledFor(level):
            merged = {**_bound.get(), **fields}
            self._log.log(level, event, extra={"fields": merged}, exc_info=exc_info, stacklevel=3)

    def debug(self, event: str, **fields: Any) -> None:
        """For somebody looking for a defect."""
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """What an operator may want to know afterwards."""
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Something was wrong and has been dealt with."""
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Something needs somebody."""
        self._write(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """An error that was not foreseen, with its traceback."""
        self._write(logging.ERROR, event, fields, exc_info=True)


def get_logger(name: str) -> Logger:
    """The logger of a module."""
    return Logger(name)


@contextmanager
def fields(**more: Any) -> Iterator[None]:
    """Add fields to every event logged in here, also by what it awaits."""
    token = _bound.set({**_bound.get(), **more})
    try:
        yield
    finally:
        _bound.reset(token)


def _cut(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}... ({len(text)} characters)"


def _take_fields(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Our fields from the record; none may pass for what the record itself says."""
    record: logging.LogRecord = event["_record"]
    given = getattr(record, "fields", None)
    if isinstance(given, dict):
        for name, value in list(given.items())[:MOST_FIELDS]:
            event[name if name not in event and name not in _RESERVED else f"field_{name}"] = _cut(value)
    event["event"] = _cut(getattr(record, "event", event["event"]))
    from gramary.cluster.trace import current_ids

    ids = current_ids()
    if ids is not None:
        event["trace_id"], event["span_id"] = ids
    return event


_RESERVED = frozenset({"event", "level", "logger", "timestamp", "exception", "trace_id", "span_id", "node", "role"})


def configure(settings: Log, *, node: str = "", role: str = "", stream: TextIO | None = None) -> logging.Handler:
    """Send every log record of this process to `stream` (standard error). Calling it again replaces what it set up."""
    import structlog

    stream = stream if stream is not None else sys.stderr
    console = settings.format == "console" or (settings.format == "auto" and stream.isatty())
    constant = {name: value for name, value in (("node", node), ("role", role)) if value}

    def add_constant(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event.update(constant)
        return event

    before: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        add_constant,
        _take_fields,
    ]
    last: list[Any] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if console:
        last.append(structlog.dev.ConsoleRenderer(colors=stream.isatty()))
    else:
        last += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    handler = logging.StreamHandler(stream)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=before, processors=last))
    handler.set_name("gramary")
    root = logging.getLogger()
    for old in [one for one in root.handlers if one.get_name() == "gramary"]:
        root.removeHandler(old)
    root.addHandler(handler)
    level = logging.getLevelName(settings.level.upper())
    root.setLevel(level)
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
    logging.captureWarnings(True)
    return handler
