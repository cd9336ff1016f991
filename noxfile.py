"""Sessions that test, check, build and show this checkout. `nox -l` lists them.

Needs nox; uses uv where it is installed and virtualenv with pip where it is not. Interpreters that are missing are
skipped, never downloaded. Third-party versions come from tools/constraints.txt; our own four packages come from this
checkout, as ordinary (not editable) installs that are rebuilt every time.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nox

ROOT = Path(__file__).parent
PYPROJECT = nox.project.load_toml("pyproject.toml")
PYTHONS = nox.project.python_versions(PYPROJECT)
THIS_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
SLOW_TESTS_PYTHON = THIS_PYTHON if THIS_PYTHON in PYTHONS else PYTHONS[-1]
CONSTRAINTS = "tools/constraints.txt"
LIBRARIES = ("packages/shardkit", "packages/wdsloader", "packages/resnettrain")
OUR_NAMES = ("shardkit", "wdsloader", "resnettrain", "wds")
SOURCES = tuple(f"{library}/src" for library in LIBRARIES)

# Small checks to run with the python of another environment.
TORCH_IS_ABSENT = "import importlib.util as i, sys; sys.exit(i.find_spec('torch') and 'torch is installed')"
COMES_FROM_A_FOLDER = """
import importlib.metadata, json, sys
for name in sys.argv[1:]:
    assert "dir_info" in json.loads(importlib.metadata.distribution(name).read_text("direct_url.json")), name
"""
KERNEL_IS_COMPLETE = """
import subprocess, sys
import wdsloader._crop as kernel
lines = subprocess.run(["ldd", kernel.__file__], capture_output=True, text=True, check=True).stdout.splitlines()
elsewhere = [line for line in lines if "not found" in line or "jpeg" in line and "wdsloader.libs" not in line]
sys.exit(f"the kernel needs what the wheel does not have: {elsewhere}" if elsewhere else 0)
"""
DECODE_PATH_BEGINS = """
import sys
import wdsloader
assert wdsloader.decode_path().startswith(sys.argv[1]), wdsloader.decode_path()
"""

nox.needs_version = ">=2026.4"
nox.options.sessions = ["tests", "lint", "types"]
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.download_python = "never"
nox.options.error_on_missing_interpreters = False  # nox would fail on them wherever the variable CI is set
os.environ["UV_PYTHON_DOWNLOADS"] = "never"
# As pip does: uv's own certificates fail behind a proxy that has one of its own, where pip has just installed nox.
os.environ.setdefault("UV_SYSTEM_CERTS", "1")
# Where this is set, each of the many processes of the tests compiles torch anew: 13 s of CPU an import instead of 5.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def show_pyenv_pythons() -> None:
    """Put the interpreters that pyenv keeps at the end of PATH: its own shims fail for all but the chosen versions."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    folders = [str(path) for version in PYTHONS for path in sorted(root.glob(f"versions/{version}.*/bin"))]
    os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), *folders])


show_pyenv_pythons()


def group(name: str) -> tuple[str, ...]:
    """Return the requirements of one dependency group of pyproject.toml."""
    return nox.project.dependency_groups(PYPROJECT, name)


def rebuild_ours(session: nox.Session) -> list[str]:
    """Return the options that keep an installer from taking a wheel of ours that it built before."""
    if session.venv_backend != "uv":
        return []  # pip builds local folders anew each time
    return [f"--reinstall-package={name}" for name in OUR_NAMES]


def install(session: nox.Session, *what: str) -> None:
    """Install into the session's environment, third-party versions as locked."""
    session.install("-c", CONSTRAINTS, *rebuild_ours(session), *what)


def install_into(session: nox.Session, python: str, *what: str) -> None:
    """Install into the environment of the given python instead of the session's."""
    if Path(python).with_name("pip").exists():
        session.run(python, "-m", "pip", "install", "-q", *what, external=True)
    else:
        session.run("uv", "pip", "install", "-q", "--python", python, *rebuild_ours(session), *what, external=True)


def scratch_folder(session: nox.Session) -> Path:
    """Return a folder that goes away with the session's environment. (session.create_tmp would move TMPDIR as well.)"""
    folder = Path(session.virtualenv.location).resolve() / "scratch"
    folder.mkdir(exist_ok=True)
    return folder


