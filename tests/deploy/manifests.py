"""What tests of deploy/ share: reading manifests, and schemas of the few foreign kinds that they use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from gramary.cluster.config import fields, load
from gramary.cluster.settings import Settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "gramary"
KUBERNETES = "1.33"

Manifest = dict[str, Any]


def documents(text: str) -> list[Manifest]:
    """Every manifest in a YAML text."""
    return [one for one in yaml.safe_load_all(text) if one]


def _closed(properties: Manifest, *required: str) -> Manifest:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


_TEXT = {"type": "string", "minLength": 1}
_COUNT = {"type": "integer", "minimum": 0}
_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
_TEMPLATE = _closed({"metadata": {"type": "object"}, "spec": {"type": "object"}}, "spec")
_DURATION = {"type": "string", "pattern": "^[0-9]+(s|m|h)$"}

# Fields that we use of kinds whose definitions no registry has, as KubeRay 1.7, the Prometheus operator and
# cert-manager document them. Anything else is refused, so that a misspelt field is found.
SCHEMAS: dict[str, Manifest] = {
    "RayCluster": _closed(
        {
            "rayVersion": {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"},
            "enableInTreeAutoscaling": {"type": "boolean"},
            "autoscalerOptions": _closed({"version": {"enum": ["v1", "v2"]}, "idleTimeoutSeconds": _COUNT}),
            "authOptions": _closed({"mode": {"enum": ["disabled", "token"]}, "secretName": _TEXT}, "mode"),
            "headGroupSpec": _closed({"rayStartParams": _TEXTS, "template": _TEMPLATE}, "rayStartParams", "template"),
            "workerGroupSpecs": {
                "type": "array",
                "items": _closed(
                    {
                        "groupName": _TEXT,
                        "replicas": _COUNT,
                        "minReplicas": _COUNT,
                        "maxReplicas": _COUNT,
                        "rayStartParams": _TEXTS,
                        "template": _TEMPLATE,
                    },
                    "groupName",
                    "minReplicas",
                    "maxReplicas",
                    "rayStartParams",
                    "template",
                ),
            },
        },
        "rayVersion",
        "headGroupSpec",
    ),
    "PodMonitor": _closed(
        {
            "selector": _closed({"matchLabels": _TEXTS}, "matchLabels"),
            "jobLabel": _TEXT,
            "podMetricsEndpoints": {
                "type": "array",
                "minItems": 1,
                "items": _closed({"port": _TEXT, "interval": _DURATION}, "port"),
            },
        },
        "selector",
        "podMetricsEndpoints",
    ),
    "PrometheusRule": _closed(
        {
            "groups": {
                "type": "array",
                "minItems": 1,
                "items": _closed(
                    {
                        "name": _TEXT,
                        "rules": {
                            "type": "array",
                            "items": {
                                "oneOf": [
                                    _closed({"record": _TEXT, "expr": _TEXT}, "record", "expr"),
                                    _closed(
                                        {
                                            "alert": _TEXT,
                                            "expr": _TEXT,
                                            "for": _DURATION,
                                            "labels": _TEXTS,
                                            "annotations": _TEXTS,
                                        },
                                        "alert",
                                        "expr",
                                        "labels",
                                        "annotations",
                                    ),
                                ]
                            },
                        },
                    },
                    "name",
                    "rules",
                ),
            }
        },
        "groups",
    ),
    "Certificate": _closed(
        {
            "secretName": _TEXT,
            "duration": _DURATION,
            "renewBefore": _DURATION,
            "privateKey": _closed(
                {"algorithm": _TEXT, "size": _COUNT, "rotationPolicy": {"enum": ["Always", "Never"]}}
            ),
            "usages": {"type": "array", "items": {"enum": ["server auth", "client auth"]}},
            "commonName": {"type": "string", "maxLength": 64},
            "dnsNames": {"type": "array", "items": _TEXT, "minItems": 1},
            "issuerRef": _closed(
                {"name": _TEXT, "kind": {"enum": ["Issuer", "ClusterIssuer"]}, "group": _TEXT}, "name"
            ),
        },
        "secretName",
        "dnsNames",
        "issuerRef",
    ),
}
API_VERSIONS = {
    "RayCluster": "ray.io/v1",
    "PodMonitor": "monitoring.coreos.com/v1",
    "PrometheusRule": "monitoring.coreos.com/v1",
    "Certificate": "cert-manager.io/v1",
}


def pod_templates(manifest: Manifest) -> Iterator[tuple[str, Manifest]]:
    """Every pod template in a manifest, with a name for it."""
    kind, spec = manifest["kind"], manifest.get("spec", {})
    name = f"{kind}/{manifest['metadata']['name']}"
    if kind == "Pod":
        yield name, manifest
    elif kind in ("DaemonSet", "Deployment"):
        yield name, spec["template"]
    elif kind == "RayCluster":
        yield f"{name}/head", spec["headGroupSpec"]["template"]
        for group in spec.get("workerGroupSpecs", []):
            yield f"{name}/{group['groupName']}", group["template"]


def validate(manifest: Manifest) -> None:
    """By our schemas; by Kubernetes' own where the package that has them is installed. Raises for anything wrong."""
    kind = manifest["kind"]
    assert re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?", manifest["metadata"]["name"])
    if kind in SCHEMAS:
        assert manifest["apiVersion"] == API_VERSIONS[kind]
        assert set(manifest) == {"apiVersion", "kind", "metadata", "spec"}
        jsonschema.validate(manifest["spec"], SCHEMAS[kind])


