from __future__ import annotations

import json
import os
import pickle
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from shardkit import Columns, PackError, SourceError, TableSource, UnusableSourcesError, open_table
from tests.helpers.folders import image_folder, pack_folder
from tests.helpers.http_server import Misdeed, serve
from tests.helpers.pictures import encode
from tests.helpers.shards import jpeg_bytes

pyarrow = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402  # behind the check that it is there

ROWS = [("n01/n01_0.JPEG", "tench"), ("n02/n02_1.JPEG", "ant"), ("n03/n03_4.JPEG", "tench")]


def write_table(path: Path, header: list[str], rows: list[tuple[object, ...]]) -> Path:
    """Write a table in the format of its suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        columns = {name: [row[i] for row in rows] for i, name in enumerate(header)}
        pq.write_table(pyarrow.table(columns), path, row_group_size=2)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(dict(zip(header, row, strict=True))) + "\n" for row in rows), "utf-8")
    else:
        delimiter = "\t" if path.suffix == ".tsv" else ","
        lines = [delimiter.join(str(field) for field in row) for row in [tuple(header), *rows]]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def errors(source: TableSource) -> list[str]:
    """Return why samples cannot be made, in the order of the rows."""
    found = []
    for number in range(len(source)):
        try:
            source.sample(number)
        except SourceError as error:
            found.append(str(error))
    return found


def opened(path: Path, **options: Any) -> TableSource:
    return open_table(path, shuffle=False, **options)


class TestFormats:
    @pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
    def test_each_gives_the_bytes_and_the_labels_of_its_rows(self, tmp_path: Path, suffix: str) -> None:
        image_folder(tmp_path)
        source = opened(write_table(tmp_path / f"t.{suffix}", ["path", "label"], list(ROWS)))
        samples = [source.sample(number) for number in range(len(source))]
        assert source.classes == ("ant", "tench")
        assert [dict(sample.members)["cls"] for sample in samples] == [b"1", b"0", b"1"]
        assert [dict(sample.members)["jpg"] for sample in samples] == [jpeg_bytes(n) for n in (0, 1001, 2004)]
        assert [sample.origin for sample in samples] == [path for path, _ in ROWS]
        assert samples[0].key == "00000000_n01_0"

    @pytest.mark.parametrize("name", ["t.txt", "t.xlsx", "t"])
    def test_another_suffix_is_refused(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).write_text("path,label\n")
        with pytest.raises(PackError, match=r"a table ends in one of \.csv"):
            open_table(tmp_path / name)

    def test_a_byte_order_mark_is_no_part_of_the_first_column(self, tmp_path: Path) -> None:
        image_folder(tmp_path)
        (tmp_path / "t.csv").write_text("path,label\r\nn01/n01_0.JPEG,a\r\n", encoding="utf-8-sig")
        assert opened(tmp_path / "t.csv").sample(0).members[0][1] == jpeg_bytes(0)

    def test_quoted_fields_may_hold_the_delimiter(self, tmp_path: Path) -> None:
        image_folder(tmp_path)
        (tmp_path / "n01" / "a, b.jpg").write_bytes(jpeg_bytes(7))
        (tmp_path / "t.csv").write_text('path,label\n"n01/a, b.jpg","x, y"\n')
        source = opened(tmp_path / "t.csv")
        assert (source.classes, source.sample(0).members[0][1]) == (("x, y",), jpeg_bytes(7))

    def test_utf16_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "t.csv").write_text("path,label\n", encoding="utf-16")
        with pytest.raises(PackError, match="UTF-16"):
            open_table(tmp_path / "t.csv")

    @pytest.mark.parametrize("data", [b"", b"PAR1 no more", b"path,label\n"])
    def test_a_parquet_file_that_is_none_is_refused(self, tmp_path: Path, data: bytes) -> None:
        (tmp_path / "t.parquet").write_bytes(data)
        with pytest.raises(PackError, match=r"t\.parquet: no Parquet file"):
            open_table(tmp_path / "t.parquet")

    def test_a_table_without_rows_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(PackError, match="no rows"):
            open_table(write_table(tmp_path / "t.csv", ["path", "label"], []))

    def test_an_open_quote_is_an_error_that_names_the_line(self, tmp_path: Path) -> None:
        (tmp_path / "t.csv").write_text('path,label\na.jpg,x\n"b.jpg,y\n')
        with pytest.raises(PackError, match=r"t\.csv: line 3: "):
            open_table(tmp_path / "t.csv")


class TestColumns:
    @pytest.mark.parametrize("names", [("filename", "class"), ("FILE", "cls"), ("url", "target"), ("image", "Label")])
    def test_usual_names_are_found(self, tmp_path: Path, names: tuple[str, str]) -> None:
        image_folder(tmp_path)
        source = opened(write_table(tmp_path / "t.csv", ["id", *names], [(1, *ROWS[0])]))
        assert (source.columns.image, source.columns.label) == names

    def test_any_can_be_named(self, tmp_path: Path) -> None:
        image_folder(tmp_path)
        table = write_table(tmp_path / "t.csv", ["path", "where", "kind", "id"], [("nowhere", *ROWS[0], "k/1")])
        source = opened(table, columns=Columns("where", "kind", "id"))
        assert source.sample(0).key == "k/1"
        assert source.sample(0).members == (("jpg", jpeg_bytes(0)), ("cls", b"0"))

    @pytest.mark.parametrize(
        ("header", "columns", "reason"),
        [
            (["a", "b"], Columns(), r"There are: a, b\. Name the one with the image \(--image-column\)"),
            (["path", "b"], Columns(), r"Name the one with the label \(--label-column\)"),
            (["path", "url", "label"], Columns(), r"which column is meant is not clear. There are: path, url"),
            (["path", "label"], Columns(label="x"), r"no column 'x'. There are: path, label"),
            (["path", "label"], Columns(key="x"), r"no column 'x'.*--key-column"),
        ],
    )
    def test_what_is_missing_or_not_clear_is_an_error_that_lists_them(
        self, tmp_path: Path, header: list[str], columns: Columns, reason: str
    ) -> None:
        for suffix in ("csv", "jsonl", "parquet"):
            table = write_table(tmp_path / f"t.{suffix}", header, [tuple("xxx"[: len(header)])])
            with pytest.raises(PackError, match=reason):
                open_table(table, columns=columns)

    def test_paths_begin_at_the_tables_folder_or_where_told(self, tmp_path: Path) -> None:
        image_folder(tmp_path / "pictures")
        table = write_table(tmp_path / "tables" / "t.csv", ["path", "label"], [ROWS[0]])
        assert "No such file" in errors(opened(table))[0]
        assert errors(opened(table, root=tmp_path / "pictures")) == []


class TestLabels:
    @pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
    def test_whole_numbers_are_taken_as_they_are(self, tmp_path: Path, suffix: str) -> None:
        image_folder(tmp_path)
        rows: list[tuple[object, ...]] = [(path, label) for (path, _), label in zip(ROWS, (10, 2, 10), strict=True)]
        source = opened(write_table(tmp_path / f"t.{suffix}", ["path", "label"], rows))
        assert [dict(source.sample(n).members)["cls"] for n in range(3)] == [b"10", b"2", b"10"]
        assert (source.classes, source.num_classes) == ((), 11)

    def test_text_that_looks_like_a_number_beside_other_text_is_text(self, tmp_path: Path) -> None:
        source = opened(write_table(tmp_path / "t.csv", ["path", "label"], [("a", "10"), ("b", "2"), ("c", "x")]))
        assert (source.classes, source.num_classes) == (("10", "2", "x"), 3)

    @pytest.mark.parametrize(
        "labels",
        [
            ("0.0", "1.0"), ("0", "1.0"), ("-1", "2.5"), ("1e3",), ("99999999",), ("9" * 19, "1"), ("9" * 5000,), ("",),
        ],
    )  # fmt: skip
    def test_labels_that_cannot_be_classes_are_refused(self, tmp_path: Path, labels: tuple[str, ...]) -> None:
        with pytest.raises(PackError, match="label"):
            open_table(
                write_table(tmp_path / "t.csv", ["path", "label"], [(f"{label}.jpg", label) for label in labels])
            )

    def test_where_no_row_has_a_label_the_first_bad_row_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "t.csv").write_text("path,label\na.jpg,0,more\n")
        with pytest.raises(PackError, match="row 2: 3 fields, the header has 2; no row has a label"):
            open_table(tmp_path / "t.csv")

    def test_an_empty_file_is_told_as_one(self, tmp_path: Path) -> None:
        (tmp_path / "t.csv").touch()
        with pytest.raises(PackError, match="the first line is empty"):
            open_table(tmp_path / "t.csv")

    def test_rows_without_path_or_label_cannot_be_used_and_are_named_by_their_number(self, tmp_path: Path) -> None:
        image_folder(tmp_path)
        path = ROWS[0][0]
        rows: list[tuple[object, ...]] = [(path, 3), ("", 1), (path, ""), (path, "-1"), (" ", " ")]
        source = opened(write_table(tmp_path / "t.csv", ["path", "label"], rows))
        assert [line.partition(": ")[2] for line in errors(source)] == [
            "row 3: no path",
            f"row 4: {path}: no label",
            f"row 5: {path}: a label that is no class: whole numbers from 0 up, or text",
            "row 6:  : no path",
        ]

    def test_json_that_is_no_text_and_no_number_is_no_label(self, tmp_path: Path) -> None:
        image_folder(tmp_path)
        rows: list[tuple[object, ...]] = [(ROWS[0][0], value) for value in (1, True, [1], {"a": 1}, None, 1.5)]
        assert len(errors(opened(write_table(tmp_path / "t.jsonl", ["path", "label"], rows)))) == 5


class TestRows:
    def test_malformed_rows_are_named_by_their_line_and_the_others_packed(self, tmp_path: Path) -> None:
        image_folder(tmp_path)
        good = f"{ROWS[0][0]},1\n".encode()
        (tmp_path / "t.csv").write_bytes(
            b"path,label\n" + good + b"\n" + b"one\n" + b"a,b,c\n" + b"caf\xe9.jpg,1\n" + good
        )
        assert [line.removeprefix("t.csv: ") for line in errors(opened(tmp_path / "t.csv"))] == [
            "row 4: 1 field, the header has 2",
            "row 5: 3 fields, the header has 2",
            "row 6: not UTF-8",
        ]

    def test_lines_that_are_no_json_objects_are_named(self, tmp_path: Path) -> None:
        image_folder(tmp_path)
        good = json.dumps({"path": ROWS[0][0], "label": 1})
        (tmp_path / "t.jsonl").write_text(f'{good}\n\n[1]\n{{"path": \n{{"label": 1}}\n{"[" * 5000}\n')
        assert [line.split(": ")[1:] for line in errors(opened(tmp_path / "t.jsonl"))] == [
            ["row 3", "no JSON object"],
            ["row 4", "no JSON object"],
            ["row 5", "no path"],
            ["row 6", "no JSON object"],
        ]

    def test_a_file_that_is_gone_or_changed_its_size_is_named(self, tmp_path: Path) -> None:
        image_folder(tmp_path)
        source = opened(write_table(tmp_path / "t.csv", ["path", "label"], list(ROWS)))
        (tmp_path / ROWS[0][0]).unlink()
        (tmp_path / ROWS[1][0]).write_bytes(jpeg_bytes(1) + b"more")
        gone, changed = errors(source)
        assert gone.startswith("t.csv: row 2: n01/n01_0.JPEG: No such file")
        assert changed.startswith("t.csv: row 3: n02/n02_1.JPEG: it changed while packing")

    def test_a_picture_without_a_pictures_suffix_gets_that_of_its_content(self, tmp_path: Path) -> None:
        from PIL import Image

        (tmp_path / "0001").write_bytes(encode(Image.new("RGB", (4, 4)), "PNG"))
        (tmp_path / "0002.bin").write_bytes(jpeg_bytes(1))
        source = opened(write_table(tmp_path / "t.csv", ["path", "label"], [("0001", 1), ("0002.bin", 1)]))
        assert [source.sample(n).members[0][0] for n in range(2)] == ["png", "jpg"]

    def test_a_pipe_is_no_picture_and_nobody_waits_for_it(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "x.jpg")
        assert "not a file" in errors(opened(write_table(tmp_path / "t.csv", ["path", "label"], [("x.jpg", 1)])))[0]

    def test_rows_that_cannot_be_used_are_told_before_anything_is_packed(self, tmp_path: Path) -> None:
        image_folder(tmp_path)
        table = write_table(tmp_path / "t.csv", ["path", "label"], [ROWS[0], ("", "x"), ROWS[1], ("a.jpg", "")])
        with pytest.raises(UnusableSourcesError, match=r"2 sources cannot be packed: .*row 3: no path.*row 5: "):
            pack_folder(opened(table), tmp_path / "out")
        assert not (tmp_path / "out").exists()
        manifest = pack_folder(opened(table), tmp_path / "out", on_error="skip")
        assert (manifest.num_samples, len(manifest.skipped)) == (2, 2)


class TestKeys:
    def test_keys_that_cannot_be_stored_or_are_taken_are_refused_never_cut(self, tmp_path: Path) -> None:
        """TAR-11, MK-06."""
        image_folder(tmp_path)
        keys = ["a", "a", "b.c", "", "k" * 300, "x/", ".h", "d.1/e", "café"]
        rows: list[tuple[object, ...]] = [(ROWS[0][0], 1, key) for key in keys]
        source = opened(write_table(tmp_path / "t.csv", ["path", "label", "id"], rows), columns=Columns(key="id"))
        made = [number for number in range(len(keys)) if source.content_sizes(number) != ()]
        assert [source.sample(number).key for number in made] == ["a", "k" * 300, "d.1/e", "café"]
        found = errors(source)
        assert [line.split(": ")[1] for line in found] == ["row 3", "row 4", "row 5", "row 7", "row 8"]
        assert "key 'a' is another row's too" in found[0]

    def test_long_keys_come_back_whole(self, tmp_path: Path) -> None:
        """TAR-11."""
        image_folder(tmp_path)
        rows: list[tuple[object, ...]] = [(ROWS[0][0], 1, "k" * length) for length in (150, 300)]
        table = write_table(tmp_path / "t.csv", ["path", "label", "id"], rows)
        source = open_table(table, columns=Columns(key="id"))
        manifest = pack_folder(source, tmp_path / "out", num_shards=1)
        assert manifest.num_samples == 2


class TestSafety:
    @pytest.mark.parametrize(
        "path",
        [
            "pipe:touch CANARY",
            "file:" + "///etc/passwd",
            "s3://b/x.jpg",
            "ftp://h/x.jpg",
            "FILE:" + "///etc/passwd",
            "gs://x/y",
        ],
    )
    def test_only_http_and_https_are_fetched(self, tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """SEC-01."""
        monkeypatch.chdir(tmp_path)
        found = errors(opened(write_table(tmp_path / "t.csv", ["path", "label"], [(path, 1)])))
        assert "only http and https are fetched, and nothing is run" in found[0]
        assert sorted(entry.name for entry in tmp_path.iterdir()) == ["t.csv"]

    @pytest.mark.parametrize("path", ["x.jpg; touch CANARY", "$(touch CANARY).jpg", "--output=CANARY", "`id`"])
    def test_others_are_plain_names_of_files_that_are_missing(
        self, tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """SEC-01."""
        monkeypatch.chdir(tmp_path)
        assert "No such file" in errors(opened(write_table(tmp_path / "t.csv", ["path", "label"], [(path, 1)])))[0]
        assert sorted(entry.name for entry in tmp_path.iterdir()) == ["t.csv"]


class TestUrls:
    def test_pictures_are_fetched_and_their_size_is_not_known_before(self, tmp_path: Path) -> None:
        image_folder(tmp_path / "web")
        with serve(tmp_path / "web") as server:
            rows: list[tuple[object, ...]] = [(f"{server.url}/{path}?token=secret", label) for path, label in ROWS]
            source = opened(write_table(tmp_path / "t.csv", ["url", "label"], rows))
            sample = source.sample(1)
        assert (source.content_sizes(1), sample.members) == (None, (("jpg", jpeg_bytes(1001)), ("cls", b"0")))
        assert (sample.key, sample.origin) == ("00000001_n02_1", f"{server.url}/n02/n02_1.JPEG")

    def test_a_server_that_is_busy_or_cuts_is_asked_again(self, tmp_path: Path) -> None:
        image_folder(tmp_path / "web")
        with serve(tmp_path / "web") as server:
            path = f"/{ROWS[0][0]}"
            server.misdeeds[path] = [Misdeed(status=503), Misdeed(cut_after=20)]
            source = opened(write_table(tmp_path / "t.csv", ["url", "label"], [(server.url + path, 1)]))
            assert source.sample(0).members[0][1] == jpeg_bytes(0)
            assert server.count(path) == 3

    def test_what_is_not_there_is_named_without_its_secrets(self, tmp_path: Path) -> None:
        (tmp_path / "web").mkdir()
        with serve(tmp_path / "web") as server:
            url = server.url.replace("://", "://user:secret@")
            rows: list[tuple[object, ...]] = [(f"{url}/none.jpg?sig=secret", 1)]
            found = errors(opened(write_table(tmp_path / "t.csv", ["url", "label"], rows)))
        assert found == [f"t.csv: row 2: {server.url}/none.jpg: the server answers 404 Not Found"]

    @pytest.mark.slow
    def test_a_server_that_is_not_there_is_an_error(self, tmp_path: Path) -> None:
        rows: list[tuple[object, ...]] = [("http://127.0.0.1:1/x.jpg", 1)]
        assert "4 tries" in errors(opened(write_table(tmp_path / "t.csv", ["url", "label"], rows)))[0]

    def test_what_is_no_picture_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "web").mkdir()
        (tmp_path / "web" / "x.jpg").write_text("<html>")
        with serve(tmp_path / "web") as server:
            rows: list[tuple[object, ...]] = [(f"{server.url}/x.jpg", 1)]
            assert "not a picture" in errors(opened(write_table(tmp_path / "t.csv", ["url", "label"], rows)))[0]


class TestOrder:
    def table(self, tmp_path: Path) -> Path:
        image_folder(tmp_path, per_class=10)
        rows = [(f"n0{c}/n0{c}_{n}.JPEG", f"c{c}") for c in (1, 2, 3) for n in range(10)]
        return write_table(tmp_path / "t.csv", ["path", "label"], list(rows))

    def test_the_order_depends_on_the_seed_alone(self, tmp_path: Path) -> None:
        table = self.table(tmp_path)
        first, again, other = (open_table(table, seed=seed).fingerprint for seed in (0, 0, 1))
        assert first == again != other

    def test_train_and_val_are_the_whole_table_and_share_nothing(self, tmp_path: Path) -> None:
        table = self.table(tmp_path)
        halves = [open_table(table, split=split, val_share=0.3) for split in ("train", "val")]
        rows = [sorted(half.order.tolist()) for half in halves]
        assert sorted(rows[0] + rows[1]) == list(range(30))
        assert Counter(int(halves[1].labels[row]) for row in rows[1]) == {0: 3, 1: 3, 2: 3}

    def test_a_source_travels_to_other_processes(self, tmp_path: Path) -> None:
        source = open_table(self.table(tmp_path))
        copy = pickle.loads(pickle.dumps(source))
        assert (copy.fingerprint, copy.sample(3)) == (source.fingerprint, source.sample(3))

    def test_any_number_of_processes_packs_the_same_bytes(self, tmp_path: Path) -> None:
        table = self.table(tmp_path)
        for jobs in (1, 2):
            pack_folder(open_table(table), tmp_path / f"out{jobs}", num_shards=3, jobs=jobs)
        one, two = ({path.name: path.read_bytes() for path in (tmp_path / f"out{jobs}").iterdir()} for jobs in (1, 2))
        assert one == two


def test_a_row_is_no_python_object(tmp_path: Path) -> None:
    """A table of 10 million rows takes less than 2 GB, its texts included."""
    table = tmp_path / "t.csv"
    used = {}
    for rows in (2_000, 10_000):
        with table.open("w") as file:
            file.write("path,label\n")
            file.writelines(f"nowhere/picture_{n:07d}.jpg,{n % 100}\n" for n in range(rows))
        tracemalloc.start()
        source = open_table(table)
        used[rows] = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert len(source) == rows
    assert (used[10_000] - used[2_000]) / 8_000 < 120