def bare_environment(session: nox.Session, name: str, *what: str, with_pip: bool = False, locked: bool = True) -> str:
    """Make an empty environment beside the session's own, install into it and return its python."""
    folder = scratch_folder(session) / name
    pip_option = [] if with_pip or session.venv_backend != "uv" else ["--without-pip"]
    session.run("python", "-m", "venv", "--clear", *pip_option, str(folder), silent=True)
    python = str(folder / "bin" / "python")
    if what:
        install_into(session, python, *(["-c", CONSTRAINTS] if locked else []), *what)
    return python


# ------------------------------------------------------------------------------------------------------------- tests


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run the tests: shardkit's without torch, then the rest. Arguments after `--` go to pytest, in one run of all."""
    if session.posargs:
        install(session, ".", *group("test-all"))
        session.run("pytest", *session.posargs)
        return

    with_slow = session.python == SLOW_TESTS_PYTHON
    quick = () if with_slow else ("-m", "not slow and not e2e")
    options = ("-q", "-n", "2", "--dist", "worksteal", "--durations=8", *quick)
    one_thread = {"OMP_NUM_THREADS": "1"}  # two test processes share the cores

    python = bare_environment(session, "shardkit-alone", "packages/shardkit[html,parquet,remote]", *group("test"))
    session.run(python, "-c", TORCH_IS_ABSENT, external=True)
    session.run(python, "-m", "pytest", *options, "tests/shardkit", external=True, env=one_thread)

    install(session, ".", *group("test-all"))
    session.run("pytest", *options, "--ignore=tests/shardkit", "tests", env=one_thread)
    if not with_slow:
        session.log(f"tests marked slow or e2e run under Python {SLOW_TESTS_PYTHON} only")


# -------------------------------------------------------------------------------------------------------------- demo


@nox.session(reuse_venv=True)
def demo(session: nox.Session) -> None:
    """Make shards, check them, train on them, evaluate: `wds demo`. Arguments after `--` go to it."""
    install(session, ".")
    session.run("wds", "demo", *session.posargs)


# ------------------------------------------------------------------------------------------------------------ checks


@nox.session(reuse_venv=True)
def lint(session: nox.Session) -> None:
    """Check style, dependency directions, size budgets and names of hosts."""
    session.install("-c", CONSTRAINTS, *group("lint"))
    session.run("ruff", "check", "--quiet", ".")
    session.run("ruff", "format", "--check", "--quiet", ".")
    # The sources, not an install of them, so that it sees what is in the checkout.
    session.run("lint-imports", "--no-cache", "--no-logo", env={"PYTHONPATH": os.pathsep.join([*SOURCES, "tools"])})
    session.run("python", "tools/check_sizes.py")
    session.run("python", "tools/check_hosts.py")


@nox.session(reuse_venv=True)
def types(session: nox.Session) -> None:
    """Check types: mypy --strict on packages, tools, tests and this file."""
    install(session, ".", *group("test-all"), *group("types"))
    session.run("mypy", *session.posargs)


@nox.session(reuse_venv=True)
def bench(session: nox.Session) -> None:
    """Time wds against its peers, side by side. Arguments after `--` go to `python -m bench` (default: shards).

    The groups are shards, loader, peers (installs them, 25 minutes: give it a quiet machine) and gpu.
    """
    install(session, ".", *group("bench"))
    with session.chdir("tools"):
        session.run("python", "-m", "bench", *(session.posargs or ("shards",)))


@nox.session(venv_backend="none")
def lock(session: nox.Session) -> None:
    """Write tools/constraints.txt anew, with the newest versions that fit. Needs uv."""
    session.run(sys.executable, "tools/lock.py", *session.posargs)


# ------------------------------------------------------------------------------------------------------------- build


