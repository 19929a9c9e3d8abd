"""Tokens, keys and certificates: what is accepted, and that they rotate with their files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gramary.cluster.config import ConfigError
from gramary.cluster.credentials import Credentials, TlsMaterial
from gramary.cluster.settings import Settings

OLD, NEW = "old-token-old-token", "new-token-new-token"
KEY, KEY2 = "00" * 32, "11" * 32


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def settings(**sections: Any) -> Settings:
    return Settings.model_validate(sections)


def swap(link: Path, target: Path) -> None:
    """As Kubernetes does it: another link, moved over the old one."""
    fresh = link.with_name("fresh")
    fresh.symlink_to(target)
    os.replace(fresh, link)


def test_nothing_configured() -> None:
    credentials = Credentials(settings())
    assert (credentials.tokens(), credentials.mac_keys(), credentials.tls()) == ((), (), None)


def test_rotation_without_a_gap(tmp_path: Path) -> None:
    for name, text in (("old", OLD), ("new", NEW)):
        (tmp_path / name).write_text(text + "\n")
    current, previous = tmp_path / "current", tmp_path / "previous"
    current.symlink_to(tmp_path / "old")
    previous.symlink_to(tmp_path / "old")
    clock = Clock()
    credentials = Credentials(settings(auth={"token_files": [current, previous]}), clock=clock)
    assert credentials.tokens() == (OLD.encode(), OLD.encode())
    swap(current, tmp_path / "new")
    assert credentials.tokens()[0] == OLD.encode()
    clock.now = 6
    assert credentials.tokens() == (NEW.encode(), OLD.encode())
    assert credentials.generation == 1
    swap(previous, tmp_path / "new")
    assert credentials.refresh(now=True)
    assert credentials.tokens() == (NEW.encode(), NEW.encode())


def test_a_file_that_breaks_keeps_its_last_content(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "key"
    path.write_text(KEY)
    credentials = Credentials(settings(trust={"mac_key_files": [path], "mac_keys": [KEY2]}))
    assert credentials.mac_keys() == (bytes(32), b"\x11" * 32)
    path.write_text("half a ke")
    assert not credentials.refresh(now=True)
    assert not credentials.refresh(now=True)
    assert credentials.mac_keys()[0] == bytes(32)
    assert credentials.stale == [path]
    assert [record.message for record in caplog.records] == ["credential_not_refreshed"]
    path.unlink()
    credentials.refresh(now=True)
    assert credentials.mac_keys()[0] == bytes(32)
    path.write_text(KEY2)
    assert credentials.refresh(now=True)
    assert credentials.stale == []
    assert credentials.mac_keys()[0] == b"\x11" * 32


def test_programs_have_tokens_of_their_own(tmp_path: Path) -> None:
    for name, text in (("nodes", OLD), ("programs", NEW)):
        (tmp_path / name).write_text(text)
    auth = {"token_files": [tmp_path / "nodes"], "client_token_files": [tmp_path / "programs"]}
    credentials = Credentials(settings(auth=auth))
    assert credentials.tokens() == (OLD.encode(),)
    assert credentials.client_tokens() == (NEW.encode(),)


def test_certificates(tmp_path: Path) -> None:
    for name in ("cert", "key", "ca"):
        (tmp_path / name).write_text(name)
    tls = {f"{name}_file": tmp_path / name for name in ("cert", "key", "ca")}
    credentials = Credentials(settings(tls=tls))
    assert credentials.tls() == TlsMaterial(b"cert", b"key", b"ca")
    (tmp_path / "cert").write_text("another")
    assert credentials.refresh(now=True)
    assert credentials.tls() == TlsMaterial(b"another", b"key", b"ca")


@pytest.mark.parametrize(
    ("sections", "field"),
    [
        ({"auth": {"tokens": ["short"]}}, "auth.tokens"),
        ({"auth": {"tokens": ["with a space in it"]}}, "auth.tokens"),
        ({"trust": {"mac_keys": ["00" * 31]}}, "trust.mac_keys"),
        ({"trust": {"mac_keys": ["zz" * 32]}}, "trust.mac_keys"),
        ({"auth": {"token_files": ["/nowhere/token"]}}, "auth.token_files"),
        ({"auth": {"token_files": ["/dev/zero"]}}, "auth.token_files"),
    ],
)
def test_what_is_refused_at_the_start(sections: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError, match=r"openssl|path|right file") as caught:
        Credentials(settings(**sections))
    assert caught.value.problems[0]["field"] == field
