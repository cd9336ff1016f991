"""Build the crop kernel, ``wdsloader._crop``, where a C compiler and libjpeg-turbo's headers are; else do without.

Without it the package installs all the same and decodes with simplejpeg, if that is there, or Pillow. The rest of the
metadata is in pyproject.toml.
"""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
import tempfile
from atexit import register
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCES = Path("src", "kernel")
# One wheel for Python 3.11 and later; free-threaded builds of Python have no limited API.
LIMITED = not sysconfig.get_config_var("Py_GIL_DISABLED")
HIDDEN = "-Wl,--exclude-libs,ALL"  # other packages bring a libjpeg of their own; the two must not meet


class BuildKernel(build_ext):
    """Link libjpeg-turbo into the kernel where there is a static one that can be, else against the shared one."""

    def build_extension(self, ext: Extension) -> None:
        """Build one extension."""
        static = self._static_library()
        if static is None:
            ext.libraries = ["jpeg"]
        else:
            ext.extra_objects, ext.extra_link_args = [static], [HIDDEN]
        super().build_extension(ext)

    def _static_library(self) -> str | None:
        """Return the path of a libjpeg.a that is position-independent; Debian's is not."""
        compiler = self.compiler.compiler_so[0]
        try:
            path = _output(compiler, "-print-file-name=libjpeg.a")
            whole = ["-Wl,--whole-archive", path, "-Wl,--no-whole-archive"]
            _output(compiler, "-shared", *whole, "-o", str(Path(temporary_folder(), "probe.so")))
        except (OSError, subprocess.CalledProcessError):
            return None
        return path if Path(path).is_absolute() else None


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def temporary_folder() -> str:
    """Return a folder that goes when this process ends: a `build/` left behind would bring its old kernel back."""
    folder = tempfile.mkdtemp(prefix="wdsloader-build-")
    register(shutil.rmtree, folder, ignore_errors=True)
    return folder


kernel = Extension(
    "wdsloader._crop",
    sources=sorted(str(path) for path in SOURCES.glob("*.c")),
    depends=sorted(str(path) for path in SOURCES.glob("*.h")),  # what is not named is in no sdist
    define_macros=[("_GNU_SOURCE", None), *([("Py_LIMITED_API", "0x030B0000")] if LIMITED else [])],
    # Without contraction: clang on ARM would round a product and its sum once where x86 and Pillow round twice.
    extra_compile_args=["-std=c11", "-O3", "-fvisibility=hidden", "-ffp-contract=off"],
    py_limited_api=LIMITED,
    optional=True,
)
options = {"build": {"build_base": temporary_folder()}}
if LIMITED:
    options["bdist_wheel"] = {"py_limited_api": "cp311"}
setup(ext_modules=[kernel], cmdclass={"build_ext": BuildKernel}, options=options)
