"""Rules and dashboard against the metrics that the code has, and promtool's own tests where it is installed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gramary.cluster.counting import Family, Histogram
from gramary.cluster.metrics import METHODS, NodeMetrics, WorkerMetrics
from tests.deploy.manifests import DEPLOY, ROOT
from tests.deploy.metrics_page import PAGE, updated

FOLDER = DEPLOY / "observability"
FAMILIES: dict[str, Family] = {one.name: one for group in (NodeMetrics(), WorkerMetrics()) for one in group.families()}
RULES = yaml.safe_load((FOLDER / "rules.yaml").read_text())
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"] if "alert" in rule]
RECORDS = {rule["record"] for group in RULES["groups"] for rule in group["rules"] if "record" in rule}
# What Prometheus, the operator and the process collector add.
TARGET_LABELS = {"namespace", "pod", "instance", "job", "le", "alertname", "alertstate"}
FOREIGN = {"up", "process_resident_memory_bytes", "process_cpu_seconds_total", "gramary_build_info", "ALERTS"}
SELECTOR = re.compile(r"([A-Za-z_][\w:]*)\s*(?:\{([^}]*)\})?")


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    for group in RULES["groups"]:
        for rule in group["rules"]:
            yield rule.get("alert") or rule["record"], rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for annotation in DASHBOARD["annotations"]["list"]:
        yield annotation["name"], annotation["expr"]


def family_of(series: str) -> Family | None:
    base = re.sub(r"_(bucket|count|sum)$", "", series)
    if isinstance(FAMILIES.get(base), Histogram):
        return FAMILIES[base] if base != series else None
    return FAMILIES.get(series)


def used(expression: str) -> Iterator[tuple[str, str]]:
    """Names of metrics in an expression, with what stands in their braces."""
    text = re.sub(r"\b(?:by|without|on|ignoring)\s*\([^)]*\)", "", expression)
    for name, inner in SELECTOR.findall(text):
        if name.startswith("gramary") or name in FOREIGN:
            yield name, inner


@pytest.mark.parametrize(("where", "expression"), [*expressions()], ids=lambda value: str(value)[:40])
def test_every_metric_exists_and_has_the_labels(where: str, expression: str) -> None:
    found = list(used(expression))
    assert found, where
    labels_there = set(TARGET_LABELS)
    for name, inner in found:
        family = family_of(name)
        assert family is not None or name in RECORDS | FOREIGN, f"{where}: nothing has the name {name}"
        labels = {} if family is None else family.labels
        labels_there |= labels.keys() | ({"tier", "version", "format_version"} if family is None else set())
        for label, operator, value in re.findall(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"', inner):
            if label in labels:
                for one in value.split("|") if "~" in operator else [value]:
                    assert one in labels[label], f"{where}: {name} has no {label}={one}"
            else:
                assert label in TARGET_LABELS or (family is None and label == "tier"), f"{where}: {label} of {name}"
    for grouped in re.findall(r"\bby\s*\(([^)]*)\)", expression):
        assert {one.strip() for one in grouped.split(",")} <= labels_there, where


def test_every_metric_is_shown_somewhere() -> None:
    shown = {family.name for _, text in expressions() for name, _ in used(text) if (family := family_of(name))}
    assert sorted(FAMILIES.keys() - shown) == []


def test_a_misspelt_metric_would_be_found() -> None:
    assert family_of("gramary_lookups") is None
    assert family_of("gramary_lookup_duration_seconds") is None
    assert family_of("gramary_lookup_duration_seconds_bucket") is not None


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_every_alert_is_explained_and_tested(rule: dict[str, Any]) -> None:
    name = rule["alert"]
    assert re.fullmatch(r"Gramary([A-Z][a-z]+)+", name)
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"].keys() == {"summary", "description", "runbook"}
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert anchor == name.lower()
    assert f"\n### {name}\n" in (ROOT / page).read_text()
    assert name in (FOLDER / "alerts_test.yaml").read_text()


def test_every_record_is_used() -> None:
    text = "".join(expression for _, expression in expressions())
    assert [record for record in RECORDS if record not in text] == []


def promtool(*arguments: str | Path) -> str:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_rules_by_promtool() -> None:
    assert "SUCCESS" in promtool("check", "rules", FOLDER / "rules.yaml")
    assert "SUCCESS" in promtool("test", "rules", FOLDER / "alerts_test.yaml")


def test_expressions_of_the_dashboard_by_promtool(tmp_path: Path) -> None:
    texts = [target["expr"] for panel in panels() for target in panel["targets"]]
    plain = [re.sub(r"\$__\w+", "5m", text).replace("$namespace", ".*").replace("$instance", ".*") for text in texts]
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(plain)]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert "SUCCESS" in promtool("check", "rules", tmp_path / "rules.yaml")


def test_the_dashboard_is_well_formed() -> None:
    everything = DASHBOARD["panels"]
    assert len({panel["id"] for panel in everything}) == len(everything)
    assert len({panel["title"] for panel in everything}) == len(everything)
    cells: set[tuple[int, int]] = set()
    for panel in everything:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        area = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not area & cells, panel["title"]
        cells |= area
    for panel in panels():
        assert panel["type"] in ("timeseries", "stat")
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        references = [target["refId"] for target in panel["targets"]]
        assert references == sorted(set(references))
    names = [variable["name"] for variable in DASHBOARD["templating"]["list"]]
    assert names == ["datasource", "namespace", "instance"]
    variables = {name for _, text in expressions() for name in re.findall(r"\$(\w+)", text)}
    assert variables <= {*names, "__rate_interval"}


def test_the_collectors_pipelines_name_what_is_there() -> None:
    collector = yaml.safe_load((FOLDER / "otel-collector.yaml").read_text())
    for pipeline in collector["service"]["pipelines"].values():
        for part in ("receivers", "processors", "exporters"):
            assert set(pipeline[part]) <= collector[part].keys()
    assert set(collector["service"]["extensions"]) <= collector["extensions"].keys()


def test_the_table_of_metrics_is_current() -> None:
    page = PAGE.read_text()
    assert page == updated(page), "run: python -m tests.deploy.metrics_page"


def test_requests_are_counted_by_every_method_of_the_protocol() -> None:
    protos = "".join(path.read_text() for path in (ROOT / "protos").rglob("*.proto"))
    assert set(METHODS) == {*re.findall(r"\brpc (\w+)\(", protos), "other"}
