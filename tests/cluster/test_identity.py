"""Settings become the wire's security, and follow their files while it runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gramary.cluster.credentials import Credentials
from gramary.cluster.identity import CLIENT_ROLES, client_security, cluster_mac, server_security
from gramary.cluster.records import Key, Kind, Record
from gramary.cluster.settings import Settings
from gramary.cluster.wire.errors import InsecureAddress, Unauthenticated
from gramary.cluster.wire.security import ALL_ROLES

OLD, NEW, PROGRAM = "old-token-old-token", "new-token-new-token", "program-token-program"


def made(**sections: Any) -> tuple[Settings, Credentials]:
    settings = Settings.model_validate(sections)
    return settings, Credentials(settings, refresh_s=0)


def write(path: Path, text: str) -> Path:
    aside = path.with_name("aside")
    aside.write_text(text)
    os.replace(aside, path)
    return path


def test_on_a_laptop_nothing_is_demanded() -> None:
    settings, credentials = made()
    server, client = server_security(settings, credentials), client_security(settings, credentials)
    server.check_address("127.0.0.1:7171")
    with pytest.raises(InsecureAddress):
        server.check_address("0.0.0.0:7171")
    assert server.authenticate(None, []).roles == ALL_ROLES
    assert client.metadata() == ()
    assert client.credentials() is None
    assert cluster_mac(credentials) is None


def test_tokens_rotate_while_it_runs(tmp_path: Path) -> None:
    first, second = write(tmp_path / "token", OLD), write(tmp_path / "previous", OLD)
    programs = write(tmp_path / "program", PROGRAM)
    auth = {"token_files": [first, second], "client_token_files": [programs], "plaintext": True}
    settings, credentials = made(auth=auth)
    server, client = server_security(settings, credentials), client_security(settings, credentials)
    server.check_address("0.0.0.0:7171")
    assert dict(client.metadata())["authorization"] == f"Bearer {OLD}"
    assert server.authenticate(f"Bearer {OLD}", []).roles == ALL_ROLES
    assert server.authenticate(f"Bearer {PROGRAM}", []).roles == CLIENT_ROLES
    write(first, NEW)
    assert dict(client.metadata())["authorization"] == f"Bearer {NEW}"
    for token in (OLD, NEW):
        assert server.authenticate(f"Bearer {token}", []).roles == ALL_ROLES
    write(second, NEW)
    with pytest.raises(Unauthenticated):
        server.authenticate(f"Bearer {OLD}", [])
    for given in (None, "", "Bearer ", "Bearer nonsense", f"Basic {NEW}"):
        with pytest.raises(Unauthenticated):
            server.authenticate(given, [])


def test_a_token_does_not_cross_a_network_in_the_clear(tmp_path: Path) -> None:
    settings, credentials = made(auth={"token_files": [write(tmp_path / "token", NEW)]})
    with pytest.raises(InsecureAddress):
        client_security(settings, credentials).check_target("node-7:7171")
    client_security(settings, credentials).check_target("127.0.0.1:7171")
    assert NEW not in repr(client_security(settings, credentials))
    assert NEW not in repr(server_security(settings, credentials))


@pytest.mark.parametrize("required", [True, False])
def test_certificates(tmp_path: Path, required: bool) -> None:
    files = {f"{name}_file": write(tmp_path / name, name) for name in ("cert", "key", "ca")}
    settings, credentials = made(tls={**files, "require_client_cert": required, "server_name": "nodes"})
    server, client = server_security(settings, credentials), client_security(settings, credentials)
    assert server.asks_certificate is required
    assert client.tls is not None
    assert (client.tls.ca, client.server_name) == (tmp_path / "ca", "nodes")
    settings, credentials = made(tls={"ca_file": tmp_path / "ca"})
    assert server_security(settings, credentials).tls is None
    assert client_security(settings, credentials).tls is not None


def test_the_mac_rotates(tmp_path: Path) -> None:
    path = write(tmp_path / "key", "00" * 32)
    _, credentials = made(trust={"mac_key_files": [path], "mac_keys": ["11" * 32]})
    mac = cluster_mac(credentials)
    assert mac is not None
    record = Record(Key(Kind.ENTRY, bytes(32), bytes(32), b"s"), b"payload")
    before = mac.seal(record)
    assert mac.check(before)
    write(path, "11" * 32)
    after = mac.seal(record)
    assert after.mac != before.mac
    assert mac.check(after)
    assert not mac.check(before)
    assert not mac.check(record)


def test_two_tokens_that_are_the_same_are_one(tmp_path: Path) -> None:
    same = [write(tmp_path / name, NEW) for name in ("a", "b", "c")]
    settings, credentials = made(auth={"token_files": same[:2], "client_token_files": same[2:]})
    server = server_security(settings, credentials)
    assert [token.secret for token in server.tokens] == [NEW]
    assert server.authenticate(f"Bearer {NEW}", []).roles == ALL_ROLES
