"""Write small JPEGs of every kind the crop kernel takes into a folder, to fuzz from: ``make_crop_corpus.py FOLDER``."""

from __future__ import annotations

import io
import itertools
import sys
from pathlib import Path

import numpy as np
from PIL import Image

__all__ = ["main"]

_CHOICES = bytes([200, 0, 200, 0, 90, 0, 90, 0, 1, 20, 20, 0])


def main() -> None:
    """Write the pictures, each followed by the twelve bytes that choose its box."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(0).integers(0, 256, (61, 83, 3), dtype=np.uint8)
    picture = Image.fromarray(noise)
    kinds = itertools.product(("L", "RGB"), ("4:4:4", "4:2:2", "4:2:0"), (False, True), (0, 1))
    for number, (mode, subsampling, progressive, rows) in enumerate(kinds):
        buffer = io.BytesIO()
        picture.convert(mode).save(
            buffer, "JPEG", quality=40, subsampling=subsampling, progressive=progressive, restart_marker_rows=rows
        )
        (folder / f"{number:02d}.jpg").write_bytes(buffer.getvalue() + _CHOICES)


if __name__ == "__main__":
    main()
