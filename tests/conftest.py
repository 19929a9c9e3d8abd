"""What tests share: compilers, and the real tokenizer and catalogue."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from gramary.compiler import Compiler, Tokenizer

# The same examples in every run, so that a failure belongs to the change that it came with.
# GRAMARY_EXPLORE=1 looks for new ones.
settings.register_profile("same", derandomize=True, database=None)
if not os.environ.get("GRAMARY_EXPLORE"):
    settings.load_profile("same")

ROOT = Path(__file__).parents[1]
TEKKEN = ROOT / ".venv" / "data" / "tekken.json"


@pytest.fixture(scope="session")
def byte_compiler() -> Compiler:
    """A compiler for the 256 bytes and one stop token."""
    return Compiler(Tokenizer.from_bytes())


@pytest.fixture(scope="session")
def tekken() -> Tokenizer:
    """A real tokenizer of 131,072 tokens."""
    if not TEKKEN.exists():
        pytest.skip(f"{TEKKEN} is not there; make test puts it there")
    return Tokenizer.from_file(TEKKEN)


@pytest.fixture(scope="session")
def tekken_compiler(tekken: Tokenizer) -> Compiler:
    """A compiler for the real tokenizer, shared: its cache grows over the session."""
    return Compiler(tekken)


@pytest.fixture(scope="session")
def catalogue() -> list[dict[str, Any]]:
    """The bundled tools."""
    with gzip.open(ROOT / "tests" / "data" / "tools.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]
