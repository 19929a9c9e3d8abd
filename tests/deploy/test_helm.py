"""The Helm chart: its values against its schema always, rendered where Helm's library is installed."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.deploy.manifests import (
    CHART,
    Manifest,
    check_pod,
    documents,
    load_agent,
    pod_templates,
    validate,
    validate_core,
)

CASES = sorted(path.stem for path in (CHART / "ci").glob("*.yaml"))
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())


def case(name: str) -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load((CHART / "ci" / f"{name}.yaml").read_text())
    return values


def merged(base: Any, over: Any) -> Any:
    """Values on top of the chart's, as Helm merges them."""
    if isinstance(base, dict) and isinstance(over, dict):
        return {**base, **{name: merged(base.get(name), value) for name, value in over.items()}}
    return over


def with_value(path: str, value: Any) -> dict[str, Any]:
    """The least values with one more, at a dotted path."""
    values = copy.deepcopy(case("minimal"))
    *parents, last = path.split(".")
    inner = values
    for name in parents:
        inner = inner.setdefault(name, {})
    inner[last] = value
    return values


REFUSED = [
    ("image.tga", "1"),
    ("auth.existingSecret", ""),
    ("auth.existingSecret", "No_Such-Name"),
    ("agent.store.type", "nfs"),
    ("agent.store.hostPath", "relative"),
    ("agent.store.size", "20GB"),
    ("agent.store.budgetBytes", "20Gi"),
    ("agent.sealIntervalSeconds", -1),
    ("agent.resources.limits", {"memory": ["1Gi"]}),
    ("agent.terminationGracePeriodSeconds", 0),
    ("api.replicas", 0),
    ("api.pdb.minAvailable", "half"),
    ("ray.rayVersion", "nightly"),
    ("tls.certManager.issuerRef.kind", "Authority"),
    ("settings.stoer", {"path": "/x"}),
    ("settings.store", "/x"),
    ("log.level", "loud"),
    ("tracing.sampleRatio", 2),
    ("podSecurityContext.runAsNonRoot", False),
    ("unknown", {}),
]


@pytest.mark.parametrize("name", CASES)
def test_values_fit_the_schema(name: str) -> None:
    jsonschema.validate(merged(DEFAULTS, case(name)), SCHEMA)


