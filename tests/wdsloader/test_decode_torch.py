"""The device path, on the host: the same batches as the workers', but for the rounding of pixels."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torchvision.io import decode_jpeg

from tests.helpers.http_server import serve
from tests.helpers.jpegs import damaged_jpegs, photo, whole_jpegs
from tests.helpers.pictures import encode, noisy_jpeg
from tests.helpers.shards import write_samples, write_shard
from tests.helpers.slots import fresh_slots
from wdsloader import (
    AugmentConfig,
    Batch,
    ConfigError,
    Dataset,
    EpochAccount,
    LoaderConfig,
    SampleError,
    SampleView,
    TorchLoader,
    open_dataset,
)
from wdsloader.assembly import Part
from wdsloader.decode import Uint8s
from wdsloader.decode_torch import DeviceDecoder
from wdsloader.pipeline import WorkerTask, worker_parts
from wdsloader.session import order_of, plan_of

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")
# As it is called, in the place of what a device would answer.
DECODE = "wdsloader.decode_torch.decode_jpeg"
CONFIG = LoaderConfig(
    batch_size=8, image_size=32, augment=AugmentConfig(), num_workers=0, num_epochs=2, tail="pad", decode="gpu"
)
# Without its tables of quantization: the markers are in order, and no decoder can make pixels of it.
GOOD = encode(photo(60, 40), "JPEG")
UNTABLED = GOOD.replace(b"\xff\xdb", b"\xff\xfe")


def write_pictures(path: Path, pictures: Iterable[bytes]) -> Dataset:
    members = [
        (f"{n:06d}.{kind}", data)
        for n, jpeg in enumerate(pictures)
        for kind, data in (("jpg", jpeg), ("cls", b"%d" % (n % 7)))
    ]
    write_shard(path, members)
    return open_dataset([str(path)])


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """27 photos of many sizes, some of which no device is asked for."""
    sizes = [(60 + 17 * n % 140, 50 + 23 * n % 110) for n in range(27)]
    pictures = [encode(photo(*size, seed=n), "PNG" if n % 9 == 5 else "JPEG") for n, size in enumerate(sizes)]
    return write_pictures(tmp_path_factory.mktemp("photos") / "s.tar", pictures)


def read(dataset: Dataset, config: LoaderConfig, *, state: dict[str, Any] | None = None) -> list[Batch]:
    with TorchLoader(dataset, config, device=CPU) as loader:
        if state is not None:
            loader.load_state_dict(state)
        return [batch for _ in range(2) for batch in loader]


def account_of(dataset: Dataset, config: LoaderConfig) -> EpochAccount:
    with TorchLoader(dataset, config, device=CPU) as loader:
        assert list(loader)
        assert loader.account is not None
        return loader.account


def require_same_but_for_rounding(ours: list[Batch], theirs: list[Batch]) -> None:
    assert len(ours) == len(theirs) > 0
    for one, other in zip(ours, theirs, strict=True):
        assert (one.keys, one.position, one.state) == (other.keys, other.position, other.state)
        assert (one.labels.tolist(), one.weights.tolist()) == (other.labels.tolist(), other.weights.tolist())
        assert (one.images.dtype, one.images.shape) == (torch.uint8, other.images.shape)
        for row in range(len(one.images)):
            assert (one.images[row].int() - other.images[row].int()).abs().float().mean() < 1.0


def filled_slots(dataset: Dataset, config: LoaderConfig) -> list[tuple[Uint8s, Part]]:
    """The slots of one epoch as a worker leaves them, and what it says of each."""
    state = order_of(dataset, config, world_size=1)
    plan = plan_of(state, dataset=dataset, config=config, rank=0, world_size=1)
    assert plan is not None
    task = WorkerTask(table=dataset.table, config=config, plan=plan, state=state)
    slots = list(islice(fresh_slots(config), plan.steps_from(0)))
    return list(zip(slots, worker_parts(task, iter(slots)), strict=True))


def require_same(ours: list[Batch], theirs: list[Batch]) -> None:
    require_same_but_for_rounding(ours, theirs)
    assert all(torch.equal(one.images, other.images) for one, other in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("config", [CONFIG, replace(CONFIG, shuffle=False, augment=None)], ids=["train", "evaluate"])
def test_batches_are_those_of_the_workers(photos: Dataset, config: LoaderConfig) -> None:
    require_same_but_for_rounding(read(photos, config), read(photos, replace(config, decode="cpu")))


def test_every_kind_of_picture_comes_out_as_from_the_workers(tmp_path: Path) -> None:
    dataset = write_pictures(tmp_path / "s.tar", whole_jpegs().values())
    config = replace(CONFIG, shuffle=False, augment=None, num_epochs=1)
    require_same_but_for_rounding(read(dataset, config), read(dataset, replace(config, decode="cpu")))


def test_ordinary_pictures_are_left_to_the_device_and_the_others_are_not(tmp_path: Path) -> None:
    plain = [encode(photo(60, 40).convert(mode), "JPEG") for mode in ("RGB", "L")]
    others = [encode(photo(60, 40), "PNG"), encode(photo(60, 40).convert("CMYK"), "JPEG")]
    dataset = write_pictures(tmp_path / "s.tar", [*plain, *others, encode(photo(60, 40), "JPEG", progressive=True)])
    ((_, part),) = filled_slots(dataset, replace(CONFIG, batch_size=5, shuffle=False, num_epochs=1))
    assert [row.crop is not None for row in part.encoded] == [True, True, False, False, False]


def test_a_picture_larger_than_its_row_is_the_workers_whatever_lies_beside_it(tmp_path: Path) -> None:
    """Decoders differ by rounding: were the room shared, another number of workers would give other bits."""
    large, small = noisy_jpeg(size=(700, 480)), noisy_jpeg()
    assert len(large) > 1 << 18 > len(small)
    config = replace(CONFIG, batch_size=4, shuffle=False, augment=None, num_epochs=1)
    dataset = write_pictures(tmp_path / "s.tar", [large, small, small, large] * 2)
    for _, part in filled_slots(dataset, config):
        assert [row.crop is None for row in part.encoded] == [True, False, False, True]
    ours = read(dataset, config)
    require_same(read(dataset, replace(config, num_workers=3)), ours)
    require_same_but_for_rounding(ours, read(dataset, replace(config, decode="cpu")))


def test_batches_are_the_same_bits_for_any_number_of_workers(photos: Dataset) -> None:
    require_same(read(photos, CONFIG), read(photos, replace(CONFIG, num_workers=2)))


def test_a_resume_goes_on_bit_by_bit(photos: Dataset) -> None:
    whole = read(photos, CONFIG)
    for stop in (2, len(whole) // 2 + 1):
        require_same(read(photos, CONFIG, state=whole[stop - 1].state), whole[stop:])


def test_masked_rows_repeat_a_good_one_also_behind_a_resume(tmp_path: Path) -> None:
    good = [encode(photo(60, 40, seed=n), "JPEG") for n in range(4)]
    dataset = write_pictures(tmp_path / "s.tar", [*good, UNTABLED, UNTABLED, UNTABLED])
    config = replace(CONFIG, batch_size=2, shuffle=False, num_epochs=1, on_error="skip", max_skipped=1.0)
    whole = read(dataset, config)
    assert [batch.keys for batch in whole[2:]] == [(None, None)] * 2
    assert all(torch.equal(row, whole[1].images[1]) for batch in whole[2:] for row in batch.images)
    require_same(read(dataset, config, state=whole[1].state), whole[2:])
    require_same(read(dataset, config, state=whole[2].state), whole[3:])


@pytest.mark.parametrize("device", [CPU, pytest.param(torch.device("cuda:0"), marks=pytest.mark.cuda)])
def test_what_a_device_may_hold_changes_no_pixel(photos: Dataset, device: torch.device) -> None:
    config = replace(CONFIG, shuffle=False, num_epochs=1)
    for memory, part in filled_slots(photos, config):
        whole, piecewise = (
            DeviceDecoder(config, device=device, **options).settle([part], memory, num_rows=8)[1]
            for options in ({}, {"piece_bytes": 50_000})
        )
        for row in part.rows.tolist():
            assert torch.equal(whole[row], piecewise[row])


class TestBadPictures:
    def test_the_account_is_that_of_the_workers(self, tmp_path: Path) -> None:
        pictures = [*damaged_jpegs().values(), UNTABLED, GOOD, b"", UNTABLED]
        dataset = write_pictures(tmp_path / "s.tar", pictures)
        config = replace(CONFIG, on_error="skip", max_skipped=1.0, num_epochs=1)
        ours, theirs = (account_of(dataset, replace(config, decode=decode)) for decode in ("gpu", "cpu"))
        assert ours.to_dict() == theirs.to_dict()
        assert ours.faults == theirs.faults
        assert ours.replaced > 10
        require_same_but_for_rounding(read(dataset, config), read(dataset, replace(config, decode="cpu")))

    def test_a_picture_that_no_decoder_takes_stops_the_run_with_its_place(self, tmp_path: Path) -> None:
        dataset = write_pictures(tmp_path / "s.tar", [GOOD] * 5 + [UNTABLED] + [GOOD] * 2)
        config = replace(CONFIG, shuffle=False)
        said: list[SampleError] = []
        for each in (config, replace(config, decode="cpu")):
            with TorchLoader(dataset, each, device=CPU) as loader:
                with pytest.raises(SampleError) as raised:
                    list(loader)
                assert loader.state_dict()["position"] == 0
            said.append(raised.value)
        assert str(said[0]) == str(said[1])
        assert said[0].key == "000005"
        assert said[0].offset is not None

    def test_what_a_device_refuses_is_decoded_on_the_host_and_said_once(
        self, photos: Dataset, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """As nvJPEG, which gives no picture of a list in which it does not know one."""
        expected = read(photos, CONFIG)

        def decode_few(data: list[Tensor], **options: Any) -> list[Tensor]:
            if any(len(jpeg) % 3 == 0 for jpeg in data):
                raise RuntimeError("nvjpeg: not supported\nException raised from here")
            decoded: list[Tensor] = decode_jpeg(data, **options)
            return decoded

        with TorchLoader(photos, CONFIG, device=CPU) as loader, caplog.at_level(logging.WARNING):
            monkeypatch.setattr(DECODE, decode_few)
            require_same_but_for_rounding([batch for _ in range(2) for batch in loader], expected)
        (said,) = caplog.messages
        assert "cpu does not decode this picture (nvjpeg: not supported): it, and others like it, are decoded" in said

    def test_a_device_without_memory_is_an_error_and_no_refusal(
        self, photos: Dataset, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def decode_none(data: list[Tensor], **options: Any) -> list[Tensor]:
            raise torch.OutOfMemoryError("CUDA out of memory")

        with TorchLoader(photos, CONFIG, device=CPU) as loader:
            monkeypatch.setattr(DECODE, decode_none)
            with pytest.raises(torch.OutOfMemoryError):
                next(iter(loader))

    def test_a_torchvision_that_does_not_decode_there_is_refused_at_once(
        self, photos: Dataset, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def decode_none(data: list[Tensor], **options: Any) -> list[Tensor]:
            raise RuntimeError("built without nvJPEG")

        monkeypatch.setattr(DECODE, decode_none)
        with pytest.raises(ConfigError, match=r"does not decode on 'cpu' \(built without nvJPEG\). Use decode='cpu'"):
            TorchLoader(photos, CONFIG, device=CPU)


def keep_even(view: SampleView, generator: np.random.Generator) -> bool:
    return int(view.key) % 2 == 0


def test_a_filter_works_as_with_the_workers(photos: Dataset) -> None:
    config = replace(CONFIG, keep=keep_even, num_epochs=1)
    require_same_but_for_rounding(read(photos, config), read(photos, replace(config, decode="cpu")))
    assert account_of(photos, config).filtered == (photos.num_samples or 0) // 2


@pytest.mark.parametrize("tail", ["pad", "ragged", "drop"])
def test_shards_without_counts_are_streamed_alike(tmp_path: Path, tail: str) -> None:
    for number in range(2):
        write_samples(tmp_path / f"far/s-{number}.tar", 5, first=5 * number, size=(40, 30))
    config = replace(CONFIG, batch_size=4, tail=tail)  # type: ignore[arg-type]  # one of three
    with serve(tmp_path / "far") as server:
        dataset = open_dataset([server.url + "/s-<0..1>.tar"], cache_dir=tmp_path / "cache")
        ours, theirs = (read(dataset, replace(config, decode=decode)) for decode in ("gpu", "cpu"))
    require_same_but_for_rounding(ours, theirs)
    last = ours[-1]
    assert len(last.images) == {"pad": 4, "ragged": 2, "drop": 4}[tail]
    if tail == "pad":
        assert last.weights.tolist() == [1, 1, 0, 0]
        assert torch.equal(last.images[3], last.images[0])


class TestRefused:
    def test_what_works_on_pixels_in_a_worker(self) -> None:
        with pytest.raises(ConfigError, match="transform works on pixels in a worker, and decode='gpu' has none"):
            replace(CONFIG, transform=lambda view, generator: view.image)
        with pytest.raises(ConfigError, match="dct_scaling works on pixels"):
            replace(CONFIG, dct_scaling=True)

    def test_another_decoder(self) -> None:
        with pytest.raises(ConfigError, match="decode='tpu': choose one of cpu, gpu"):
            replace(CONFIG, decode="tpu")  # type: ignore[arg-type]  # that is the test

    @pytest.mark.parametrize("device", ["tpu", "cuda:x", ""])
    def test_a_device_that_torch_does_not_know(self, photos: Dataset, device: str) -> None:
        with pytest.raises(ConfigError, match=f"decode='gpu' is for a CUDA device, not '{device}'"):
            TorchLoader(photos, CONFIG, device=device)

    def test_a_device_that_is_no_cuda_device(self, photos: Dataset) -> None:
        with pytest.raises(ConfigError, match="decode='gpu' is for a CUDA device, not 'meta'"):
            TorchLoader(photos, CONFIG, device="meta")

    @pytest.mark.cuda
    def test_a_cuda_device_past_the_last(self, photos: Dataset) -> None:
        count = torch.cuda.device_count()
        with pytest.raises(ConfigError, match=f"there is no 'cuda:{count}', the last is 'cuda:{count - 1}'"):
            TorchLoader(photos, CONFIG, device=f"cuda:{count}")

    @pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
    @pytest.mark.parametrize("device", [None, "cuda"])
    def test_a_machine_without_a_cuda_device(self, photos: Dataset, device: str | None) -> None:
        with pytest.raises(ConfigError, match=r"for a CUDA device, and torch finds none\. Use decode='cpu'"):
            TorchLoader(photos, CONFIG, device=device)


@pytest.mark.cuda
class TestOnCuda:
    def test_batches_are_those_of_the_workers(self, tmp_path: Path) -> None:
        """Of pictures whose chroma is whole: how a decoder enlarges it is its own affair."""
        pictures = [encode(photo(90 + 10 * n, 80, seed=n), "JPEG", subsampling="4:4:4") for n in range(11)]
        dataset = write_pictures(tmp_path / "s.tar", [*pictures, encode(photo(60, 40).convert("L"), "JPEG")])
        with TorchLoader(dataset, CONFIG) as loader:
            ours = [batch for _ in range(2) for batch in loader]
        assert {batch.images.device.type for batch in ours} == {"cuda"}
        there = [replace(batch, images=batch.images.cpu()) for batch in ours]
        require_same_but_for_rounding(there, read(dataset, replace(CONFIG, decode="cpu")))

    def test_batches_are_the_same_bits_again_and_behind_a_resume(self, photos: Dataset) -> None:
        with TorchLoader(photos, replace(CONFIG, num_workers=2)) as loader:
            whole = [(batch.state, batch.images.cpu()) for _ in range(2) for batch in loader]
        with TorchLoader(photos, CONFIG) as loader:
            loader.load_state_dict(whole[2][0])
            rest = [batch.images.cpu() for _ in range(2) for batch in loader]
        assert all(torch.equal(one, other) for one, (_, other) in zip(rest, whole[3:], strict=True))

    def test_the_account_of_bad_pictures_is_that_of_the_workers(self, tmp_path: Path) -> None:
        dataset = write_pictures(tmp_path / "s.tar", [*damaged_jpegs().values(), UNTABLED, GOOD])
        config = replace(CONFIG, on_error="skip", max_skipped=1.0, num_epochs=1)
        with TorchLoader(dataset, config) as loader:
            assert list(loader)
            assert loader.account is not None
            ours = loader.account.to_dict()
        assert ours == account_of(dataset, replace(config, decode="cpu")).to_dict()
