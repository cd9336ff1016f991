from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from shardkit import CheckOptions, TileOptions, check_shards, check_together, html_report, tiles_of
from tests.helpers.browser import CHROMIUM, Elements, browse
from tests.helpers.http_server import serve
from tests.helpers.pictures import cut_jpeg
from tests.helpers.shards import jpeg_bytes, sample_members, write_samples, write_shard

HOSTILE = "<script>document.title='OWNED'</script><img src='http:&#47;&#47;leak.test'>\"'\x1b[31m"
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")


def page_of(*paths: Path, classes: tuple[str, ...] = (), title: str = "shards") -> str:
    reports = list(check_shards([str(path) for path in paths], CheckOptions()))
    tiles = tiles_of([report.summary for report in reports], TileOptions())
    return html_report(reports, check_together(reports), title=title, tiles=tiles, classes=classes).decode()


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """Three shards: a good one, one with broken pictures and hostile names, one that is not there."""
    folder = tmp_path_factory.mktemp("shards")
    safe = HOSTILE.replace("/", "|").replace(".", "|")
    members = [
        *sample_members(3, first=10),
        (f"{safe}.jpg", jpeg_bytes(3)),
        (f"{safe}.cls", b"4"),
        ("z.jpg", cut_jpeg()),
    ]
    return (write_samples(folder / "a.tar", 5), write_shard(folder / "b.tar", members), folder / "none.tar")


def test_the_page_holds_figures_findings_histograms_samples_and_shards(shards: tuple[Path, ...]) -> None:
    page = page_of(*shards, classes=tuple(f"class {n}" for n in range(10)))
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page.partition("<body>")[2]))
    for words in (
        "3 shards 10 samples 9 whole",
        "error WDS000 once in 1 of 3 shards The run stops at this shard.",
        "What to do: Check the path",
        "Samples a class",
        "4 class 4 2",
        "Pixels a picture",
        "10 samples, spread evenly over all shards",
        "cannot be read: No such file or directory",
    ):
        assert words in text
    assert page.count("data:image/jpeg;base64,") == 9
    assert page.count("<rect") > 10


def test_nothing_is_loaded_and_no_script_runs(shards: tuple[Path, ...]) -> None:
    found = Elements(page_of(*shards, title=HOSTILE, classes=(HOSTILE,) * 10))
    assert not {"script", "link", "iframe", "object", "embed", "base", "form"} & set(found.tags)
    assert found.addresses
    assert all(address.startswith("data:image/jpeg;base64,") for address in found.addresses)
    page = page_of(*shards)
    assert 'http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:;' in page
    assert "\x1b" not in page
    assert "url(" not in page


def test_secrets_of_urls_are_masked(tmp_path: Path) -> None:
    write_samples(tmp_path / "a.tar", 1)
    with serve(tmp_path) as server:
        url = server.url.replace("//", "//me:SECRET@")
        names = [f"{url}/{name}.tar?sig=SECRET" for name in ("a", "none")]
        reports = list(check_shards(names, CheckOptions()))
        tiles = tiles_of([report.summary for report in reports], TileOptions())
    page = html_report(reports, [], title=names[0], tiles=tiles).decode()
    assert "SECRET" not in page
    assert "sig=***" in page


def test_the_same_shards_give_the_same_page(shards: tuple[Path, ...]) -> None:
    assert page_of(*shards) == page_of(*shards)


def test_a_clean_shard_says_so(tmp_path: Path) -> None:
    assert "None: every rule holds." in page_of(write_samples(tmp_path / "a.tar", 1))


def test_many_classes_are_shown_by_range_with_the_fullest_and_the_emptiest(tmp_path: Path) -> None:
    labels = [*range(100), 7, 7]
    path = write_shard(tmp_path / "a.tar", [(f"{n:03d}.cls", b"%d" % label) for n, label in enumerate(labels)])
    page = page_of(path)
    assert "Samples by range of classes" in page
    assert re.search(r"The fullest classes</h3>\s*<div class=\"bars\">\s*<span class=\"name\" title=\"7\">7<", page)


def test_a_page_of_very_many_findings_stays_small(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "a.tar", [(f"{n:04d}.cls", b"x") for n in range(500)])
    page = page_of(path)
    assert page.count("<li>") < 900
    assert "and 300 more" in page


def test_without_jinja2_the_error_says_what_to_install() -> None:
    script = """
import sys
sys.modules["jinja2"] = None
from shardkit import html_report
try: html_report([], [], title="t")
except Exception as error: print(type(error).__name__, error)
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout == "ReportError an HTML report needs jinja2. Install it: pip install 'shardkit[html]'\n"


@needs_browser
class TestInABrowser:
    """The page in a real headless browser, behind a proxy that sees every request."""

    def test_the_page_is_laid_out_and_calls_nobody(self, shards: tuple[Path, ...], tmp_path: Path) -> None:
        page = tmp_path / "page.html"
        page.write_text(page_of(*shards, title=HOSTILE, classes=(HOSTILE,) * 10), encoding="utf-8")
        with serve(tmp_path) as proxy:
            dom = browse(page, "--dump-dom", proxy=proxy.url, cwd=tmp_path)
            assert not [request for request in proxy.requests if "leak.test" in request.path]
        assert "<title>OWNED</title>" not in dom
        found = Elements(dom)
        assert "script" not in found.tags
        assert found.tags.count("img") == 9
        assert dom.count('<div class="box broken">') == 1

    @pytest.mark.slow
    @pytest.mark.parametrize(("width", "height"), [(390, 844), (1280, 900)], ids=["phone", "desktop"])
    @pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
    def test_it_is_readable_at_any_width_light_and_dark(
        self, shards: tuple[Path, ...], tmp_path: Path, width: int, height: int, dark: bool
    ) -> None:
        page = tmp_path / "page.html"
        page.write_text(page_of(*shards), encoding="utf-8")
        options = [f"--window-size={width},{height}", f"--screenshot={tmp_path}/shot.png"]
        options += ["--blink-settings=preferredColorScheme=0"] if dark else []
        with serve(tmp_path) as proxy:
            browse(page, *options, proxy=proxy.url, cwd=tmp_path)
        shot = Image.open(tmp_path / "shot.png").convert("RGB")
        assert shot.size == (width, height)
        colours: dict[Any, int] = {colour: count for count, colour in shot.getcolors(1 << 24) or []}
        paper, card = ((22, 24, 27), (30, 33, 37)) if dark else ((251, 251, 250), (255, 255, 255))
        assert colours[paper] > 0.1 * width * height
        assert colours[card] > 0.1 * width * height
        # Text, and something red: the errors.
        assert sum(count for colour, count in colours.items() if colour not in (paper, card)) > 0.02 * width * height
        assert any(red - max(green, blue) > 80 for red, green, blue in colours)

    def test_the_proxy_would_see_a_call(self, tmp_path: Path) -> None:
        (tmp_path / "page.html").write_text("<img src='http://leak.test/x'>", encoding="utf-8")
        with serve(tmp_path) as proxy:
            browse(tmp_path / "page.html", "--dump-dom", proxy=proxy.url, cwd=tmp_path)
            assert [request for request in proxy.requests if "leak.test" in request.path]
