"""A bundle is written whole, verifies, is drawn again alike, and no change to it goes unseen."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from acpc_client.errors import ArgumentError
from acpc_lab.studies import STUDIES, Evidence, bundle, paper
from acpc_lab.studies.bundle import verify
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from study_examples import geometry

SHIFTS = Evidence.of(STUDIES["shifts"], paper.shift_rows())


def write(folder: Path, evidence: Evidence, **options: Any) -> bundle.Bundle:
    source = {"kind": "file", "name": "pairs.csv", "sha256": "00"}
    return bundle.write(folder, evidence, sources=[source], **options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studies") / "shifts"
    write(folder, SHIFTS, inputs={"pairs.csv": b"as given\n"})
    return folder


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "figures", "files"), [("shifts", ["bars"], 3), ("geometry", ["numbers", "tsne"], 4)]
)
def test_a_study_comes_back_from_its_folder_byte_by_byte(
    name: str, figures: list[str], files: int, tmp_path: Path
) -> None:
    """It verifies, and what is read writes and draws an equal folder, arrays included."""
    evidence = geometry() if name == "geometry" else SHIFTS
    given = {"inputs": {"pairs.csv": b"as given\n"}}
    held = write(tmp_path / "first", evidence, **given)
    bundle.draw(held, evidence)
    found = verify(held.folder)
    assert (found.study, found.difference, found.largest_difference) == (name, None, 0)
    assert found.files == files and found.values > 10
    read = bundle.read(held.folder)
    again = read.evidence()
    assert (again.summary, again.parameters) == (evidence.summary, evidence.parameters)
    written = write(tmp_path / "again", again, **given)
    assert written.digest == read.digest == held.digest
    bundle.draw(written, again)
    content, second = (
        {str(x.relative_to(folder)): x.read_bytes() for x in folder.rglob("*") if x.is_file()}
        for folder in (held.folder, written.folder)
    )
    assert content == second
    assert {f"figures/{x}.{kind}" for x in figures for kind in ("png", "svg")} < content.keys()


def test_the_figures_of_an_earlier_release_neither_count_nor_disturb(copy: Path) -> None:
    manifest = json.loads((copy / "study.json").read_text())
    assert manifest["figures"] == {}
    digest = bundle.read(copy).digest
    (copy / "study.json").write_text(json.dumps(manifest | {"figures": {"figures/bars.svg": "0"}}))
    assert verify(copy).difference is None and bundle.read(copy).digest == digest


@pytest.mark.parametrize("name", ["rows.csv", "summary.json", "inputs/pairs.csv"])
@pytest.mark.parametrize("change", ["edit", "delete"])
def test_a_changed_file_is_named(copy: Path, name: str, change: str) -> None:
    if change == "delete":
        (copy / name).unlink()
    else:
        (copy / name).write_bytes((copy / name).read_bytes() + b" ")
    difference = verify(copy).difference
    assert difference.startswith(name)
    assert ("is missing" in difference) == (change == "delete")


def forge(folder: Path, name: str, content: bytes) -> str:
    """Changes a file and its digest, as someone would who wants another number.

    Returns what verification says of it.
    """
    (folder / name).write_bytes(content)
    manifest = json.loads((folder / "study.json").read_text())
    manifest["files"][name] = hashlib.sha256(content).hexdigest()
    (folder / "study.json").write_text(json.dumps(manifest))
    return str(verify(folder).difference)


def leaves(value: Any) -> list[tuple[Any, Any]]:
    """Every value that holds no others, as its holder and key."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    nested = [leaves(v) if isinstance(v, dict | list) else [(value, k)] for k, v in items]
    return [leaf for found in nested for leaf in found]


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_no_forged_number_of_the_summary_goes_unseen(copy: Path, data: st.DataObject) -> None:
    """Whatever value of the summary is changed, it is the first difference that is named."""
    original = (copy / "summary.json").read_bytes()
    summary = json.loads(original)
    holder, last = data.draw(st.sampled_from(leaves(summary)))
    match holder[last]:
        case bool() as flag:
            holder[last] = not flag
        case str() as text:
            holder[last] = text + "x"
        case None:
            holder[last] = 0.0
        case number:
            others = [number + 1e-6 + abs(number) * 1e-6, None, "1", True]
            holder[last] = data.draw(st.sampled_from(others))
    difference = forge(copy, "summary.json", json.dumps(summary).encode())
    (copy / "summary.json").write_bytes(original)
    assert difference.startswith("summary.json, ") and str(last) in difference
    assert ", wanted " in difference


def test_forged_rows_give_another_summary(copy: Path) -> None:
    rows = (copy / "rows.csv").read_text()
    changed = rows.replace("TwoRoom,3072,blur,0.499", "TwoRoom,3072,blur,0.498")
    difference = forge(copy, "rows.csv", changed.encode())
    assert difference.startswith("summary.json, answer.pairs[0].score: found -0.66333")
    wrong = "the summary cannot be computed from the rows"
    assert wrong in forge(copy, "rows.csv", b"task\n")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: a | {"more": 1}, "more: found 1, wanted nothing"),
        (lambda a: {"pairs": a["pairs"]}, r"agreement[0].shift: found nothing"),
        (lambda a: a | {"pairs": a["pairs"][:-1]}, "pairs[23].task: found nothing"),
        (
            lambda a: a | {"pairs": [{**p, "clean_rises": None} for p in a["pairs"]]},
            "clean_rises: found null",
        ),
        (None, "summary.json is not JSON"),
    ],
)
def test_a_missing_or_added_entry_is_a_difference(
    copy: Path, change: Callable[[Any], Any] | None, words: str
) -> None:
    document = json.loads((copy / "summary.json").read_bytes())
    if change is not None:
        document["answer"] = change(document["answer"])
    content = json.dumps(document).encode() if change else b"{"
    assert words in forge(copy, "summary.json", content)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "acpc-study-bundle/9"}, "found format"),
        ({"study": "weather"}, "unknown study 'weather'"),
        ({"files": {"../rows.csv": ""}}, "no file below the folder"),
        ({"figures": {"/etc/passwd": ""}}, "no file below the folder"),
        ({"more": 1}, "found the keys"),
        ({"files": 3}, "is no manifest"),
    ],
)
def test_what_is_no_bundle_is_refused(copy: Path, change: dict[str, Any], words: str) -> None:
    manifest = json.loads((copy / "study.json").read_text())
    (copy / "study.json").write_text(json.dumps({**manifest, **change}))
    with pytest.raises(ArgumentError, match=words):
        verify(copy)
    for content in ("[]", "[" * 100_000, '{"format": '):
        (copy / "study.json").write_text(content)
        with pytest.raises(ArgumentError, match="is no manifest of a study"):
            verify(copy)


def test_a_folder_that_holds_a_study_is_not_written_over(whole: Path) -> None:
    with pytest.raises(ArgumentError, match="holds a study already"):
        write(whole, SHIFTS)
