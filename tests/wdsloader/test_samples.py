from __future__ import annotations

import io
import pickle
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers.damaged import write_with_bad_pictures
from tests.helpers.http_server import serve
from tests.helpers.shards import jpeg_bytes, sample_members, write_samples, write_shard
from wdsloader import (
    Dataset,
    DatasetError,
    LoaderConfig,
    NoLengthError,
    SampleError,
    SampleStream,
    SampleView,
    TorchLoader,
    open_dataset,
)

CONFIG = LoaderConfig(batch_size=8, image_size=12, num_workers=0, lanes=4, block=4, tail="pad", num_epochs=1)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("shards")
    for number, (first, count) in enumerate([(0, 13), (13, 0), (13, 9), (22, 21)]):
        write_samples(folder / f"s-{number}.tar", count, first=first)
    return open_dataset([str(folder / "s-*.tar")])


def keys(stream: SampleStream) -> list[str]:
    return [sample.key for sample in stream]


def test_samples_come_in_the_order_of_the_batches(dataset: Dataset) -> None:
    with TorchLoader(dataset, CONFIG) as loader:
        batches = [key for batch in loader for key in batch.keys if key is not None]
    assert keys(SampleStream(dataset, CONFIG)) == batches
    assert len(SampleStream(dataset, CONFIG)) == 43


def test_the_ranks_share_the_samples(dataset: Dataset) -> None:
    ranks = [SampleStream(dataset, replace(CONFIG, batch_size=4), rank=rank, world_size=2) for rank in range(2)]
    found = [keys(rank) for rank in ranks]
    assert sorted(found[0] + found[1]) == [f"{n:06d}" for n in range(43)]
    assert [len(rank) for rank in ranks] == [len(part) for part in found]


def test_a_sample_has_its_packed_members_label_and_place(dataset: Dataset) -> None:
    sample = next(iter(SampleStream(dataset, CONFIG)))
    assert set(sample.members) == {"jpg", "cls"}
    assert (sample.number, sample.label, sample.epoch) == (int(sample.key), int(sample.key) % 10, 0)
    assert sample.image is None


def test_after_a_break_and_after_a_resume_the_rest_follows(dataset: Dataset) -> None:
    whole = keys(SampleStream(dataset, CONFIG))
    stream = SampleStream(dataset, CONFIG)
    first = []
    for sample in stream:
        first.append(sample.key)
        if len(first) == 19:
            break
    assert first + keys(stream) == whole
    halted = SampleStream(dataset, CONFIG)
    for number, _ in enumerate(halted):
        if number == 18:
            break
    state = halted.state_dict()
    assert state["position"] == 16
    again = SampleStream(dataset, CONFIG)
    again.load_state_dict(state)
    assert keys(again) == whole[16:]


def test_a_sample_that_cannot_be_delivered_is_left_out_and_counted(tmp_path: Path) -> None:
    members = sample_members(10)
    del members[7]  # the label of the fourth
    dataset = open_dataset([str(write_shard(tmp_path / "s.tar", members))])
    stream = SampleStream(dataset, replace(CONFIG, on_error="skip", max_skipped=3, shuffle=False, lanes=None))
    assert keys(stream) == [f"{n:06d}" for n in range(10) if n != 3]
    assert stream.account is not None
    assert (stream.account.expected, stream.account.delivered, stream.account.replaced) == (10, 9, 1)
    assert stream.account.complete


def test_a_bad_picture_is_no_matter_where_nothing_is_decoded(tmp_path: Path) -> None:
    path = write_with_bad_pictures(tmp_path / "s.tar", 5, bad={2})
    assert len(keys(SampleStream(open_dataset([str(path)]), replace(CONFIG, lanes=None)))) == 5


def wants_even(sample: SampleView, _: object) -> bool:
    return sample.number % 2 == 0


def test_what_a_filter_leaves_out_moves_no_other_sample(dataset: Dataset) -> None:
    whole = keys(SampleStream(dataset, CONFIG))
    stream = SampleStream(dataset, replace(CONFIG, keep=wants_even))
    assert keys(stream) == [key for key in whole if int(key) % 2 == 0]
    assert stream.account is not None
    assert (stream.account.filtered, stream.account.replaced) == (21, 0)


