"""Random words and permutations from explicit keys: the one source of chance in packing and loading.

Owns the mapping from a key (a tuple that names its purpose) to Philox words; holds no state. Uses only what numpy
promises to keep: the raw Philox stream and a stable sort. ``Generator`` methods may change between numpy versions.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

__all__ = ["Key", "seeded_permutation", "seeded_words"]

Key = tuple[int | str, ...]


def seeded_words(count: int, *, key: Key) -> npt.NDArray[np.uint64]:
    """Draw random words that depend on the key alone.

    Args:
        key: what the words are for, for example ``(seed, epoch, "shards")``.
    Returns: uint64 (count,), uniform over the whole range.
    Source: Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3 (Philox 4x64-10).
    """
    digest = hashlib.blake2b(_encode(key), digest_size=16).digest()
    philox = np.random.Philox(key=int.from_bytes(digest, "little"))
    return philox.random_raw(count) if count else np.empty(0, np.uint64)


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
