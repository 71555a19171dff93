"""Compiles the kernels of the recorder (its loops over bytes) on installation, where the machine has a C compiler.

Where it has none, the same runs in Python: slower, and nothing else is missing.
"""

from __future__ import annotations

import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from Cython.Build import cythonize
from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from setuptools import Distribution, Extension
from setuptools.command.build_ext import build_ext

MODULE = "relayweb.recording.kernels.compiled"
SOURCE = Path(*MODULE.split(".")).with_suffix(".pyx")
BUILT = SOURCE.with_suffix(sysconfig.get_config_var("EXT_SUFFIX"))


class CompileKernels(BuildHookInterface):  # type: ignore[type-arg]
    """Puts the compiled module beside its source, from where an editable install takes it, and into a wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        try:
            compile_kernels(Path(self.root))
        except (Exception, SystemExit) as error:
            (Path(self.root) / BUILT).unlink(missing_ok=True)  # of an older source
            self.app.display_warning(f"the recorder runs in Python alone, which is slower: {error}")
            return
        build_data["artifacts"].append(BUILT.as_posix())
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def compile_kernels(root: Path) -> None:
    """Compile them in place.

    Raises:
        Exception: there is no compiler, or it has no headers of this Python.
    """
    with tempfile.TemporaryDirectory() as folder:
        extension = Extension(MODULE, [str(SOURCE)], extra_compile_args=["-O3", "-g0"])
        compiled = cythonize([extension], build_dir=folder, quiet=True)
        command = build_ext(Distribution({"name": "relayweb", "ext_modules": compiled, "src_root": str(root)}))
        command.inplace, command.build_temp, command.build_lib = True, folder, folder
        command.ensure_finalized()
        command.run()
