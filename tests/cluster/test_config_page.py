"""docs/configuration.md says what the settings say, and its example loads."""

from __future__ import annotations

import re
from pathlib import Path

from gramary.cluster.config import load
from tests.cluster.config_page import PAGE, updated


def test_the_reference_is_current() -> None:
    page = PAGE.read_text()
    assert page == updated(page), "run: python -m tests.cluster.config_page"


def test_the_example_is_usable(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for name in ("tls.crt", "tls.key", "ca.crt", "token", "mac-key"):
        (tmp_path / name).write_text("0" * 64)
    file = tmp_path / "gramary.toml"
    file.write_text(re.sub(r"/etc/gramary/(tls|secrets)", str(tmp_path), example))
    settings = load(file, role="agent", environ={})
    assert settings.store.budget_bytes == 50 << 30
    assert settings.advertised() == "node-7.example.net:7171"


def test_the_workers_variables_are_usable() -> None:
    environ = dict(re.findall(r"export (GRAMARY_\w+)=(\S+)", PAGE.read_text()))
    assert load(role="worker", environ=environ).client.address == "unix:/run/gramary/agent.sock"
