"""What is installed: with the compiled kernels where there is a C compiler, without them elsewhere.

Each test builds a wheel as pip does, in an environment of its own with what `pyproject.toml` asks for.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
KERNELS = Path("relayweb", "recording", "kernels")
BUILT = f"compiled{sysconfig.get_config_var('EXT_SUFFIX')}"
needs_compiler = pytest.mark.skipif(
    shutil.which("cc") is None or not Path(sysconfig.get_path("include"), "Python.h").exists(),
    reason="no C compiler, or no headers of this Python",
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """What a wheel is made of, with a compiled module left over from other sources and one of another Python."""
    copy = tmp_path / "source"
    leave = shutil.ignore_patterns("__pycache__", "*.so", "static")
    for name in ("adapters", "relayweb", "templates"):
        shutil.copytree(ROOT / name, copy / name, ignore=leave)
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, copy)
    for name in (BUILT, "compiled.cpython-399-other.so"):
        (copy / KERNELS / name).write_bytes(b"stale")
    return copy


def wheel(source: Path, **environment: str) -> zipfile.ZipFile:
    """Built by pip, with these variables set."""
    target = source.parent / "wheel"
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    (made,) = target.iterdir()
    return zipfile.ZipFile(made)


def modules(made: zipfile.ZipFile) -> list[str]:
    return [name for name in made.namelist() if name.endswith(".so")]


@needs_compiler
def test_a_wheel_holds_the_module_compiled_for_its_python_and_no_other(source: Path, tmp_path: Path) -> None:
    with wheel(source) as made:
        assert modules(made) == [(KERNELS / BUILT).as_posix()]
        assert not str(made.filename).endswith("-any.whl")
        made.extractall(tmp_path / "installed")
    assert not (source / "build").exists()
    said = "from relayweb.recording import kernels; print(kernels.COMPILED, kernels.__file__)"
    path = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    found = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, cwd=tmp_path, env=path)
    assert found.stdout.split() == ["True", str(tmp_path / "installed" / KERNELS / "__init__.py")], found.stderr


def test_without_a_compiler_a_wheel_is_python_alone_and_nothing_of_an_older_source_stays(
    source: Path, tmp_path: Path
) -> None:
    with wheel(source, CC="/nonexistent/cc") as made:
        assert modules(made) == []
        assert str(made.filename).endswith("-py3-none-any.whl")
        assert (KERNELS / "plain.py").as_posix() in made.namelist()
    assert not (source / KERNELS / BUILT).exists()


def test_a_compiled_module_that_lacks_what_is_asked_of_it_is_not_used(tmp_path: Path) -> None:
    shutil.copytree(ROOT / KERNELS, tmp_path / KERNELS, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for package in KERNELS.parents[:-1]:
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / KERNELS / "compiled.py").write_text("from .plain import Names, pack\n")
    said = "from relayweb.recording import kernels; print(kernels.COMPILED, kernels.pack.__module__, kernels.__file__)"
    path = {**os.environ, "PYTHONPATH": str(tmp_path)}
    found = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, cwd=tmp_path, env=path)
    expected = ["False", "relayweb.recording.kernels.plain", str(tmp_path / KERNELS / "__init__.py")]
    assert found.stdout.split() == expected, found.stderr
