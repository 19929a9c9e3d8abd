"""Writes the reference in docs/configuration.md from the settings: `python -m tests.cluster.config_page`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import ByteSize

from gramary.cluster.config import fields
from gramary.cluster.settings import Settings

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
BEGIN, END = "<!-- reference: python -m tests.cluster.config_page -->", "<!-- end of reference -->"


def _default(field: Any) -> str:
    if field.default_factory is not None:
        return ""
    value = field.default
    if isinstance(value, ByteSize):
        return value.human_readable().replace(".0", "") if value else "0"
    if value is None or value == []:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(value) if isinstance(value, list) else str(value)


def _values(field: Any) -> str:
    return ", ".join(re.findall(r"'([^']*)'", str(field.annotation))) if "Literal" in str(field.annotation) else ""


def reference() -> str:
    """A heading and a table for each section."""
    lines: list[str] = []
    for section, declared in Settings.model_fields.items():
        kind: Any = declared.annotation
        lines += ["", f"### [{section}]", "", " ".join(kind.__doc__.split()), ""]
        lines += ["| field | default | meaning |", "|---|---|---|"]
        for dotted, (_, field, owner) in fields().items():
            if owner is kind:
                default = _default(field)
                shown = f"`{default}`" if default else ""
                lines.append(f"| `{dotted.partition('.')[2]}` | {shown} | {field.description} |")
    return "\n".join(lines).strip()


def updated(page: str) -> str:
    """The page with its reference renewed."""
    head, rest = page.split(BEGIN)
    _, tail = rest.split(END)
    return f"{head}{BEGIN}\n\n{reference()}\n\n{END}{tail}"


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text()))