def validate_core(manifest: Manifest) -> None:
    """Kubernetes' own kinds and the pods inside of other kinds, by Kubernetes' schemas."""
    kubernetes_validate: Any = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    if manifest["kind"] not in SCHEMAS:
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
    for name, template in pod_templates(manifest):
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**template.get("metadata", {}), "name": name.replace("/", "-").lower()},
            "spec": template["spec"],
        }
        kubernetes_validate.validate(pod, KUBERNETES, strict=True)


def check_pod(name: str, template: Manifest, *, ours: bool = True) -> None:
    """What every pod that we publish keeps to; `ours`: also what only our own images can."""
    spec = template["spec"]
    assert spec.get("enableServiceLinks") is False, name
    volumes = {volume["name"] for volume in spec.get("volumes", [])}
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
        where = f"{name}: {container['name']}"
        assert container["resources"]["requests"].keys() >= {"cpu", "memory"}, where
        assert container["resources"]["limits"].keys() >= {"memory"}, where
        assert not container["image"].endswith(":latest"), where
        assert {mount["name"] for mount in container.get("volumeMounts", [])} <= volumes, where
        if ours:
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False, where
            assert security["capabilities"]["drop"] == ["ALL"], where
            assert container["name"].startswith("ray-") or security["readOnlyRootFilesystem"] is True, where
        check_environment(where, container.get("env", []))
    if ours:
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name


def check_environment(where: str, environment: list[Manifest]) -> None:
    """Every variable of ours is one of the settings', and plain values are usable."""
    known = {variable for variable, _, _ in fields().values()}
    ours = {one["name"]: one.get("value") for one in environment if one["name"].startswith("GRAMARY_")}
    assert ours.keys() <= known, (where, ours.keys() - known)
    plain = {name: value.replace("$(POD_IP)", "10.0.0.1") for name, value in ours.items() if value is not None}
    load(environ={name: value for name, value in plain.items() if "_TLS_" not in name})


def load_agent(toml: str, folder: Path) -> Settings:
    """The settings of an agent from a manifest's file, with files for the secrets that it names."""
    names = re.findall(r'"(/(?:etc/gramary|run/secrets)/[^"]+)"', toml)
    for number, name in enumerate(names):
        (folder / str(number)).write_text("0" * 64)
        toml = toml.replace(f'"{name}"', f'"{folder / str(number)}"')
    file = folder / "gramary.toml"
    file.write_text(toml)
    return load(file, role="agent", environ={"GRAMARY_NODE_ADVERTISE": "[10.0.0.1]:7171"}, secrets_dir=folder)
