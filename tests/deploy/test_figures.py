"""No measured figure on a page that no benchmark writes: what looks like one is looked for."""

import re

import pytest
from deployment_files import ROOT

# Numbers with units that are seldom those of a setting.
MEASURED = re.compile(
    r"(?<![\w.^])\d(?:[\d.,]*\d)?"
    r"(?:\s?(?:ms|µs|us|ns|[kMGT]i?B|[GT]FLOPS?)\b|x\b|/s\b|\s(?:microseconds|milliseconds)\b"
    r"|\s(?:times (?:as|the|faster|slower)|(?:calls |jobs |anchors )?a second)\b"
    r"|(?<=\.\d)\s?(?:s\b|%)|(?<=\.\d\d)\s?(?:s\b|%))"
)
WRITTEN = re.compile(r"<!-- figures: .*?<!-- end of figures -->", re.DOTALL)
PLACE = re.compile(r"\{[^{}\n]*\}")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
PAPERS = re.compile(r"## The paper's numbers\n.*?(?=\n## |\Z)", re.DOTALL)
# A decision may tell what it was made by.
ONCE = re.compile(r"(measured|simulated)\s+once\W+in \w+ 20\d\d", re.IGNORECASE)
ALLOWED = {
    "a limit, a default or a threshold": (
        "under 0.3 s",  # of the client's import, which a test holds
        "fit into 64 MiB", "more than 128 MiB", "delay of 20 ms", "for about 1.5 s",
        "at most 0.1 ms", "can hold 15 GiB", "keep 100 MB",
        "whether 128 MiB and a mess", "over 0.5 s", "0.1 s late", "judged at 99.95 %",
        "deadline 0.5 s", "at most 0.1 s.",
    ),
    "follows from shapes, files or definitions": (
        "98,304 numbers, 393 kB", "2^24 numbers, 64 MiB", "some 400 kB", "about 1.5 GB",
        "44 GFLOP", "28.7 GFLOP", "0.532 TFLOP", "1.373 TFLOP", "some 2,000 TFLOP",
        "20 bodies of 63 MiB", "card of 16 GB", "card of 80 GB", "6.5 MB of HDF5",
        "float16, 350 kB",
        "up to ±0.8 s",  # s is a strength
        "up to 0.8 s", "±0.2 s of a turn", "0.2 s of a turn",
    ),
    "the size of an installation": (
        "| 0.1 GB", "| 1.5 GB", "| 6 GB", "that is 1.5 GB", "or 6 GB where", "takes 0.1 GB",
    ),
    "the paper's": ("keeps 0.03 %",),
}  # fmt: skip
PAGES = sorted(
    (
        {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")}
        | {ROOT / "benchmarks/figures.md"}
    )
    - {ROOT / "CHANGELOG.md"}
)


def measured(text: str) -> list[str]:
    """What looks like a measured figure, with the words around it."""
    for apart in (WRITTEN, PAPERS, CODE):
        text = apart.sub("", text)
    text = PLACE.sub("{}", text)
    return [
        " ".join(text[max(0, found.start() - 40) : found.end() + 12].split())
        for found in MEASURED.finditer(text)
    ]


def test_a_page_has_no_measured_figure_that_no_benchmark_writes() -> None:
    allowed = [phrase for phrases in ALLOWED.values() for phrase in phrases]
    for page in PAGES:
        text = page.read_text()
        found = [one for one in measured(text) if not any(phrase in one for phrase in allowed)]
        told_once = page.parent.name == "decisions" and ONCE.search(text)
        assert told_once or found == [], f"{page}: put it into benchmarks/figures.md, or in words"


def test_what_is_allowed_is_on_a_page() -> None:
    found = [one for page in PAGES for one in measured(page.read_text())]
    for phrase in (phrase for phrases in ALLOWED.values() for phrase in phrases):
        assert any(phrase in one for one in found), phrase


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a pool takes 12 ms", 1),
        ("held 1.2 GiB, 3.4x as much, 450 calls a second", 3),
        ("0.4 s, and 5.2 % of it", 2),
        ("95 % after 10 s, in `12 ms`", 0),
        ("<!-- figures: a -->\n12 ms\n<!-- end of figures -->", 0),
    ],
)
def test_what_looks_measured(text: str, expected: int) -> None:
    assert len(measured(text)) == expected
