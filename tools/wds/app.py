"""Mount the commands, and turn known errors into one line and an exit code."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from types import FrameType
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from wds.bench import bench
from wds.cache import cache_app
from wds.console import print_error, print_line, setup_logging
from wds.demo import demo
from wds.doctor import doctor
from wds.evaluate import evaluate
from wds.index import index
from wds.inspect import inspect
from wds.lr_find import lr_find
from wds.make_shards import make_shards
from wds.patterns import GreedyCommand, refuse_empty, with_home
from wds.peek import peek
from wds.predict import export, predict
from wds.ranks import claim_error, claim_stop
from wds.recipes import recipes_app
from wds.repair import repair
from wds.report import report
from wds.reshard import reshard
from wds.run_plan import run_plan
from wds.stats import stats
from wds.train import train
from wds.validate import validate

__all__ = ["app", "main"]

_EPILOG = (
    "Exit codes: 0 fine, skips that were asked for included; 1 the data or the run is bad; 2 wrong use or "
    "configuration, nothing matched, or the output exists; 130 Ctrl-C; 143 SIGTERM; 141 closed pipe."
)
_CLOSED_PIPE = 128 + signal.SIGPIPE
_CTRL_C = 128 + signal.SIGINT
_TERMINATED = 128 + signal.SIGTERM


class _Terminated(BaseException):
    """SIGTERM came: what is open is closed on the way out."""


@contextmanager
def _known_endings() -> Iterator[None]:
    """Turn a signal, a closed pipe or a known error into an exit code, with one line on stderr."""
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except TyperException as error:
        raise _wrong_use(error) from None
    except (KeyboardInterrupt, _Terminated) as stop:
        by, code = ("SIGTERM", _TERMINATED) if isinstance(stop, _Terminated) else ("Ctrl-C", _CTRL_C)
        if claim_stop():
            print_error(f"stopped by {by}")
        raise typer.Exit(code) from None
    except BrokenPipeError:
        # Whoever read our output has seen enough.
        _drop_unwritten()
        raise typer.Exit(_CLOSED_PIPE) from None
    except SystemExit as end:
        # rich, which prints the help, answers a closed pipe so, with 1.
        if isinstance(end.__context__, BrokenPipeError):
            _drop_unwritten()
            raise typer.Exit(_CLOSED_PIPE) from None
        raise
    except Exception as error:  # the boundary of the program: known errors end here, others go on
        known = _exit_code(error)
        if known is None:
            raise
        _show(error)
        _drop_unwritten()
        raise typer.Exit(known) from None


def _drop_unwritten() -> None:
    """Drop what stdout does not take: Python would try again at its end, complain, and exit with 120."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Group(TyperGroup):
    """The command group, which knows the libraries' errors."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Read the arguments; the help is printed here."""
        with _known_endings():
            try:
                return super().make_context(*args, **kwargs)
            except OSError as error:
                error.filename = error.filename or "standard output"
                raise

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command, and mend its words.

        A variable of the shell that is not set leaves an empty word, which is never meant.
        """
        name, command, rest = super().resolve_command(ctx, args)
        params = () if command is None else command.params
        valued = {word for param in params for word in param.opts if not getattr(param, "is_flag", False)}
        refuse_empty(rest, options=valued)
        return name, command, with_home(rest)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _known_endings():
            return super().invoke(ctx)


def _exit_code(error: Exception) -> int | None:
    """Return the exit code of a known error, None for one that is a bug of ours."""
    from resnettrain import ConfigError as SettingsError
    from resnettrain import ReportError as RunReportError
    from resnettrain import ResnettrainError, RunFolderError
    from shardkit import PackError, PatternError, ReportError, ShardkitError, UnusableSourcesError
    from wdsloader import ConfigError, WdsloaderError

    if isinstance(error, UnusableSourcesError):
        return 1
    wrong_use = (PatternError, PackError, ReportError, ConfigError, SettingsError, RunFolderError, RunReportError)
    if isinstance(error, wrong_use):
        return 2
    return 1 if isinstance(error, (ShardkitError, WdsloaderError, ResnettrainError, OSError)) else None


def _show(error: Exception) -> None:
    if os.environ.get("WDS_DEBUG") == "1":
        traceback.print_exception(error)
    words = _in_words(error)
    if claim_error(error, words):
        print_error(words)


def _wrong_use(error: TyperException) -> Exception:
    """Say in one line what is wrong with the arguments: Typer's own box breaks paths into pieces."""
    if type(error).__name__ == "NoArgsIsHelpError":  # `wds` alone: Typer shows the help, and knows it by name too
        return error
    context = getattr(error, "ctx", None)
    # Typer checks values with pydantic, whose word for itself this is.
    message = error.format_message().replace("Value error, ", "", 1)
    stop = "" if message.endswith((".", "?")) else "."
    words = message + stop + ("" if context is None else f" See: {context.command_path} --help")
    if claim_error(error, words):
        print_error(words)
    return typer.Exit(error.exit_code)


def _in_words(error: Exception) -> str:
    """Return the message of an error; the system's own without its number, where they name a file."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    return str(error)


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Make WebDataset shards, check them, and train image classifiers from them.",
    epilog=_EPILOG,
)


def _mount(name: str, command: Callable[..., None], *, cls: type[TyperCommand] | None = None) -> None:
    """Mount a command; its help ends with the exit codes, which are the same for all."""
    app.command(name, cls=cls, epilog=_EPILOG)(command)


_mount("make-shards", make_shards, cls=GreedyCommand)
_mount("run-plan", run_plan)
_mount("inspect", inspect)
_mount("validate", validate, cls=GreedyCommand)
_mount("index", index)
_mount("stats", stats)
_mount("peek", peek)
_mount("bench", bench)
_mount("repair", repair)
_mount("reshard", reshard)
_mount("train", train, cls=GreedyCommand)
_mount("lr-find", lr_find, cls=GreedyCommand)
_mount("eval", evaluate)
_mount("predict", predict)
_mount("export", export)
_mount("report", report)
_mount("demo", demo)
_mount("doctor", doctor)
app.add_typer(recipes_app, name="recipes")
app.add_typer(cache_app, name="cache")


def _show_version(wanted: bool) -> None:
    if wanted:
        try:
            print_line(f"wds {version('wds')}")
        except PackageNotFoundError:
            print_line("wds, not installed: run from its sources")
        raise typer.Exit


@app.callback()
def options(
    verbosity: Annotated[
        str, typer.Option("-v", "--verbosity", metavar="LEVEL", help="CRITICAL, ERROR, WARNING, INFO or DEBUG.")
    ] = "INFO",
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Errors only: the same as -v ERROR.")] = False,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Set what every command shares."""
    setup_logging("ERROR" if quiet else verbosity)
    # torch's OpenMP threads spin while they wait, which starves the loader's processes: on 2 cores the same steps took
    # 5 s with this and 15 to 19 s without. OpenMP reads it when torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def main() -> None:
    """Run the command line."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _terminate)
    # Names may hold what the terminal's encoding does not.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="wds")
    except _Terminated:  # while an ending was being told
        sys.exit(_TERMINATED)


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise _Terminated
