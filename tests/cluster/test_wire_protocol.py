"""The protocol's files and the stubs made of them."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "protos" / "generate.py"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_stubs_are_what_the_files_give(generator: ModuleType) -> None:
    try:
        generator.tools()
    except (subprocess.SubprocessError, OSError) as error:
        shutil.rmtree(generator.TOOLS, ignore_errors=True)
        pytest.skip(f"grpcio-tools cannot be installed here: {error}")
    assert generator.differing() == []


def test_lint_and_compatibility() -> None:
    if not (shutil.which("buf", path=str(Path(sys.executable).parent)) or shutil.which("buf")):
        pytest.skip("buf is not installed (pip install buf-bin)")
    done = subprocess.run([sys.executable, SCRIPT, "lint"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_incompatible_changes_are_found(generator: ModuleType, tmp_path: Path) -> None:
    if not (shutil.which("buf", path=str(Path(sys.executable).parent)) or shutil.which("buf")):
        pytest.skip("buf is not installed (pip install buf-bin)")
    shutil.copytree(ROOT / "protos", tmp_path / "protos")
    changed = tmp_path / "protos" / "gramary" / "v1" / "values.proto"
    changed.write_text(changed.read_text().replace("uint64 cost_ns = 3;", "uint64 cost_ns = 13;"))
    done = subprocess.run([sys.executable, tmp_path / "protos" / "generate.py", "lint"], capture_output=True, text=True)
    assert done.returncode != 0
    assert "cost_ns" in done.stdout + done.stderr
