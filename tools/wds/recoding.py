"""What the packing commands do to pictures: re-encode them, or add restart markers to the bytes they have."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardkit import Recode, Transform

__all__ = ["picture_changes", "transform_named"]

_RESTART_MARKERS = "restart-markers"


def picture_changes(
    *, max_size: int | None, quality: int | None, crop_ready: bool
) -> tuple[Recode | None, Transform | None]:
    """Return how pictures are re-encoded, and what is done to the JPEGs that are not.

    Raises: PackError: crop-ready pictures of the original bytes, and a build that cannot make them.
    """
    from shardkit import PackError, Recode
    from wdsloader import ConfigError

    recode = None
    if max_size is not None or quality is not None:
        recode = Recode(max_size_px=max_size, quality=quality, crop_ready=crop_ready)
    if not crop_ready or quality is not None:
        return recode, None
    try:
        return recode, _restart_markers()
    except ConfigError as error:
        raise PackError(f"--crop-ready: {error}. Or re-encode all pictures: --quality 95") from error


def transform_named(name: str | None) -> Transform | None:
    """Return the transform that a plan asks for.

    Raises: PackError: an unknown one. ConfigError: one that this build cannot do.
    """
    from shardkit import PackError

    if name is None:
        return None
    if name != _RESTART_MARKERS:
        raise PackError(f"the plan asks for the transform {name!r}, which is not known here: only {_RESTART_MARKERS!r}")
    return _restart_markers()


def _restart_markers() -> Transform:
    from shardkit import Transform
    from wdsloader import insert_restart_markers, restart_marker_version

    return Transform(name=_RESTART_MARKERS, version=restart_marker_version(), apply=insert_restart_markers)
