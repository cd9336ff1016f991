"""How long it takes from nothing to the first batch: our loader and the source's own pipeline on webdataset.

Data: shards of pictures of our own generator, about 110 KB each. An item is a picture of that batch, so the ratio of
two rates is that of two start-ups. Imports are in the time, of torch above all, and so is the start of the http server:
both are the same for both, so the ratio is nearer to 1 than that of the loaders alone.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from bench.paired import Claim, Subject, emptied
from bench.shard_tools import make_data

__all__ = ["CLAIMS", "SUBJECTS", "make_data", "versions"]

_BATCH_SIZE, _NUM_WORKERS = 64, 2


def versions() -> dict[str, str]:
    """Return the versions of what is compared."""
    return {name: version(name) for name in ("webdataset", "torch", "numpy")}


def local_ours(data: Path, _: Path) -> int:
    """Open the folder and take one batch of random crops."""
    return _first_batch(str(data / "shards"), cache=None)


def local_source(data: Path, _: Path) -> int:
    """Take one batch of the source's pipeline from the files."""
    return _first_source_batch(str(data / "shards"), data, cache=None)


def http_ours(data: Path, scratch: Path) -> int:
    """Open the manifest's URL and take one batch, with an empty cache."""
    with _served(data / "shards") as url:
        return _first_batch(f"{url}/{_manifest(data).name}", cache=emptied(scratch))


def http_source(data: Path, scratch: Path) -> int:
    """Take one batch of the source's pipeline from the URLs, with an empty cache."""
    with _served(data / "shards") as url:
        return _first_source_batch(url, data, cache=emptied(scratch))


def _first_batch(location: str, *, cache: Path | None) -> int:
    from wdsloader import AugmentConfig, LoaderConfig, TorchLoader, open_dataset

    config = LoaderConfig(batch_size=_BATCH_SIZE, augment=AugmentConfig(), num_workers=_NUM_WORKERS)
    with open_dataset([location], cache_dir=cache) as dataset, TorchLoader(dataset, config) as loader:
        return len(next(iter(loader)).images)


def _first_source_batch(place: str, data: Path, *, cache: Path | None) -> int:
    from wdsloader import SourceConfig, source_loader

    urls = tuple(f"{place}/{path.name}" for path in sorted((data / "shards").glob("*.tar")))
    config = SourceConfig(urls=urls, batch_size=_BATCH_SIZE, num_workers=_NUM_WORKERS, cache_dir=cache)
    images, _ = next(iter(source_loader(config)))
    return len(images)


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "bench.http_files", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None  # noqa: S101  # a pipe was asked for
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.terminate()


def _manifest(data: Path) -> Path:
    return next((data / "shards").glob("*.manifest.json"))


SUBJECTS: dict[str, Subject] = {
    "local: ours": local_ours,
    "local: source": local_source,
    "http: ours": http_ours,
    "http: source": http_source,
}
CLAIMS = (Claim("local: ours", "local: source", 1.0), Claim("http: ours", "http: source", 1.0))