class TestInexact:
    def test_shards_without_counts_give_every_sample_once_and_have_no_length(self, tmp_path: Path) -> None:
        for number in range(2):
            write_samples(tmp_path / f"far/s-{number}.tar", 5, first=5 * number)
        with (
            serve(tmp_path / "far") as server,
            open_dataset([server.url + "/s-<0..1>.tar"], cache_dir=tmp_path / "cache") as dataset,
        ):
            stream = SampleStream(dataset, replace(CONFIG, lanes=None, num_epochs=None))
            epochs = [keys(stream), keys(stream)]
            with pytest.raises(NoLengthError):
                len(stream)
            with TorchLoader(dataset, replace(CONFIG, lanes=None, num_workers=0, tail="ragged")) as loader:
                batches = [key for batch in loader for key in batch.keys]
        assert epochs[0] == batches
        assert epochs[0] != epochs[1]
        assert sorted(epochs[1]) == [f"{n:06d}" for n in range(10)]

    def test_what_cannot_be_delivered_is_left_out_and_counted(self, tmp_path: Path) -> None:
        members = sample_members(5)
        del members[7]  # the label of the fourth
        write_shard(tmp_path / "far/s-0.tar", members)
        config = replace(CONFIG, lanes=None, shuffle=False, on_error="skip", max_skipped=3)
        with (
            serve(tmp_path / "far") as server,
            open_dataset([server.url + "/s-<0..1>.tar"], cache_dir=tmp_path / "cache") as dataset,
        ):
            stream = SampleStream(dataset, config)
            assert keys(stream) == ["000000", "000001", "000002", "000004"]
            account = stream.account
            with pytest.raises(SampleError, match="000003"):
                keys(SampleStream(dataset, replace(config, on_error="stop")))
        assert account is not None
        assert (account.delivered, account.replaced, len(account.lost_shards), account.complete) == (4, 1, 1, True)

    def test_exact_makes_it_an_error(self, tmp_path: Path) -> None:
        dataset = open_dataset(["http://host/s-0.tar"], cache_dir=tmp_path)
        with pytest.raises(DatasetError, match="wds index"):
            SampleStream(dataset, replace(CONFIG, exact=True, lanes=None))


class Canary:
    """A pickle that leaves its mark where it is opened."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self._mark,)


def test_names_that_lead_elsewhere_write_nothing_there_and_pickled_parts_stay_closed(tmp_path: Path) -> None:
    """SEC-02, SEC-03, over http with a cache; the second way in is the index that is made on first use."""
    evil = pickle.dumps(Canary(tmp_path / "canary"))
    names = ["../../escape", "/tmp/escape", "000000"]
    parts = [("jpg", jpeg_bytes(1)), ("cls", b"1"), ("pyd", evil), ("pkl", evil)]
    members = [(f"{name}.{extension}", content) for name in names for extension, content in parts]
    write_shard(tmp_path / "far/s.tar", members)
    config = replace(CONFIG, lanes=None, shuffle=False)
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    with serve(tmp_path / "far") as server:
        for place in (server.url + "/s.tar", str(tmp_path / "far/s.tar")):
            with open_dataset([place], cache_dir=tmp_path / "cache") as dataset:
                assert keys(SampleStream(dataset, config)) == names
                with TorchLoader(dataset, replace(config, tail="ragged")) as loader:
                    assert sum(len(batch.keys) for batch in loader) == 3
    made = {path for path in tmp_path.rglob("*") if path.is_file()} - before
    assert all(path.parent == tmp_path / "cache" or path.name == "s.tar.index.json" for path in made)


def test_a_shard_of_very_many_members_is_read_in_little_memory(tmp_path: Path) -> None:
    """KEY-15: memory is a matter of the index, some 100 bytes a sample, not of what was read."""
    path = write_shard(tmp_path / "s.tar", [(f"{n:06d}.cls", b"1") for n in range(2000)])
    config = replace(CONFIG, lanes=None, shuffle=False, labels="optional")
    with open_dataset([str(path)]) as dataset:
        tracemalloc.start()
        assert sum(1 for _ in SampleStream(dataset, config)) == 2000
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 2 << 20


def test_webdatasets_own_decoders_and_stages_take_these_samples(dataset: Dataset) -> None:
    webdataset = pytest.importorskip("webdataset")
    image = pytest.importorskip("PIL.Image")
    dicts = [sample.as_dict() for sample in SampleStream(dataset, CONFIG)]
    decode, fields = webdataset.decode("pil"), webdataset.to_tuple("jpg", "cls", "__key__")
    stages = fields(decode(dicts))
    for (picture, label, key), packed in zip(stages, dicts, strict=True):
        assert picture.size == image.open(io.BytesIO(packed["jpg"])).size  # type: ignore[arg-type]  # bytes
        assert (label, key) == (int(key) % 10, packed["__key__"])
