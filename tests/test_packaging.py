"""The package as others install it: sdist, the wheel built from it, and that wheel away from the checkout."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.packaging

ROOT = Path(__file__).parents[1]
CRATES = ("compiler/core", "runtime/core", "runtime/binding")
PROGRAM = """
import gramary.runtime, gramary.cluster.cli
from gramary.compiler import Compiler, Tokenizer
matcher = Compiler(Tokenizer.from_bytes()).compile_json_schema({"type": "boolean"}).matcher()
assert matcher.accept_bytes(b"true") and matcher.is_complete()
print(gramary.runtime.__file__)
"""


def run(*command: str, **options: Any) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution."""
    out = tmp_path_factory.mktemp("sdist")
    program = "from setuptools.build_meta import build_sdist; import sys; build_sdist(sys.argv[1])"
    run(sys.executable, "-c", program, str(out), cwd=ROOT)
    (path,) = out.glob("*.tar.gz")
    return path


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel, built from the sdist with the cargo cache of this checkout."""
    out = tmp_path_factory.mktemp("wheel")
    target = os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target"))
    command = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(out))
    run(*command, str(sdist), env={**os.environ, "CARGO_TARGET_DIR": target})
    (path,) = out.glob("*.whl")
    return path


def test_the_sdist_has_what_a_build_needs_and_nothing_built(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    files = [path for crate in CRATES for path in (ROOT / crate / "src").rglob("*") if path.is_file()]
    needed = {str(path.relative_to(ROOT)) for path in files} | {f"{crate}/Cargo.toml" for crate in CRATES}
    needed |= {"Cargo.toml", "Cargo.lock", "LICENSE", "compiler/compiler.py"}
    assert needed <= names
    assert not [name for name in names if name.startswith(("target/", ".venv/")) or name.endswith(".so")]


def test_the_wheel_has_the_packages_and_no_rust_sources(wheel: Path) -> None:
    assert "-cp310-abi3-" in wheel.name
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {"gramary/compiler/compiler.py", "gramary/cluster/cli.py", "gramary/runtime/_core.pyi"}
    for package in ("compiler", "runtime", "cluster"):
        modules = (path for path in (ROOT / package).rglob("*.py") if not {"core", "binding"} & set(path.parts))
        expected |= {f"gramary/{path.relative_to(ROOT)}" for path in modules}
    expected |= {f"gramary/{package}/py.typed" for package in ("compiler", "runtime", "cluster")}
    assert expected <= names
    assert any(name.startswith("gramary/runtime/_core.") and name.endswith(".so") for name in names)
    assert not [name for name in names if name.endswith((".rs", ".toml", ".lock"))]


def test_the_wheel_works_away_from_the_checkout(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    run(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site), str(wheel))
    # With -S and this path our dependencies are found, and the editable install of this checkout is not.
    dependencies = [path for path in sys.path if path.endswith("site-packages")]
    environment = {"PYTHONPATH": os.pathsep.join([str(site), *dependencies]), "PATH": os.environ["PATH"]}
    assert run(sys.executable, "-S", "-c", PROGRAM, cwd=tmp_path, env=environment).startswith(str(site))