@nox.session
def build(session: nox.Session) -> None:
    """Build the four wheels and try them, then `pip install .`, then wdsloader without a compiler; each by itself."""
    install(session, *group("build"))
    scratch = scratch_folder(session)
    wheels = scratch / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)  # with `nox -r` there may be old ones
    for folder in (*LIBRARIES, "."):
        session.run("python", "-m", "build", "--wheel", "--no-isolation", "--outdir", str(wheels), folder, silent=True)
    complete_kernel(session, wheels)
    built = sorted(str(path) for path in wheels.glob("*.whl"))
    if len(built) != len(OUR_NAMES):
        session.error(f"expected {len(OUR_NAMES)} wheels, found {built}")

    # The wheel of `wds` says that the other three are in this checkout. To try the wheels themselves, they go in by
    # path and without dependencies; the third-party ones are named by tools/lock.py. So no index hears our names.
    requirements = scratch / "requirements.txt"
    requirements.write_text(str(session.run("python", "tools/lock.py", "--requirements", silent=True)))
    python = bare_environment(session, "from-wheels", "-r", str(requirements))
    install_into(session, python, "--no-deps", *built)
    if can_build_kernel():
        session.run(python, "-c", KERNEL_IS_COMPLETE, external=True, log=False)
    smoke_test(session, python)

    # What a user types, with the pip that came with this Python and the versions that it picks.
    python = bare_environment(session, "from-checkout", ".", with_pip=True, locked=False)
    session.run(python, "-m", "pip", "check", external=True)
    session.run(python, "-c", COMES_FROM_A_FOLDER, *OUR_NAMES, external=True, log=False)
    smoke_test(session, python)
    try_without_compiler(session)


def can_build_kernel() -> bool:
    """Say whether this machine has what wdsloader's kernel is built with: a C compiler, libjpeg-turbo's headers."""
    program = "#include <stdio.h>\n#include <jpeglib.h>\nint version = LIBJPEG_TURBO_VERSION_NUMBER;\n"
    command = [*shlex.split(os.environ.get("CC", "cc")), "-x", "c", "-fsyntax-only", "-"]
    try:
        return subprocess.run(command, input=program, text=True, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def complete_kernel(session: nox.Session, wheels: Path) -> None:
    """Put libjpeg-turbo into wdsloader's wheel, unless it was linked statically or there is no kernel."""
    if not can_build_kernel():
        session.warn("no C compiler or no headers of libjpeg-turbo: the wheel has no kernel")
        return
    if sys.platform != "linux":
        session.warn("the kernel needs the libjpeg-turbo of this machine: auditwheel knows Linux only")
        return
    (wheel,) = wheels.glob("wdsloader-*.whl")
    session.run("auditwheel", "repair", "--wheel-dir", str(wheels / "repaired"), str(wheel), silent=True)
    wheel.unlink()
    (repaired,) = (wheels / "repaired").glob("*.whl")
    repaired.rename(wheels / repaired.name)


def try_without_compiler(session: nox.Session) -> None:
    """Install from a copy of the sources that no build has touched, with a compiler that fails: what then decodes?"""
    copy = scratch_folder(session) / "sources"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree("packages", copy, ignore=shutil.ignore_patterns("*.so", "build", "*.egg-info", "__pycache__"))
    python = bare_environment(session, "no-compiler")
    session.env["CC"] = "/bin/false"
    try:
        install_into(session, python, str(copy / "shardkit"), str(copy / "wdsloader"))
        session.run(python, "-c", DECODE_PATH_BEGINS, "pillow", external=True, log=False)
        install_into(session, python, str(copy / "shardkit"), f"{copy / 'wdsloader'}[jpeg]")
        session.run(python, "-c", DECODE_PATH_BEGINS, "simplejpeg", external=True, log=False)
    finally:
        del session.env["CC"]


def smoke_test(session: nox.Session, python: str) -> None:
    """Make a shard and look at it with the `wds` beside the given python, in an empty folder."""
    wds = str(Path(python).with_name("wds"))
    with tempfile.TemporaryDirectory() as folder, session.chdir(folder):
        session.run(wds, "--help", silent=True, external=True)
        session.run(python, "-m", "wds", "--help", silent=True, external=True)
        session.run(wds, "make-shards", "--count", "1", external=True)
        shards = sorted(str(path) for path in Path(folder).rglob("*.tar"))
        session.run(python, "-m", "wds", "inspect", *shards, external=True)
