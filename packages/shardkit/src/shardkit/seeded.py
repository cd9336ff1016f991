"""Random words and permutations from explicit keys: the one source of chance in packing and loading.

Owns the mapping from a key (a tuple that names its purpose) to Philox words; holds no state. Uses only what numpy
promises to keep: the raw Philox stream and a stable sort. ``Generator`` methods may change between numpy versions.
"""

from __future__ import annotations

import hashlib
import threading

import numpy as np
import numpy.typing as npt

__all__ = ["Key", "seeded_permutation", "seeded_words"]

Key = tuple[int | str, ...]
_THREAD = threading.local()
_NO_WORDS = (0, 0, 0, 0)
# The state of a generator that has drawn nothing yet, but for its key.
_FRESH = {"bit_generator": "Philox", "buffer": _NO_WORDS, "buffer_pos": 4, "has_uint32": 0, "uinteger": 0}


def seeded_words(count: int, *, key: Key) -> npt.NDArray[np.uint64]:
    """Draw random words that depend on the key alone.

    Args:
        key: what the words are for, for example ``(seed, epoch, "shards")``.
    Returns: uint64 (count,), uniform over the whole range.
    Source: Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3 (Philox 4x64-10).
    """
    digest = hashlib.blake2b(_encode(key), digest_size=16).digest()
    if not count:
        return np.empty(0, np.uint64)
    # Not Philox(key=...), which first draws a seed from the system: six times as slow. A state each, so that threads
    # do not meet; of the generator there is one a thread.
    philox = getattr(_THREAD, "philox", None)
    if philox is None:
        philox = _THREAD.philox = np.random.Philox(0)
    low, high = int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")
    philox.state = {**_FRESH, "state": {"counter": _NO_WORDS, "key": (low, high)}}
    return philox.random_raw(count)


def seeded_permutation(count: int, *, key: Key) -> npt.NDArray[np.int64]:
    """Return a permutation of ``range(count)`` that depends on the key alone: int64 (count,)."""
    return np.argsort(seeded_words(count, key=key), kind="stable").astype(np.int64, copy=False)


def _encode(key: Key) -> bytes:
    """Write the key so that no two keys share their bytes: type letter, length, value."""
    parts = []
    for part in key:
        if isinstance(part, str):
            kind, text = b"s", part.encode("utf-8", "surrogateescape")
        else:
            # int() first: a numpy integer and an equal int are one key.
            kind, text = b"i", str(int(part)).encode()
        parts.append(b"%s%d:%s" % (kind, len(text), text))
    return b"".join(parts)
