"""How log lines look: click-log's handler and formatter, with secrets masked and colour only where it is wanted."""

from __future__ import annotations

import copy
import logging

import click
import click_log
import typer

from wds.text import WIPE, can_redraw, masked, visible, wants_colour

__all__ = ["send_to_stderr"]


def send_to_stderr(names: tuple[str, ...], *, level: int) -> None:
    """Send what these loggers have to say at this level and above to stderr."""
    handler = _Handler()
    handler.setFormatter(_Formatter())
    for name in names:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level)


class _Formatter(click_log.ColorFormatter):  # type: ignore[misc]  # click-log has no types
    def format(self, record: logging.LogRecord) -> str:
        shown = copy.copy(record)
        # Before the colours come in, which are control characters too.
        shown.msg, shown.args = visible(record.getMessage()), None
        text = masked(str(super().format(shown)))
        return text if wants_colour() else click.unstyle(text)


class _Handler(click_log.ClickHandler):  # type: ignore[misc]  # click-log has no types
    def emit(self, record: logging.LogRecord) -> None:
        # Its own would drop the colours that FORCE_COLOR asks for.
        wipe = WIPE if can_redraw() else ""  # there may be a line of progress
        typer.echo(wipe + self.format(record), err=True, color=wants_colour())
