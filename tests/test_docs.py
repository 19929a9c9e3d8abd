"""The examples in docstrings and on the documentation's pages run; links between pages lead somewhere."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = [
    "gramary.compiler.compiler",
    "gramary.compiler.errors",
    "gramary.compiler.tokenizer",
    "gramary.runtime.bitmask",
    "gramary.runtime.logits",
    "gramary.runtime.mask_pool",
    "gramary.runtime.serving.openai",
    "gramary.cluster.explain",
    "gramary.cluster.measure",
    "gramary.cluster.wire.errors",
]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


@pytest.mark.parametrize(
    ("page", "needs", "least"),
    [
        ("api.md", [], 11),
        ("masks.md", [], 8),
        ("openai.md", [], 8),
        ("huggingface.md", ["torch", "transformers"], 5),
    ],
)
def test_page_examples(page: str, needs: list[str], least: int) -> None:
    for package in needs:
        pytest.importorskip(package, reason=f"{package} is not installed")
    failed, attempted = doctest.testfile(str(ROOT / "docs" / page), module_relative=False)
    assert failed == 0
    assert attempted >= least


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_every_page_is_listed() -> None:
    listed = (ROOT / "docs/README.md").read_text()
    for page in ROOT.glob("docs/*.md"):
        assert page.name == "README.md" or f"({page.name})" in listed
