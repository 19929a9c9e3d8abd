"""Settings: where they come from, which source wins, and what is said when they are wrong."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gramary.cluster.address import Address, parse_address
from gramary.cluster.config import ConfigError, Role, fields, load
from gramary.cluster.settings import Settings


def wrong(**arguments: Any) -> ConfigError:
    arguments.setdefault("environ", {})
    with pytest.raises(ConfigError) as caught:
        load(**arguments)
    return caught.value


def test_defaults_are_a_laptops(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    settings = load(role="serve", environ={})
    assert settings.store.path == tmp_path / "gramary" / "store"
    assert settings.node.listen == ["127.0.0.1:7171"]
    assert settings.metrics.listen == "127.0.0.1:9171"
    assert settings.executor.resolved_kind == "process"
    assert not settings.listens_beyond_loopback()
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert load(environ={}).store.path == Path.home() / ".cache" / "gramary" / "store"


def test_options_beat_the_environment_beats_secrets_beat_the_file(tmp_path: Path) -> None:
    file = tmp_path / "gramary.toml"
    file.write_text(
        '[store]\nbudget_bytes = "1GiB"\nsync_interval_s = 9\nhigh_ratio = 0.8\n[peers]\nnodes = ["a:1", "b:2"]\n'
    )
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "store_sync_interval_s").write_text("8\n")
    (secrets / "store_high_ratio").write_text("0.85\n")
    environ = {"GRAMARY_STORE_HIGH_RATIO": "0.87", "GRAMARY_STORE_LOW_RATIO": "0.5", "GRAMARY_CONFIG": str(file)}
    settings = load(environ=environ, secrets_dir=secrets, options={"store": {"low_ratio": 0.6}})
    assert (settings.store.low_ratio, settings.store.high_ratio, settings.store.sync_interval_s) == (0.6, 0.87, 8)
    assert settings.store.budget_bytes == 1 << 30
    assert settings.peers.nodes == ["a:1", "b:2"]


def test_lists_in_the_environment() -> None:
    plain = load(environ={"GRAMARY_PEERS_NODES": "a:1, [::1]:2,"})
    as_json = load(environ={"GRAMARY_PEERS_NODES": '["a:1", "[::1]:2"]'})
    assert plain.peers.nodes == as_json.peers.nodes == ["a:1", "[::1]:2"]
    assert "peers.nodes (from GRAMARY_PEERS_NODES)" in str(wrong(environ={"GRAMARY_PEERS_NODES": '["a:1"'}))


def test_what_is_not_meant_for_us_is_left_alone() -> None:
    environ = {
        "GRAMARY_TOKENIZER": "x",
        "GRAMARY_PORT": "tcp://10.0.0.1:7171",
        "GRAMARY_NODE_SERVICE_HOST": "10.0.0.1",
        "GRAMARY_NODE_SERVICE_PORT": "7171",
        "GRAMARY_NODE_SERVICE_PORT_GRPC": "7171",
        "GRAMARY_NODE_PORT": "tcp://10.0.0.1:7171",
        "GRAMARY_NODE_PORT_7171_TCP_ADDR": "10.0.0.1",
        "HOME": "/",
    }
    assert load(environ=environ) == load(environ={})
    assert Settings() == load(environ={})


def test_every_problem_is_named_with_its_place_and_a_remedy(tmp_path: Path) -> None:
    file = tmp_path / "gramary.toml"
    file.write_text("[store]\nbudget_bytes = 3\n[sotre]\n[executor]\nkind = 'cloud'\n")
    error = wrong(config=file, environ={"GRAMARY_STORE_PAHT": "/x", "GRAMARY_DEADLINES_PEER_S": "soon"})
    problems = {one["field"]: one for one in error.problems}
    assert problems.keys() == {"store.budget_bytes", "store.paht", "sotre", "executor.kind", "deadlines.peer_s"}
    assert problems["store.budget_bytes"]["place"] == str(file)
    assert problems["store.paht"]["place"] == "GRAMARY_STORE_PAHT"
    assert problems["store.paht"]["remedy"] == "did you mean store.path?"
    assert problems["sotre"]["remedy"] == "did you mean store?"
    assert "'soon'" in problems["deadlines.peer_s"]["reason"]
    assert "GRAMARY_EXECUTOR_KIND" in problems["executor.kind"]["remedy"]
    assert all(one["field"] in str(error) for one in error.problems)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_secrets_are_not_shown() -> None:
    error = wrong(environ={"GRAMARY_AUTH_TOKENS": '[{"hush": "hush"}]'})
    assert "hush" not in str(error)
    settings = load(environ={"GRAMARY_AUTH_TOKENS": "hush-hush-hush-hush"})
    assert "hush" not in repr(settings)
    assert "hush" not in settings.model_dump_json()
    assert settings.auth.tokens[0].get_secret_value() == "hush-hush-hush-hush"


@pytest.mark.parametrize("role", ["serve", "agent"])
def test_servers_reached_from_outside_must_tell_callers_apart(role: Role, tmp_path: Path) -> None:
    for name in ("cert", "key", "ca", "token"):
        (tmp_path / name).write_text("x" * 40)
    listen = {"node": {"listen": ["0.0.0.0:7171"]}}
    identity = {"cert_file": tmp_path / "cert", "key_file": tmp_path / "key"}
    assert "node.listen (from an option)" in str(wrong(role=role, options=listen))
    tokens = {"token_files": [tmp_path / "token"]}
    assert "can be reached" in str(wrong(role=role, options={**listen, "auth": tokens}))
    lax = {**identity, "require_client_cert": False}
    assert "can be reached" in str(wrong(role=role, options={**listen, "tls": lax}))
    load(role=role, environ={}, options={**listen, "tls": lax, "auth": tokens})
    load(role=role, environ={}, options={**listen, "auth": {**tokens, "plaintext": True}})
    mutual = {**identity, "ca_file": tmp_path / "ca"}
    load(role=role, environ={}, options={**listen, "tls": mutual})
    load(role="client", environ={}, options=listen)
    among = {**listen, "tls": mutual, "peers": {"dns": "nodes:7171"}}
    error = wrong(role=role, options=among)
    assert {one["field"] for one in error.problems} == {"node.advertise", "trust.mac_key_files"}


def test_tls_files_must_be_there(tmp_path: Path) -> None:
    options = {"tls": {"ca_file": tmp_path / "nothing"}}
    assert "tls.ca_file (from an option)" in str(wrong(options=options))
    assert "go together" in str(wrong(options={"tls": {"cert_file": "/x"}}))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert "No such file" in str(wrong(config=tmp_path / "none.toml"))
    (tmp_path / "bad.toml").write_text("[store\n")
    assert "is not TOML" in str(wrong(config=tmp_path / "bad.toml"))
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    assert "is not TOML" in str(wrong(config=tmp_path / "binary.toml"))
    (tmp_path / "long.toml").write_bytes(b"#" * (2 << 20))
    assert "longer" in str(wrong(config=tmp_path / "long.toml"))
    (tmp_path / "auth_tokens").mkdir()
    assert "auth.tokens" in str(wrong(secrets_dir=tmp_path))


def test_every_field_can_be_set_by_its_variable() -> None:
    examples = {"advertise": "a:1", "nodes": "a:1", "others": "a:1", "dns": "a:1", "address": "a:1", "file": "/x"}
    examples |= {"endpoint": "http://a:4317", "tokenizers": "a", "ray_address": "auto", "server_name": "a"}
    examples |= {
        "tokens": "t" * 20,
        "mac_keys": "0" * 64,
        "token_files": "/t",
        "client_token_files": "/t",
        "mac_key_files": "/k",
    }
    defaults = Settings()
    for dotted, (variable, field, _) in fields().items():
        section, name = dotted.split(".")
        if section == "tls" and name.endswith("_file"):
            continue
        default = getattr(getattr(defaults, section), name)
        value = examples.get(name, ",".join(default) if isinstance(default, list) else str(default))
        settings = load(environ={variable: value})
        assert name in getattr(settings, section).model_fields_set, (dotted, field)


def test_an_address_may_have_brackets_it_does_not_need() -> None:
    assert load(environ={"GRAMARY_NODE_ADVERTISE": "[10.0.0.1]:7171"}).advertised() == "10.0.0.1:7171"
    assert load(environ={"GRAMARY_NODE_ADVERTISE": "[fd00::1]:7171"}).advertised() == "[fd00::1]:7171"


def test_limits_reach_the_kernel() -> None:
    assert Settings().limits.as_limits() is not None


def test_nothing_here_is_imported_before_it_is_needed() -> None:
    program = "import sys, gramary.cluster.metrics, gramary.cluster.log, gramary.cluster.stats; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ)
    assert not {"pydantic", "structlog", "prometheus_client", "opentelemetry"} & set(done.stdout.split())


@pytest.mark.parametrize(
    ("text", "address", "local"),
    [
        ("127.0.0.1:7171", Address("127.0.0.1", 7171), True),
        ("127.8.8.8:0", Address("127.8.8.8", 0), True),
        ("localhost:1", Address("localhost", 1), True),
        ("[::1]:65535", Address("::1", 65535), True),
        ("[::]:1", Address("::", 1), False),
        ("gramary-0.nodes.svc:7171", Address("gramary-0.nodes.svc", 7171), False),
        ("unix:/run/x.sock", Address(path="/run/x.sock"), True),
    ],
)
def test_addresses(text: str, address: Address, local: bool) -> None:
    assert parse_address(text) == address
    assert str(address) == text
    assert address.is_local is local


@pytest.mark.parametrize(
    "text",
    [
        "", ":1", "a", "a:", "a:b", "a:65536", "a:1:2", "::1:7171", "[a]:1", "[]:1", "a b:1", "a/b:1", "unix:",
        "unix:x", "unix:/" + "x" * 120, "unix:/a\0b", "a:-1", "a:\u0661", "https://a:1", "a" * 300 + ":1",
    ],
)  # fmt: skip
def test_no_addresses(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not host:port|is no unix:/path"):
        parse_address(text)
