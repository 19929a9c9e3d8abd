"""tests/benchmarks/cold.py, small: it runs, and what the cluster compiles it compiles once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmarks import cold
from tests.cluster.cluster_tools import TOKENIZER


@pytest.mark.parametrize(
    ("arguments", "ways"),
    [
        (["--sets", "3", "--tools", "8", "--pause", "0"], {"cold", "again", "here"}),
        (["--workers", "4", "--tools", "8", "--nodes", "2"], {"cold"}),
    ],
)
def test_cold_tools(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], ways: set[str]) -> None:
    tokenizer = tmp_path / "tokenizer.gramary"
    TOKENIZER.vocabulary.save(str(tokenizer))
    cold.main([*arguments, "--tokenizer", str(tokenizer), "--json"])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["units_compiled"] == told["units_stored"] > 8
    assert told.keys() - {"units_compiled", "units_stored"} == ways
    assert all(0 < told[way]["min"] <= told[way]["p50"] <= told[way]["p90"] for way in ways)
