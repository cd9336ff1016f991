from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from shardkit import Sample, SampleKey
from tests.helpers.jpegs import photo
from tests.helpers.pictures import encode
from tests.helpers.shards import jpeg_bytes, write_samples, write_shard
from tests.helpers.slots import fresh_slots
from wdsloader.assembly import Assembler, Part
from wdsloader.config import AugmentConfig, LoaderConfig
from wdsloader.dataset import Dataset, open_dataset
from wdsloader.decode import HAS_KERNEL, Uint8s
from wdsloader.errors import SampleError
from wdsloader.held import HeldBytes
from wdsloader.order import EpochOrder
from wdsloader.pipeline import WorkerTask, find_good_row, worker_parts
from wdsloader.plan import Plan
from wdsloader.shards import StoredSample
from wdsloader.state import LoaderState
from wdsloader.windows import LaneWindow, Reading

TRAINING = LoaderConfig(batch_size=8, image_size=12, augment=AugmentConfig(), num_epochs=2)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("shards")
    for number, (first, count) in enumerate([(0, 13), (13, 0), (13, 9), (22, 21)]):
        write_samples(folder / f"s-{number}.tar", count, first=first)
    return open_dataset([str(folder / "s-*.tar")])


def task_of(
    dataset: Dataset, config: LoaderConfig, *, rank: int = 0, world_size: int = 1, epoch: int = 0, position: int = 0
) -> WorkerTask:
    state = LoaderState(
        digest=dataset.digest, seed=config.seed, epoch=epoch, position=position,
        lanes=4 if config.shuffle else 0, spans_per_lane=2, block=4, batch=config.batch_size * world_size,
    )  # fmt: skip
    plan = Plan(
        num_samples=dataset.num_samples or 0,
        batch_size=state.batch,
        lanes=state.lanes,
        tail=config.tail,
        rank=rank,
        world_size=world_size,
    )
    return WorkerTask(table=dataset.table, config=config, plan=plan, state=state)


@dataclass(frozen=True, kw_only=True, eq=False)
class Whole(Part):
    """A batch with its pixels."""

    images: Uint8s


def batches(task: WorkerTask, *, num_workers: int = 1) -> list[Whole]:
    # All workers of a batch write into the same memory.
    slots = list(islice(fresh_slots(task.config), 100))
    tasks = [replace(task, worker=worker, num_workers=num_workers) for worker in range(num_workers)]
    assembler = Assembler(find_good=partial(find_good_row, task))
    made = []
    for slot, *parts in zip(slots, *(worker_parts(each, iter(slots)) for each in tasks), strict=False):
        images = slot[: task.plan.rows(parts[0].position)]
        part = assembler.assemble(parts, images=images)
        made.append(Whole(images=images, **{field.name: getattr(part, field.name) for field in fields(part)}))
    return made


def test_batches_are_bit_identical_for_any_number_of_workers(dataset: Dataset) -> None:
    config = replace(TRAINING, tail="pad")
    alone = batches(task_of(dataset, config))
    assert len(alone) == 2 * 6
    for num_workers in (2, 3, 4):
        shared = batches(task_of(dataset, config), num_workers=num_workers)
        for one, other in zip(alone, shared, strict=True):
            assert (one.epoch, one.position, one.keys) == (other.epoch, other.position, other.keys)
            assert np.array_equal(one.images, other.images)
            assert np.array_equal(one.labels, other.labels)
            assert np.array_equal(one.weights, other.weights)


