"""Container images and systemd units, as far as they can be checked without building or starting them."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import typer

from gramary.cluster.cli import app
from tests.deploy.manifests import DEPLOY, ROOT, check_environment, documents, pod_templates

DOCKERFILES = sorted(path for path in (DEPLOY / "docker").glob("Dockerfile*") if path.suffix != ".dockerignore")
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def instructions(path: Path) -> list[tuple[str, str]]:
    """Instructions of a Dockerfile with their arguments on one line."""
    text = re.sub(r"\\\n", " ", re.sub(r"(?m)^\s*#.*\n", "", path.read_text()))
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_dockerfiles(path: Path) -> None:
    found = instructions(path)
    arguments = dict(value.partition("=")[::2] for word, value in found if word == "ARG" and "=" in value)
    stages: set[str] = set()
    for word, value in found:
        if word == "FROM":
            image = re.sub(r"\$\{(\w+)\}", lambda match: arguments[match[1]], value.split()[0])
            assert ":" in image, f"{image} has no tag"
            assert not image.endswith(":latest")
            stages |= {value.split(" AS ")[1]} if " AS " in value else set()
        if word == "RUN" and "apt-get install" in value:
            assert "--no-install-recommends" in value
            assert "rm -rf /var/lib/apt/lists" in value
        if word == "RUN":
            assert not re.search(r"pip install (?!.*(-c |--no-cache-dir))", value)
            assert "curl" not in value
        if word == "COPY":
            source = re.match(r"--from=(\w+)", value)
            assert not source or source[1] in stages
            for name in [] if source else value.split()[:-1]:
                assert (ROOT / name).exists(), name
    users = [value for word, value in found if word == "USER"]
    if path.name != "Dockerfile.vllm":  # vLLM's image decides that
        assert users[-1] == "10001:10001"


def test_the_ignore_file_lets_through_what_is_copied() -> None:
    lines = (DEPLOY / "docker" / "Dockerfile.dockerignore").read_text().splitlines()
    allowed = {line[1:] for line in lines if line.startswith("!")}
    copied = {
        name
        for word, value in instructions(DEPLOY / "docker" / "Dockerfile")
        if word == "COPY" and not value.startswith("--from")
        for name in value.split()[:-1]
    }
    assert copied == allowed


def test_the_image_has_the_versions_that_were_tested(tmp_path: Path) -> None:
    (run,) = [
        value
        for word, value in instructions(DEPLOY / "docker" / "Dockerfile")
        if word == "RUN" and value.startswith("sed")
    ]
    shutil.copy(ROOT / "requirements-dev.lock", tmp_path)
    subprocess.run(["sh", "-c", run], cwd=tmp_path, check=True)
    constraints = (tmp_path / "constraints.txt").read_text().splitlines()
    lock = (ROOT / "requirements-dev.lock").read_text()
    assert len(constraints) == len(re.findall(r"(?m)^[A-Za-z0-9._-]+==", lock)) > 20
    assert all(re.fullmatch(r"[\w.-]+==[\w.+!-]+( ; .*[^\\ ])?", line) for line in constraints)


def test_hadolint() -> None:
    if shutil.which("hadolint") is None:
        pytest.skip("hadolint is not installed")
    for path in DOCKERFILES:
        done = subprocess.run(
            ["hadolint", "--failure-threshold", "warning", path], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_units(path: Path) -> None:
    lines = [line.partition("=")[::2] for line in path.read_text().splitlines() if "=" in line and line[0] not in "#["]
    settings = dict(lines)
    assert settings["User"] == "gramary"
    assert settings["ProtectSystem"] == "strict"
    assert settings["NoNewPrivileges"] == "yes"
    assert int(settings["TimeoutStopSec"]) > 30
    environment = [
        dict(zip(("name", "value"), one.split("=", 1), strict=True)) for one in settings["Environment"].split()
    ]
    check_environment(path.name, environment)


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_units_by_systemd(path: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / path.name
    unit.write_text(re.sub(r"(?m)^ExecStart=.*$", "ExecStart=/bin/true", path.read_text()))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    command = ["systemd-analyze", "security", "--offline=yes", "--threshold=20", unit]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def invocations() -> set[tuple[str, ...]]:
    """How manifests, units and images call `gramary`."""
    found: set[tuple[str, ...]] = set()
    for path in UNITS:
        found |= {
            tuple(shlex.split(line)) for line in re.findall(r"(?m)^ExecStart=\S*/gramary (.*)$", path.read_text())
        }
    for path in (DEPLOY / "kustomize" / "base" / "daemonset.yaml",):
        for manifest in documents(path.read_text()):
            found |= {tuple(one["args"]) for _, pod in pod_templates(manifest) for one in pod["spec"]["containers"]}
    for path in (DEPLOY / "helm" / "gramary" / "templates").rglob("*"):
        if path.is_file() and "command: [gramary]" in path.read_text():
            (arguments,) = re.findall(r"command: \[gramary\]\s+args: \[(.*)\]", path.read_text())
            found.add(tuple(arguments.split(", ")))
    (compose,) = documents((DEPLOY / "compose" / "compose.yaml").read_text())
    found.add(tuple(compose["x-node"]["command"]))
    return found


@pytest.mark.parametrize("arguments", sorted(invocations()), ids=" ".join)
def test_the_command_line_has_what_is_called(arguments: tuple[str, ...]) -> None:
    group = typer.main.get_command(app)
    commands = getattr(group, "commands", {})
    if arguments[0] not in commands:
        pytest.skip(f"gramary has no command {arguments[0]} yet")
    known = {option for parameter in commands[arguments[0]].params for option in parameter.opts}
    assert {one for one in arguments if one.startswith("--")} <= known
