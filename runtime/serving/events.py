"""Structured log events, as plain `logging` records.

A record's message is the event's name and its fields, for whoever set up plain logging; `record.fields` holds the
fields, for `gramary.cluster.log`, which writes them as JSON.
"""

from __future__ import annotations

import logging
from typing import Any

_MOST_CHARACTERS = 300


class Events:
    """`events.warning("request_failed", request="r1", reason="...")`."""

    def __init__(self, name: str) -> None:
        self._log = logging.getLogger(name)

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

    def _write(self, level: int, event: str, fields: dict[str, Any]) -> None:
        if self._log.isEnabledFor(level):
            shown = " ".join(f"{name}={_short(value)}" for name, value in fields.items())
            self._log.log(level, "gramary %s %s", event, shown, extra={"event": event, "fields": fields})


def _short(value: Any) -> str:
    """One line, however hostile the value."""
    text = repr(value) if isinstance(value, str) else str(value)
    text = text.replace("\n", "\\n")
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + "..."
