"""Manifests that are not rendered: YAML, RayClusters, vLLM, Compose, and kustomize where kubectl is there."""

from __future__ import annotations

import copy
import shutil
import subprocess
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.deploy.manifests import (
    DEPLOY,
    Manifest,
    check_environment,
    check_pod,
    documents,
    load_agent,
    pod_templates,
    validate,
    validate_core,
)

PLAIN = sorted(path for folder in ("kuberay", "vllm") for path in (DEPLOY / folder).glob("*.yaml"))
TEMPLATES = DEPLOY / "helm" / "gramary" / "templates"
YAML = sorted(path for path in DEPLOY.rglob("*.yaml") if TEMPLATES not in path.parents)


@pytest.mark.parametrize("path", YAML, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_yaml_is_well_formed(path: Path) -> None:
    text = path.read_text()
    assert documents(text)
    assert "\t" not in text
    yamllint = pytest.importorskip("yamllint.linter", reason="yamllint is not installed")
    config = pytest.importorskip("yamllint.config")
    rules = "{extends: default, rules: {line-length: disable, braces: disable, document-start: disable}}"
    assert [str(problem) for problem in yamllint.run(text, config.YamlLintConfig(rules))] == []


@pytest.mark.parametrize("path", PLAIN, ids=lambda path: path.name)
def test_plain_manifests(path: Path) -> None:
    for manifest in documents(path.read_text()):
        validate(manifest)
        for name, template in pod_templates(manifest):
            check_pod(name, template, ours=path.parent.name == "kuberay")


@pytest.mark.parametrize("path", PLAIN, ids=lambda path: path.name)
def test_plain_manifests_by_kubernetes_schemas(path: Path) -> None:
    for manifest in documents(path.read_text()):
        validate_core(manifest)


def test_our_schemas_refuse_what_is_misspelt() -> None:
    (good,) = documents((DEPLOY / "kuberay" / "raycluster.yaml").read_text())
    validate(good)

    def refused(change: str) -> None:
        bad = copy.deepcopy(good)
        exec(change, {"bad": bad})
        with pytest.raises(jsonschema.ValidationError):
            validate(bad)

    refused("bad['spec']['authOptions']['mode'] = 'tokens'")
    refused("bad['spec']['enableAutoscaling'] = True")
    refused("del bad['spec']['workerGroupSpecs'][0]['maxReplicas']")
    refused("bad['spec']['headGroupSpec']['rayStartParams']['num-cpus'] = 0")


def vllm_pods() -> list[tuple[str, Manifest]]:
    found = [documents(path.read_text()) for path in PLAIN if path.parent.name == "vllm"]
    return [pod for manifests in found for manifest in manifests for pod in pod_templates(manifest)]


@pytest.mark.parametrize(("name", "template"), vllm_pods(), ids=lambda value: value if isinstance(value, str) else "")
def test_inference_pods_reach_their_node(name: str, template: Manifest) -> None:
    assert template["metadata"]["labels"]["gramary.io/client"] == "true"
    spec = template["spec"]
    (container,) = spec["containers"]
    environment = {one["name"]: one["value"] for one in container["env"]}
    assert environment["GRAMARY_STORE_ACCESS"] == "sealed"
    assert environment["GRAMARY_CLIENT_ADDRESS"].startswith("gramary-local.")
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert mounts["gramary-store"]["readOnly"] is True
    assert environment["GRAMARY_STORE_PATH"].startswith(mounts["gramary-store"]["mountPath"])
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert spec["securityContext"]["supplementalGroups"] == [10001]
    assert volumes["gramary-store"]["hostPath"]["path"] == "/var/lib/gramary"
    command = str(container.get("args") or container.get("lifecycle") or template)
    assert "gramary" in command or "worker" in name


def test_compose(tmp_path: Path) -> None:
    (compose,) = documents((DEPLOY / "compose" / "compose.yaml").read_text())
    nodes = {name: service for name, service in compose["services"].items() if name.startswith("node-")}
    assert len(nodes) == 2
    toml = compose["configs"]["gramary"]["content"]
    settings = load_agent(toml, tmp_path)
    assert set(settings.peers.nodes) == {f"{name}:7171" for name in nodes}
    for name, service in nodes.items():
        assert service["environment"]["GRAMARY_NODE_ADVERTISE"] == f"{name}:7171"
        check_environment(name, [{"name": key, "value": value} for key, value in service["environment"].items()])
        assert service["read_only"] is True
        assert set(service["secrets"]) <= compose["secrets"].keys()
        assert {one["source"] for one in service["configs"]} <= compose["configs"].keys()
        assert service["volumes"][0].split(":")[0] in compose["volumes"]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    prometheus = yaml.safe_load(compose["configs"]["prometheus"]["content"])
    assert prometheus["scrape_configs"][0]["static_configs"][0]["targets"] == [f"{name}:9171" for name in nodes]
    (rules,) = compose["services"]["prometheus"]["volumes"]
    assert (DEPLOY / "compose" / rules.split(":")[0]).exists()
    assert "secrets/" in (DEPLOY / "compose" / ".gitignore").read_text()


@pytest.fixture(scope="module", params=["dev", "prod"])
def overlay(request: pytest.FixtureRequest) -> tuple[str, list[Manifest]]:
    """What an overlay of kustomize gives."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    folder = DEPLOY / "kustomize" / "overlays" / request.param
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return request.param, documents(done.stdout)


def test_kustomize(overlay: tuple[str, list[Manifest]], tmp_path: Path) -> None:
    name, manifests = overlay
    kinds = [manifest["kind"] for manifest in manifests]
    assert {"Namespace", "DaemonSet", "Service", "ConfigMap", "ServiceAccount", "NetworkPolicy"} <= set(kinds)
    assert ("Certificate" in kinds) == (name == "prod")
    for manifest in manifests:
        validate(manifest)
        for pod, template in pod_templates(manifest):
            check_pod(pod, template)
            selector = manifest["spec"]["selector"]["matchLabels"]
            assert selector.items() <= template["metadata"]["labels"].items()
    daemons = [manifest for manifest in manifests if manifest["kind"] == "DaemonSet"]
    configs = {one["metadata"]["name"]: one for one in manifests if one["kind"] == "ConfigMap"}
    (config,) = configs.values()
    volumes = {volume["name"]: volume for volume in daemons[0]["spec"]["template"]["spec"]["volumes"]}
    assert volumes["config"]["configMap"]["name"] in configs
    settings = load_agent(config["data"]["gramary.toml"], tmp_path)
    assert settings.listens_beyond_loopback()
    assert settings.tls.enabled == ("tls" in volumes) == (name == "prod")
    assert ("hostPath" in volumes["store"]) == (name == "prod")
    services = {one["metadata"]["name"]: one for one in manifests if one["kind"] == "Service"}
    assert settings.peers.dns == "gramary-nodes.gramary.svc:7171"
    assert services["gramary-nodes"]["spec"]["clusterIP"] == "None"
    assert services["gramary-local"]["spec"]["internalTrafficPolicy"] == "Local"


def test_kustomize_by_kubernetes_schemas(overlay: tuple[str, list[Manifest]]) -> None:
    for manifest in overlay[1]:
        validate_core(manifest)