def test_a_sample_has_the_same_pixels_on_every_layout_and_others_in_the_next_epoch(dataset: Dataset) -> None:
    def pixels(world_size: int, epoch: int) -> dict[str | None, bytes]:
        config = replace(TRAINING, batch_size=8 // world_size, tail="pad", num_epochs=epoch + 1)
        found: dict[str | None, bytes] = {}
        for rank in range(world_size):
            for part in batches(task_of(dataset, config, rank=rank, world_size=world_size, epoch=epoch)):
                found |= {key: part.images[row].tobytes() for row, key in enumerate(part.keys) if key is not None}
        return found

    first = pixels(1, 0)
    assert len(first) == 43
    assert pixels(2, 0) == first
    assert sum(pixels(1, 1)[key] == first[key] for key in first) < 5


def test_labels_belong_to_their_keys(dataset: Dataset) -> None:
    for part in batches(task_of(dataset, TRAINING)):
        assert part.labels.tolist() == [int(key or "") % 10 for key in part.keys]


def test_rows_beyond_the_data_repeat_the_first_row_with_weight_zero_and_no_key(dataset: Dataset) -> None:
    last = batches(task_of(dataset, replace(TRAINING, tail="pad", num_epochs=1)))[-1]
    assert last.weights.tolist() == [1, 1, 1, 0, 0, 0, 0, 0]
    assert last.keys[3:] == (None,) * 5
    for row in range(3, 8):
        assert np.array_equal(last.images[row], last.images[0])
        assert last.labels[row] == last.labels[0]


def test_a_rank_without_a_sample_in_the_last_batch_repeats_its_last_good_one(dataset: Dataset) -> None:
    config = replace(TRAINING, batch_size=4, tail="pad", num_epochs=1, shuffle=False, augment=None)
    task = task_of(dataset, replace(config, batch_size=7), rank=5, world_size=6)
    last_two = batches(task)[-2:]
    assert last_two[1].weights.sum() == 0
    assert np.array_equal(last_two[1].images[3], last_two[0].images[6])
    assert last_two[1].labels[0] == last_two[0].labels[6]
    assert last_two[1].keys == (None,) * 7


def test_a_rank_without_any_sample_gets_zeros(tmp_path: Path) -> None:
    write_samples(tmp_path / "s.tar", 1)
    dataset = open_dataset([str(tmp_path / "s.tar")])
    config = replace(TRAINING, batch_size=4, tail="pad", num_epochs=1)
    (batch,) = batches(task_of(dataset, config, rank=1, world_size=2))
    assert batch.images.sum() == batch.weights.sum() == 0
    assert batch.keys == (None,) * 4


def test_a_start_in_the_middle_delivers_what_follows(dataset: Dataset) -> None:
    whole = batches(task_of(dataset, TRAINING))
    rest = batches(task_of(dataset, TRAINING, epoch=0, position=24), num_workers=2)
    assert [part.keys for part in rest] == [part.keys for part in whole[3:]]
    assert all(np.array_equal(a.images, b.images) for a, b in zip(rest, whole[3:], strict=True))


def test_evaluation_reads_in_listed_order(dataset: Dataset) -> None:
    config = replace(TRAINING, shuffle=False, augment=None, tail="ragged", num_epochs=1)
    parts = batches(task_of(dataset, config), num_workers=3)
    assert [len(part.keys) for part in parts] == [8, 8, 8, 8, 8, 3]
    assert [key for part in parts for key in part.keys] == [f"{n:06d}" for n in range(43)]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("a.jpg", jpeg_bytes(0)[:-40]), ("a.cls", b"0")], "'a' at byte 0: jpg: the picture does not decode"),
        ([("a.txt", b"hello"), ("a.cls", b"0")], "'a' at byte 0: no picture in this sample, only cls, txt"),
    ],
)
def test_a_sample_without_a_whole_picture_is_an_error_that_names_it(
    tmp_path: Path, members: list[tuple[str, bytes]], message: str
) -> None:
    dataset = open_dataset([str(write_shard(tmp_path / "s.tar", members))])
    config = replace(TRAINING, batch_size=4, tail="pad")
    with pytest.raises(SampleError, match=message) as caught:
        batches(task_of(dataset, config))
    assert (caught.value.key, caught.value.offset) == ("a", 0)


@pytest.mark.skipif(not HAS_KERNEL, reason="built without the kernel")
def test_dct_scaling_is_asked_for_and_stays_near(tmp_path: Path) -> None:
    picture = encode(photo(160, 120), "JPEG", quality=90)
    write_shard(tmp_path / "s-0.tar", [("a.jpg", picture), ("a.cls", b"0")])
    whole = replace(TRAINING, batch_size=1, image_size=24, augment=None, shuffle=False, num_epochs=1)
    dataset = open_dataset([str(tmp_path / "s-*.tar")])
    exact, scaled = (
        batches(task_of(dataset, replace(whole, dct_scaling=scaling)))[0].images.astype(int)
        for scaling in (False, True)
    )
    assert 0 < np.abs(exact - scaled).mean() <= 5.0


class TestLaneWindow:
    """ORDER.md, steps 4 and 7: blocks are read forward, at most W samples wait, none is read again for nothing."""

    order = EpochOrder([40, 30], seed=1, epoch=0, lanes=2, spans_per_lane=2, block=8)

    def window(self, read: list[int], *, held: HeldBytes | None = None, size: int = 0) -> LaneWindow:
        def reading(sample: int) -> StoredSample:
            read.append(sample)
            return StoredSample("s", Sample(SampleKey(str(sample)), {"jpg": bytes(size)}, 0), -1)

        return LaneWindow(self.order, 1, reading=Reading(read=reading, held=held or HeldBytes(1 << 30)))

    def test_it_reads_the_lane_forward_and_delivers_the_order(self) -> None:
        read: list[int] = []
        window = self.window(read)
        taken = [window.take(offset) for offset in range(35)]
        assert [came.number for came in taken] == self.order.samples(1, first=0, stop=35).tolist()
        assert all(came.found.content.key == str(came.number) for came in taken if isinstance(came.found, StoredSample))
        assert read == self.order.merged(1, first=0, stop=35).tolist()

    def test_at_most_a_block_waits(self) -> None:
        read: list[int] = []
        window = self.window(read)
        for offset in range(35):
            window.take(offset)
            assert len(read) <= (offset // 8 + 1) * 8

    def test_past_the_limit_in_bytes_it_reads_again_in_the_same_order_and_says_once_what_fits(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Case DIST-11, of lanes: pictures of 1 MB, and 3 MB may wait."""
        read: list[int] = []
        held = HeldBytes(3_000_000)
        window = self.window(read, held=held, size=1_000_000)
        peak = 0
        for offset in range(35):
            assert window.take(offset).number == self.order.samples(1, first=offset, stop=offset + 1)[0]
            peak = max(peak, held.num_bytes)
        assert 2_000_000 <= peak <= 3_000_000
        assert held.num_bytes == 0
        assert sorted(read) == sorted(self.order.merged(1, first=0, stop=35).tolist())
        (said,) = caplog.messages
        assert "block=8" in said
        assert "block=3 would fit, or buffer_bytes=8000001" in said

    def test_after_a_resume_it_reads_only_what_was_not_delivered(self) -> None:
        read: list[int] = []
        window = self.window(read)
        taken = [window.take(offset).number for offset in range(13, 16)]
        assert taken == self.order.samples(1, first=13, stop=16).tolist()
        assert sorted(read) == sorted(taken)
