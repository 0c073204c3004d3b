"""The page as text: what it says, what it must never contain, and that it is reproducible."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from acpc_lab.campaigns import TaskState
from acpc_lab.report import from_files, receipts, render
from report_samples import changed, judged, renamed, saved, side, sweep

pytestmark = pytest.mark.process  # it draws whole reports


class Outline(HTMLParser):
    """Tags, attributes and ids of a page, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def all(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.tags if tag == name]


@pytest.fixture(scope="module")
def outline(page: str) -> Outline:
    return Outline(page)


def test_the_same_data_gives_the_same_bytes() -> None:
    first, second = (render(sweep(("tworoom",), ("1",), (0, 0.08), ("blur:15",))) for _ in "ab")
    assert first == second


def test_a_name_that_is_markup_stays_text(page: str, outline: Outline) -> None:
    """A hostile checkpoint name is shown, in tables and figures, and never becomes an element."""
    assert "<script>alert" not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") > 3
    assert len(outline.all("script")) == 1


def test_the_page_names_nothing_outside_itself(page: str, outline: Outline) -> None:
    for _, attributes in outline.tags:
        for name in ("src", "href", "xlink:href", "action", "data", "poster", "srcset"):
            value = attributes.get(name)
            assert value is None or value.startswith(("data:", "#")), (name, value)
    style = re.search(r"<style>(.*?)</style>", page, re.S)
    assert style and "url(" not in style[1] and "@import" not in style[1]


def test_ids_are_unique_and_references_lead_somewhere(page: str, outline: Outline) -> None:
    ids = [attributes["id"] for _, attributes in outline.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    wanted = {a["href"][1:] for _, a in outline.tags if (a.get("href") or "").startswith("#")}
    assert wanted <= set(ids)


def test_every_picture_and_figure_says_what_it_shows(outline: Outline) -> None:
    images = outline.all("img")
    assert images and all(image.get("alt") for image in images)
    # Levels and anchors by task and shift; the planes.
    titles = ("Level by level", "Anchor by anchor", "Which checkpoints pass")
    drawn = [image for image in images if (image["alt"] or "").startswith(titles)]
    assert len(drawn) == 2 * 2 * 2 + 2
    assert all(head.get("scope") in ("col", "row") for head in outline.all("th"))


@pytest.mark.parametrize("why", ["", "the job is gone."])
def test_a_cell_without_a_score_and_missing_pictures_say_why(why: str) -> None:
    data = sweep(("tworoom",), ("1",), (0, 0.08), ("blur:15",)).with_(previews_missing=why)
    failed = {"state": TaskState.FAILED, "code": "NOT_FOUND", "message": "no such dataset"}
    page = render(changed(data, 0, score=None, **failed))
    assert "failed: NOT_FOUND: no such dataset" in page
    assert "1 measurement gave no result" in page
    assert f"No pictures: {why or 'none were asked for.'}" in page


def test_a_single_inconclusive_score_without_reference(tmp_path: Path) -> None:
    score = judged(side("alone", 0.05, 3.0), None, shift="blur:15")
    page = render(from_files([saved(tmp_path / "score.json", score)]))
    assert "The screen is inconclusive about alone under gaussian_blur:15." in page
    assert score.verdict.summary.replace("'", "&#39;") in page


def test_names_that_no_page_can_show_and_formulas_are_text() -> None:
    """Control characters, which XML forbids, lone surrogates, which UTF-8 does, and dollars."""
    data = sweep(("a$x_1$", "b"), ("1",), (0.08,), ("blur:15",))
    page = render(renamed(data, "b-s1-a0.08", "a\x00b\x1b[31m\ud800\nc"))
    assert "a\ufffdb\ufffd[31m\ufffd\nc" in page and page.encode()
    assert page.count(': a$x_1$"') == 1  # anchors


def test_receipts_are_told_with_every_value_that_they_hold(tmp_path: Path) -> None:
    """Of each place the first few, marked where there are several."""
    reference, files = side("base", 2.0, 2.0), []
    for number in range(6):
        score = judged(side(f"trained-{number}", 0.2, 2.0), reference, shift="blur:15")
        told = {"protocol": {"draws": 5, "weights": []}, "new": {"key": number}}
        receipt = replace(score.receipt, device=f"cuda:{number % 2}", parameters=told)
        files.append(saved(tmp_path / f"{number}.json", replace(score, receipt=receipt)))
    data = from_files(files)
    found = {name: (values, count) for name, values, count in receipts.receipt(data)}
    assert found["device"] == (("cuda:0", "cuda:1"), 2)
    assert found["parameters.new.key"] == (("0", "1", "2", "3"), 6)
    assert found["parameters.protocol.draws"] == (("5",), 1)
    assert found["anchors.dataset"] == (("two-room.h5",), 1)
    assert not any(
        name.startswith(("image_codec", "parameters.protocol.weights")) for name in found
    )
    page = render(data)
    assert '<dt>device</dt><dd><b class="open">2 values</b>' in page
    assert "<br>and 2 more</dd>" in page
