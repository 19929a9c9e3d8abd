"""Writes the table of metrics in docs/operations.md from the code: `python -m tests.deploy.metrics_page`."""

from __future__ import annotations

from gramary.cluster.metrics import CODES, METHODS, NodeMetrics, WorkerMetrics
from tests.deploy.manifests import ROOT

PAGE = ROOT / "docs" / "operations.md"
BEGIN, END = "<!-- metrics: python -m tests.deploy.metrics_page -->", "<!-- end of metrics -->"
_LONG = {CODES: "gRPC's codes", METHODS: "the services' methods"}


def table() -> str:
    """One row for each metric."""
    lines = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for group in (NodeMetrics(), WorkerMetrics()):
        for family in group.families():
            labels = "; ".join(
                f"`{name}`: {_LONG.get(values) or ', '.join(values)}" for name, values in family.labels.items()
            )
            lines.append(f"| `{family.name}` | {family.kind} | {labels} | {family.help} |")
    return "\n".join(lines)


def updated(page: str) -> str:
    """The page with its table renewed."""
    head, rest = page.split(BEGIN)
    _, tail = rest.split(END)
    return f"{head}{BEGIN}\n\n{table()}\n\n{END}{tail}"


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text()))
