from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from shardkit import IlsvrcSource, PackError, SourceError, open_ilsvrc_train, open_ilsvrc_val
from tests.helpers.folders import pack_folder
from tests.helpers.ilsvrc import class_tar, train_archive, val_archive, wnid_of
from tests.helpers.shards import jpeg_bytes, layout, write_shard

N1, N2, N3 = (wnid_of(short) for short in ("n01", "n02", "n03"))


def labels_by_name(source: IlsvrcSource) -> dict[str, int]:
    samples = [source.sample(number) for number in range(len(source))]
    return {sample.origin: int(dict(sample.members)["cls"]) for sample in samples}


class TestTrain:
    def test_pictures_are_read_in_place_with_classes_by_wordnet_id(self, tmp_path: Path) -> None:
        archive = train_archive(tmp_path / "train.tar", {"n02": 2, "n01": 3})
        before = sorted(path.name for path in tmp_path.iterdir())
        source = open_ilsvrc_train(archive, shuffle=False)
        assert source.classes == (N1, N2)
        assert labels_by_name(source) == {f"{N2}_0.JPEG": 1, f"{N2}_1.JPEG": 1} | {
            f"{N1}_{n}.JPEG": 0 for n in range(3)
        }
        sample = source.sample(2)
        assert (sample.key, sample.members[0]) == (f"00000002_{N1}_0", ("jpg", jpeg_bytes(100)))
        assert source.content_sizes(2) == (len(jpeg_bytes(100)), 1)
        assert sorted(path.name for path in tmp_path.iterdir()) == before

    def test_other_members_of_a_class_tar_are_named_as_ignored(self, tmp_path: Path) -> None:
        inner = write_shard(tmp_path / "c.tar", [(f"{N1}_1.JPEG", jpeg_bytes(1)), ("notes.txt", b"x")]).read_bytes()
        source = open_ilsvrc_train(write_shard(tmp_path / "train.tar", [(f"{N1}.tar", inner)]))
        assert (len(source), source.ignored) == (1, (f"{N1}.tar: notes.txt",))

    def test_damaged_and_cut_class_tars_are_all_named(self, tmp_path: Path) -> None:
        whole = class_tar(tmp_path / "c.tar", N1, 2)
        second = layout(whole)[1]
        damaged = whole[: second.header] + b"\xff" * 512 + whole[second.header + 512 :]
        cut = whole[: second.content + 100]
        unended = whole[: second.header]
        names = {N1: whole, N2: damaged, N3: cut, "n04000000": unended, "n05000000": bytes(1024)}
        archive = write_shard(tmp_path / "train.tar", [(f"{wnid}.tar", data) for wnid, data in names.items()])
        with pytest.raises(PackError, match="4 damaged class tars") as caught:
            open_ilsvrc_train(archive)
        message = str(caught.value)
        assert all(f"{wnid}.tar: " in message for wnid in names if wnid != N1)
        assert f"{N1}.tar" not in message
        assert "no end marker" in message
        assert "no picture in it" in message

    @pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
    def test_an_archive_that_was_cut_is_refused(self, tmp_path: Path, share: float) -> None:
        data = train_archive(tmp_path / "whole.tar", {"n01": 9, "n02": 9, "n03": 9}).read_bytes()
        end = layout(data)[-1].content + layout(data)[-1].size
        (tmp_path / "cut.tar").write_bytes(data[: int(end * share)])
        with pytest.raises(PackError, match=r"cut\.tar: .*cut"):
            open_ilsvrc_train(tmp_path / "cut.tar")

    def test_an_archive_that_was_cut_between_two_classes_is_refused(self, tmp_path: Path) -> None:
        data = train_archive(tmp_path / "whole.tar", {"n01": 9, "n02": 9}).read_bytes()
        (tmp_path / "cut.tar").write_bytes(data[: layout(data)[1].header])
        with pytest.raises(PackError, match=r"cut\.tar: no end marker: it was cut"):
            open_ilsvrc_train(tmp_path / "cut.tar")

    def test_the_val_archive_is_told_from_it(self, tmp_path: Path) -> None:
        with pytest.raises(PackError, match=r"ILSVRC2012_val_00000003.JPEG.*--ground-truth"):
            open_ilsvrc_train(val_archive(tmp_path / "val.tar", 3))

    def test_a_class_that_comes_twice_is_refused(self, tmp_path: Path) -> None:
        inner = class_tar(tmp_path / "c.tar", N1, 1)
        with pytest.raises(PackError, match=f"{N1}.tar is there twice"):
            open_ilsvrc_train(write_shard(tmp_path / "train.tar", [(f"{N1}.tar", inner)] * 2))

    def test_a_picture_that_is_none_is_an_unusable_source(self, tmp_path: Path) -> None:
        inner = write_shard(tmp_path / "c.tar", [(f"{N1}_1.JPEG", b"no picture")]).read_bytes()
        source = open_ilsvrc_train(write_shard(tmp_path / "train.tar", [(f"{N1}.tar", inner)]))
        with pytest.raises(SourceError, match=rf"^{N1}_1\.JPEG: not a picture"):
            source.sample(0)

    def test_an_archive_that_shrinks_or_goes_meanwhile_is_named(self, tmp_path: Path) -> None:
        archive = train_archive(tmp_path / "train.tar", {"n01": 2})
        source = open_ilsvrc_train(archive, shuffle=False)
        archive.write_bytes(archive.read_bytes()[:2000])
        with pytest.raises(SourceError, match="has become shorter"):
            source.sample(1)
        archive.unlink()
        with pytest.raises(SourceError, match="No such file"):
            source.sample(1)

    def test_any_number_of_processes_packs_the_same_bytes(self, tmp_path: Path) -> None:
        source = open_ilsvrc_train(train_archive(tmp_path / "train.tar", {"n01": 4, "n02": 4}))
        assert pickle.loads(pickle.dumps(source)).fingerprint == source.fingerprint
        for jobs in (1, 2):
            pack_folder(source, tmp_path / f"out{jobs}", num_shards=2, jobs=jobs)
        one, two = ({path.name: path.read_bytes() for path in (tmp_path / f"out{jobs}").iterdir()} for jobs in (1, 2))
        assert one == two