@pytest.mark.parametrize(("path", "value"), REFUSED, ids=lambda value: str(value)[:30])
def test_the_schema_refuses(path: str, value: Any) -> None:
    jsonschema.validate(merged(DEFAULTS, case("minimal")), SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(merged(DEFAULTS, with_value(path, value)), SCHEMA)


def test_every_value_is_in_the_schema_and_explained() -> None:
    def compare(values: Any, schema: Any, path: str) -> None:
        if "properties" in schema and schema.get("additionalProperties") is False:
            assert values.keys() <= schema["properties"].keys(), path
            for name, inner in schema["properties"].items():
                assert name in values or path + name in ("global", "requests"), path + name
                if name in values:
                    compare(values[name], inner, f"{path}{name}.")

    compare(DEFAULTS, SCHEMA, "")
    templates = "".join(path.read_text() for path in (CHART / "templates").rglob("*") if path.is_file())
    assert [name for name in DEFAULTS if f".Values.{name}" not in templates] == []


@pytest.fixture(scope="module")
def helm() -> Any:
    """Helm's library (PyPI helm-python-sdk, 244 MB)."""
    return pytest.importorskip("helm_python.chart", reason="helm-python-sdk is not installed")


def render(helm: Any, values: dict[str, Any], name: str = "gramary", namespace: str = "gramary") -> list[Manifest]:
    with helm.Chart.load(CHART) as chart:
        chart.validate_schema(values)
        rendered = chart.render(values, name=name, namespace=namespace)
    return [one for path, text in rendered.items() if path.endswith(".yaml") for one in documents(text)]


def find(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    (found,) = [one for one in manifests if one["kind"] == kind and one["metadata"]["name"] == name]
    return found


@pytest.mark.parametrize("name", CASES)
def test_lint(helm: Any, name: str) -> None:
    report = helm.lint(CHART, case(name), strict=True, namespace="gramary")
    assert report["errors"] == []
    assert [one for one in report["messages"] if one["severity"] > 1] == []


@pytest.mark.parametrize("name", CASES)
def test_rendered_manifests(helm: Any, name: str, tmp_path: Path) -> None:
    manifests = render(helm, case(name))
    identities = [(one["kind"], one["metadata"]["name"]) for one in manifests]
    assert len(identities) == len(set(identities))
    for manifest in manifests:
        validate(manifest)
        for pod, template in pod_templates(manifest):
            check_pod(pod, template)
            if manifest["kind"] in ("DaemonSet", "Deployment"):
                selector = manifest["spec"]["selector"]["matchLabels"]
                assert selector.items() <= template["metadata"]["labels"].items()
    settings = load_agent(find(manifests, "ConfigMap", "gramary")["data"]["gramary.toml"], tmp_path)
    assert settings.peers.dns == "gramary-nodes.gramary.svc:7171"
    assert settings.store.access == "live"
    drain = find(manifests, "DaemonSet", "gramary-agent")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert drain > settings.deadlines.drain_s


@pytest.mark.parametrize("name", CASES)
def test_rendered_manifests_by_kubernetes_schemas(helm: Any, name: str) -> None:
    for manifest in render(helm, case(name)):
        validate_core(manifest)


def test_everything_is_switched_on(helm: Any, tmp_path: Path) -> None:
    manifests = render(helm, case("everything"))
    kinds = {one["kind"] for one in manifests}
    wanted = {"RayCluster", "Certificate", "PodMonitor", "PrometheusRule", "HorizontalPodAutoscaler", "NetworkPolicy"}
    assert wanted | {"PodDisruptionBudget"} <= kinds
    settings = load_agent(find(manifests, "ConfigMap", "gramary")["data"]["gramary.toml"], tmp_path)
    assert settings.executor.resolved_kind == "ray"
    assert settings.executor.ray_address == "ray://gramary-ray-head-svc:10001"
    assert (settings.deadlines.compile_s, settings.store.sync_interval_s) == (20, 3)
    assert len(settings.auth.token_files) == len(settings.trust.mac_key_files) == 2
    assert settings.tls.require_client_cert
    assert settings.trace.enabled
    pod = find(manifests, "DaemonSet", "gramary-agent")["spec"]["template"]["spec"]
    assert pod["hostPID"] is True
    assert pod["priorityClassName"] == "system-node-critical"
    assert "initContainers" not in pod
    assert "ephemeral" in {volume["name"]: volume for volume in pod["volumes"]}["store"]
    assert pod["containers"][0]["image"] == "gramary-ray:0.1.0"
    assert "replicas" not in find(manifests, "Deployment", "gramary-api")["spec"]
    certificate = find(manifests, "Certificate", "gramary")["spec"]
    assert settings.tls.server_name in certificate["dnsNames"]
    assert "gramary-local.gramary.svc" in certificate["dnsNames"]
    rules = yaml.safe_load((CHART / "files" / "rules.yaml").read_text())
    assert find(manifests, "PrometheusRule", "gramary")["spec"]["groups"] == rules["groups"]
    dashboard = find(manifests, "ConfigMap", "gramary-dashboard")["data"]["gramary.json"]
    assert json.loads(dashboard) == json.loads((CHART / "files" / "dashboard.json").read_text())


def test_nodes_are_found_by_their_labels(helm: Any) -> None:
    manifests = render(helm, case("plaintext"), name="inference", namespace="llm")
    templates = [
        one["spec"]["template"]["metadata"]["labels"] for one in manifests if one["kind"] in ("DaemonSet", "Deployment")
    ]
    assert len(templates) == 2
    nodes = find(manifests, "Service", "inference-gramary-nodes")["spec"]["selector"]
    assert all(nodes.items() <= labels.items() for labels in templates)
    local = find(manifests, "Service", "inference-gramary-local")["spec"]["selector"]
    assert [local.items() <= labels.items() for labels in templates] == [True, False]
    toml = find(manifests, "ConfigMap", "inference-gramary")["data"]["gramary.toml"]
    assert 'dns = "inference-gramary-nodes.llm.svc:7171"' in toml
    assert not [one for one in manifests if one["kind"] in ("NetworkPolicy", "ServiceAccount")]
    agent = find(manifests, "DaemonSet", "inference-gramary-agent")
    assert agent["spec"]["template"]["spec"]["serviceAccountName"] == "existing"


def test_a_change_of_settings_restarts_the_nodes(helm: Any) -> None:
    def checksum(values: dict[str, Any]) -> str:
        agent = find(render(helm, values), "DaemonSet", "gramary-agent")
        return str(agent["spec"]["template"]["metadata"]["annotations"]["checksum/config"])

    before = checksum(case("minimal"))
    assert checksum(case("minimal")) == before
    assert checksum(with_value("settings.deadlines", {"peer_s": 0.5})) != before


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "existingSecret"),
        ({"auth": {"existingSecret": "a"}}, "nodes need certificates"),
        (with_value("tls.certManager.enabled", True), "issuerRef.name"),
        (with_value("ray.enabled", True), "ray.authSecret"),
        (with_value("agent.store.type", "ephemeral"), "storageClass"),
        (with_value("api.replicas", 0), "minimum"),
        (with_value("api.replics", 1), "additional"),
    ],
)
def test_what_helm_refuses(helm: Any, values: dict[str, Any], message: str) -> None:
    errors = pytest.importorskip("helm_python.errors")
    with pytest.raises(errors.HelmError, match=f"(?i){message}"):
        render(helm, values)
