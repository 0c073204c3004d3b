"""Scores as files: what is read is what was written, to the last bit."""

import dataclasses
import math
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from acpc.v1 import scoring_service_pb2 as pb
from acpc_client import AnchorValues, Score, SkipReason, load_result, read_npz, save_result
from acpc_client.errors import ArgumentError
from client_messages import score_response
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from result_documents import checked

pytestmark = pytest.mark.edge


def score(*, with_reference: bool = True) -> Score:
    return Score.from_message(score_response(pb.OUTCOME_FAILED, with_reference=with_reference))


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a record with its path, enums and arrays as they are."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from leaves(getattr(value, field.name), f"{path}.{field.name}")
    elif isinstance(value, tuple):
        yield path, len(value)
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}[{index}]")
    else:
        yield path, value


def assert_identical(found: Score, wanted: Score) -> None:
    pairs = list(zip(leaves(found), leaves(wanted), strict=True))
    assert pairs
    for (path, left), (other, right) in pairs:
        assert path == other
        assert type(left) is type(right), path
        if isinstance(left, np.ndarray):
            assert left.dtype == right.dtype, path
            assert left.shape == right.shape, path
            assert left.tobytes() == right.tobytes(), path
        elif isinstance(left, float):
            assert np.float64(left).tobytes() == np.float64(right).tobytes(), path
        else:
            assert left == right, path


@pytest.mark.parametrize("suffix", [".json", ".npz"])
@pytest.mark.parametrize("with_reference", [True, False])
def test_what_is_read_is_what_was_written(
    tmp_path: Path, suffix: str, with_reference: bool
) -> None:
    path = tmp_path / f"score{suffix}"
    written = score(with_reference=with_reference)
    save_result(written, path)
    assert_identical(load_result(path).answer, written)
    assert [item.name for item in tmp_path.iterdir()] == [path.name], "no half file is left"


@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_an_interval_without_an_upper_end_stays_without(tmp_path: Path, suffix: str) -> None:
    """JSON has no infinity: it says null, which among ends is none."""
    open_above = pb.Interval(lower=0.25, upper=math.inf, method="made up")
    path = tmp_path / f"score{suffix}"
    evidence = pb.Evidence(confidence=0.95, ir_raw=open_above)
    save_result(Score.from_message(score_response(pb.OUTCOME_PASSED, evidence=evidence)), path)
    read = load_result(path).answer.evidence
    assert (read.ir_raw.lower, read.ir_raw.upper) == (0.25, math.inf)
    if suffix == ".json":
        assert checked(path.read_text())["answer"]["evidence"]["ir_raw"]["upper"] is None


@given(
    data=st.data(),
    number=st.floats(allow_nan=False) | st.just(math.nan),  # NaN has no payload in JSON
    anchors=st.integers(0, 5),
    draws=st.integers(1, 4),
)
def test_any_numbers_survive(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, number: float, anchors: int,
    draws: int,
) -> None:  # fmt: skip
    written = score(with_reference=False)
    values = written.checkpoint.anchor_values
    other: dict[str, Any] = {"skip_reasons": anchors * values.skip_reasons[1:]}
    for field in dataclasses.fields(AnchorValues):
        present = getattr(values, field.name)
        if isinstance(present, np.ndarray):
            shape = (anchors, *([draws] if present.ndim == 2 else []))
            other[field.name] = data.draw(hnp.arrays(present.dtype, shape))
    reasons = st.lists(st.sampled_from(SkipReason), min_size=anchors, max_size=anchors)
    other["skip_reasons"] = tuple(data.draw(reasons))
    side = dataclasses.replace(
        written.checkpoint, ir_raw=number, anchor_values=dataclasses.replace(values, **other)
    )
    written = dataclasses.replace(written, checkpoint=side)
    path = tmp_path_factory.mktemp("any") / "score.npz"
    save_result(written, path)
    assert_identical(load_result(path).answer, written)


@pytest.mark.parametrize("name", ["score.csv", "score", "score.NPZ"])
def test_another_suffix_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ArgumentError, match=r"wanted a name ending in \.json or \.npz"):
        save_result(score(), tmp_path / name)
    with pytest.raises(ArgumentError, match=r"wanted a name ending in \.json or \.npz"):
        load_result(tmp_path / name)


def test_a_file_that_holds_no_score_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "score.npz"
    with pytest.raises(ArgumentError, match="cannot read"):
        load_result(path)
    save_result(score(), path)
    whole = path.read_bytes()
    for broken in (b"", b"nothing", whole[: len(whole) // 2]):
        path.write_bytes(broken)
        with pytest.raises(ArgumentError, match=r"score\.npz is (not|a damaged)"):
            load_result(path)
    np.savez(path, values=np.zeros(3))
    with pytest.raises(ArgumentError, match="it has no entry 'result'"):
        load_result(path)


def test_one_array_is_no_archive(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.save(tmp_path / "a.npy", np.zeros(3))
    (tmp_path / "a.npy").rename(path)
    with pytest.raises(ArgumentError, match=r"a\.npz: is not an NPZ file"):
        read_npz(path)


def test_an_archive_of_other_things_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, objects=np.array([{}]))
    with pytest.raises(ArgumentError, match=r"a\.npz: .* more than plain arrays"):
        read_npz(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "no array")
    with pytest.raises(ArgumentError, match=r"a\.npz: its entry 'notes.txt' is not an array"):
        read_npz(path)


def test_a_small_file_that_unpacks_to_much_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("zeros.npy", "w") as entry,
    ):
        for _ in range(17):
            entry.write(bytes(2**24))
    with pytest.raises(ArgumentError, match=r"a\.npz: declares 285212672 bytes, packed in"):
        read_npz(path)