class TestVal:
    def opened(self, tmp_path: Path, ground_truth: str, *, synsets: str = "", count: int = 3) -> IlsvrcSource:
        archive = val_archive(tmp_path / "val.tar", count)
        (tmp_path / "truth.txt").write_text(ground_truth)
        (tmp_path / "synsets.txt").write_text(synsets)
        table = tmp_path / "synsets.txt" if synsets else None
        return open_ilsvrc_val(archive, ground_truth=tmp_path / "truth.txt", synsets=table)

    def test_wordnet_ids_are_taken_in_the_order_of_the_pictures_numbers(self, tmp_path: Path) -> None:
        source = self.opened(tmp_path, f"{N2}\n{N1}\n{N3}\n")
        assert (source.split, source.classes) == ("val", (N1, N2, N3))
        assert [labels_by_name(source)[f"ILSVRC2012_val_{n:08d}.JPEG"] for n in (1, 2, 3)] == [1, 0, 2]

    @pytest.mark.parametrize("suffix", ["", ".JPEG"])
    @pytest.mark.parametrize("gap", [" ", ", ", "\t"])
    def test_names_with_wordnet_ids_may_come_in_any_order(self, tmp_path: Path, suffix: str, gap: str) -> None:
        lines = [f"ILSVRC2012_val_{n:08d}{suffix}{gap}{wnid}" for n, wnid in ((3, N1), (1, N2), (2, N1))]
        labels = labels_by_name(self.opened(tmp_path, "\n".join(lines)))
        assert [labels[f"ILSVRC2012_val_{n:08d}.JPEG"] for n in (1, 2, 3)] == [1, 0, 0]

    def test_ids_are_taken_through_the_table_of_synsets(self, tmp_path: Path) -> None:
        """The kit's order is not that of WordNet ids: 1 is n02119789, whose number is 278."""
        source = self.opened(tmp_path, "1\n3\n1\n", synsets=f"1 {N3} kit fox\n2 {N1} a\n3 {N2} b\n1001 n09999999 up\n")
        assert source.classes == (N1, N2, N3)
        assert [labels_by_name(source)[f"ILSVRC2012_val_{n:08d}.JPEG"] for n in (1, 2, 3)] == [2, 1, 2]

    def test_ids_without_that_table_are_refused_not_guessed(self, tmp_path: Path) -> None:
        with pytest.raises(PackError, match=r"truth\.txt: line 1: ids, whose order only.*--synsets"):
            self.opened(tmp_path, "1\n2\n3\n")

    @pytest.mark.parametrize(
        ("ground_truth", "synsets", "reason"),
        [
            (f"{N1}\n{N1}\n", "", "2 lines for 3 pictures"),
            ("", "", "an empty file"),
            (f"{N1}\nx\n{N1}\n", "", "line 2: 'x' is no WordNet id"),
            ("1\n2\n9\n", f"1 {N1}\n2 {N2}\n", "line 3: '9' is no WordNet id, nor an id of a class"),
            ("1\n2\n0\n", f"1 {N1}\n2 {N2}\n", "line 3: "),
            ("1\n1\n1\n", f"1 {N1}\n1 {N2}\n", "id 1 is there twice"),
            ("1\n1\n1\n", f"1 {N1}\n2 {N1}\n", "a WordNet id has two ids"),
            ("1\n1\n1\n", "one n01\n", "line 1: not an id and a WordNet id"),
            (f"{N3}\n{N1}\n{N1}\n", f"1 {N1}\n", f"{N3}: not in"),
            (f"a {N1}\nb {N1}\nc {N1}\n", "", "no line for ILSVRC2012_val"),
            (f"a {N1}\na {N1}\nc {N1}\n", "", "line 2: not a file name"),
        ],
    )
    def test_files_that_do_not_fit_are_refused_in_words(
        self, tmp_path: Path, ground_truth: str, synsets: str, reason: str
    ) -> None:
        with pytest.raises(PackError, match=reason):
            self.opened(tmp_path, ground_truth, synsets=synsets)

    def test_pictures_that_are_not_numbered_through_fit_no_lines(self, tmp_path: Path) -> None:
        archive = write_shard(tmp_path / "val.tar", [(f"val_{n}.JPEG", jpeg_bytes(n)) for n in (1, 3)])
        (tmp_path / "truth.txt").write_text(f"{N1}\n{N2}\n")
        with pytest.raises(PackError, match="not numbered from 1 to 2"):
            open_ilsvrc_val(archive, ground_truth=tmp_path / "truth.txt")

    def test_the_train_archive_is_told_from_it(self, tmp_path: Path) -> None:
        archive = train_archive(tmp_path / "train.tar", {"n01": 1})
        (tmp_path / "truth.txt").write_text(f"{N1}\n")
        with pytest.raises(PackError, match="no picture in it"):
            open_ilsvrc_val(archive, ground_truth=tmp_path / "truth.txt")

    def test_a_cut_archive_is_refused(self, tmp_path: Path) -> None:
        archive = val_archive(tmp_path / "val.tar", 3)
        archive.write_bytes(archive.read_bytes()[:3000])
        (tmp_path / "truth.txt").write_text(f"{N1}\n" * 3)
        with pytest.raises(PackError, match="cut"):
            open_ilsvrc_val(archive, ground_truth=tmp_path / "truth.txt")
