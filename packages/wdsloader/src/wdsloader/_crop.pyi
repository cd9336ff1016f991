"""The crop kernel (src/kernel). Absent where it could not be built; ``wdsloader.decode`` then does without."""

import numpy as np
import numpy.typing as npt

# The kernel's own version: another one may take other pictures or give other pixels.
VERSION: str
# The JPEG library it was built with, by name and version.
LIBJPEG: str

def read_size(data: bytes, /) -> tuple[int, int] | None:
    """Return (width, height) in pixels as the header tells; None: not a picture for the kernel, Pillow may know it."""

def crop(
    data: bytes, box: tuple[float, float, float, float], out: npt.NDArray[np.uint8], flip: bool, dct_scaling: bool, /
) -> str | None:
    """Write the box (x, y, width, height), resized and mirrored if ``flip``, into ``out``: C-contiguous (h, w, 3).

    Returns: None: done. A string: why the picture is not for the kernel; ``out`` then holds anything.
    Raises: ValueError: ``out`` has another form. MemoryError.
    """

def normalize(
    images: npt.NDArray[np.uint8],
    out: npt.NDArray[np.float32] | npt.NDArray[np.int16],
    shift: tuple[float, float, float],
    scale: tuple[float, float, float],
    channels_last: bool,
    /,
) -> None:
    """Write (value - shift) * scale of the pixels (n, h, w, 3) into ``out``: C-contiguous, as many numbers.

    Numbers of 4 bytes are float32, of 2 bytes bfloat16. They lie pixel by pixel, or picture by picture in planes.
    Raises: ValueError: arrays of other forms.
    """

def insert_restarts(data: bytes, interval: int, /) -> bytes | str:
    """Return the picture with a restart marker after every ``interval`` units, or why it cannot be had.

    Raises: ValueError: ``interval`` outside of 1..65535. MemoryError.
    """
