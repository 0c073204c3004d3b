"""Results as files: what is read is what was written, to the last bit, with what was asked."""

import copy
import dataclasses
import functools
import json
import math
import operator
import zipfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from acpc.v1 import scoring_service_pb2 as pb
from acpc.v1 import study_service_pb2
from acpc_client import (
    AnchorValues,
    Operation,
    Result,
    Score,
    SkipReason,
    load_result,
    read_npz,
    save_result,
)
from acpc_client.errors import ArgumentError
from acpc_client.results.files import read_document
from client_messages import operation, score_response, study_operation, study_response
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from result_documents import checked

pytestmark = pytest.mark.edge

FORMATS = [".json", ".npz"]
ENDED = datetime(2026, 11, 22, 7, 30, tzinfo=UTC)


def scored() -> Operation:
    asked = {
        "checkpoint": {"name": "trained"},
        "reference": {"name": "base"},
        "dataset": {"dataset": "rooms.h5", "task": "tworoom"},
        "perturbation": {"gaussian_noise": {"sigma": 0.08}},
        "thresholds": {"ir": 0.25},
    }
    answer = score_response(pb.OUTCOME_FAILED)
    return Operation.from_message(
        operation("operations/mine", 4, response=answer, request=asked, end_time=ENDED)
    )


def studied() -> Operation:
    asked = study_service_pb2.RunStudyRequest(
        checkpoint={"name": "trained"}, geometry={"seed": 2**64 - 1}
    )
    columns = {"anchor": np.arange(2), "radius": np.array([0.1, np.nan]), "task": np.arange(2)}
    response = study_response(asked, columns)
    return Operation.from_message(study_operation("operations/study", asked, response=response))


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("made", [scored, studied])
def test_a_file_tells_what_was_asked(
    tmp_path: Path, suffix: str, made: Callable[[], Operation]
) -> None:
    ended = made()
    path = tmp_path / f"result{suffix}"
    save_result(ended, path)
    assert [item.name for item in tmp_path.iterdir()] == [path.name], "no half file is left"
    read = load_result(path)
    assert read == Result.of(ended)
    assert read.answer == (ended.score or ended.study)
    assert (read.operation, read.time) == (ended.name, ended.end_time)
    assert read.request["checkpoint"]["name"] == "trained"
    checked(read.to_dict())
    save_result(read, tmp_path / f"again{suffix}")
    assert load_result(tmp_path / f"again{suffix}") == read


def test_the_request_of_a_score_is_the_contracts() -> None:
    ended = scored()
    result = Result.of(ended)
    assert result.score_request == ended.request
    document = result.to_dict()
    assert list(document) == [
        "schema", "schema_version", "kind", "operation", "time", "request", "answer", "receipt",
    ]  # fmt: skip
    assert document["request"]["shift"] == {"kind": "gaussian_noise", "sigma": 0.08}
    assert document["request"]["anchors"]["dataset"] == "rooms.h5"
    assert document["time"] == "2026-11-22T07:30:00+00:00"
    assert "receipt" not in document["answer"]
    assert Result.of(studied()).request["study"]["seed"] == 2**64 - 1


SCORE = Result.of(scored()).to_dict()
# A key, what stands there instead, and what is said of it.
WRONG: list[tuple[str, Any, str]] = [
    ("schema", "other", "schema: found 'other', wanted 'acpc.result'"),
    ("schema_version", 2, "schema_version: is 2, of a newer release; "),
    ("schema_version", None, "schema_version: found None, wanted 1"),
    ("schema_version", True, "schema_version: found True, wanted 1"),
    ("schema_version", -1, "schema_version: found -1, wanted 1"),
    ("kind", None, "kind: found None, wanted one of score, study, "),
    ("kind", "scroe", "kind: found 'scroe', wanted one of score, study, "),
    ("answer", None, "answer: found None, wanted an object"),
    ("answer", {"verdict": 1}, "answer.verdict: found 1, wanted an object"),
    ("receipt", 1, "json: receipt: found 1, wanted an object"),
    ("request", [1], "request: found [1], wanted an object"),
    ("operation", 1, "operation: found 1, wanted a text"),
    ("time", "yesterday", "time: found 'yesterday', wanted a time such as"),
]


@pytest.mark.parametrize(("key", "value", "words"), WRONG)
def test_a_document_that_cannot_be_read_says_why(
    tmp_path: Path, key: str, value: Any, words: str
) -> None:
    file = tmp_path / "result.json"
    file.write_text(json.dumps(SCORE | {key: value}))
    with pytest.raises(ArgumentError) as refused:
        load_result(file)
    message = refused.value.message
    assert str(file) in message and words in message and len(message.splitlines()) == 1


def paths(plain: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = enumerate(plain) if isinstance(plain, list) else ()
    for key, value in plain.items() if isinstance(plain, dict) else inner:
        yield from paths(value, (*path, key))


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
ANY_JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=4,
)
WHOLE = [SCORE, Result.of(studied()).to_dict(), scored().result().to_dict()]


@given(data=st.data(), document=st.sampled_from(WHOLE), value=ANY_JSON, absent=st.booleans())
def test_any_json_is_a_result_or_one_line_that_says_why_not(
    data: st.DataObject, document: dict[str, Any], value: Any, absent: bool
) -> None:
    path = data.draw(st.sampled_from(list(paths(document))))
    odd: Any = copy.deepcopy(document) if path else value
    if path:
        *above, last = path
        holder = functools.reduce(operator.getitem, above, odd)
        holder[last] = value
        if absent:
            del holder[last]
    try:
        read = read_document(json.loads(json.dumps(odd)), {})
    except ArgumentError as error:
        assert "Error" not in error.message
        assert len(error.message.splitlines()) == 1 and error.description
    else:
        assert read.score_request is None or read.kind == "score"


def test_fields_of_a_newer_release_are_passed_over(tmp_path: Path) -> None:
    document = copy.deepcopy(SCORE) | {"more": 1}
    document["answer"]["checkpoint"]["more"] = 1
    path = tmp_path / "result.json"
    path.write_text(json.dumps(document))
    assert load_result(path) == Result.of(scored())


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a record with its path: numbers and arrays with type, shape and bytes."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from leaves(getattr(value, field.name), f"{path}.{field.name}")
    elif isinstance(value, tuple):
        yield path, len(value)
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}[{index}]")
    elif isinstance(value, np.ndarray | float):
        array = np.asarray(value)
        yield path, (type(value), array.dtype, array.shape, array.tobytes())
    else:
        yield path, (type(value), value)


@pytest.mark.parametrize("suffix", FORMATS)
@given(
    data=st.data(),
    number=st.floats(allow_nan=False) | st.just(math.nan),  # NaN has no payload in JSON
    anchors=st.integers(0, 5),
    draws=st.integers(1, 4),
    with_reference=st.booleans(),
)
def test_any_numbers_survive(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, data: st.DataObject, number: float,
    anchors: int, draws: int, with_reference: bool,
) -> None:  # fmt: skip
    message = score_response(pb.OUTCOME_FAILED, with_reference=with_reference)
    written = Score.from_message(message)
    if suffix == ".npz":  # whose arrays may hold anything
        values = written.checkpoint.anchor_values
        other: dict[str, Any] = {"skip_reasons": anchors * values.skip_reasons[1:]}
        for field in dataclasses.fields(AnchorValues):
            present = getattr(values, field.name)
            if isinstance(present, np.ndarray):
                shape = (anchors, *([draws] if present.ndim == 2 else []))
                other[field.name] = data.draw(hnp.arrays(present.dtype, shape))
        reasons = st.lists(st.sampled_from(SkipReason), min_size=anchors, max_size=anchors)
        other["skip_reasons"] = tuple(data.draw(reasons))
        own = dataclasses.replace(
            written.checkpoint, ir_raw=number, anchor_values=dataclasses.replace(values, **other)
        )
        written = dataclasses.replace(written, checkpoint=own)
    path = tmp_path_factory.mktemp("any") / f"score{suffix}"
    save_result(written, path)
    assert list(leaves(load_result(path).answer)) == list(leaves(written))


@pytest.mark.parametrize("suffix", FORMATS)
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


@pytest.mark.parametrize("name", ["score.csv", "score", "score.NPZ"])
def test_another_suffix_is_refused(tmp_path: Path, name: str) -> None:
    for act in (functools.partial(save_result, scored()), load_result):
        with pytest.raises(ArgumentError, match=r"wanted a name ending in \.json or \.npz"):
            act(tmp_path / name)


def zipped(name: str, content: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(name, content)

    return write


def half(path: Path) -> None:
    save_result(scored(), path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.zeros(3))


ODD: list[tuple[Callable[[Path], object], Callable[[Path], object], str]] = [
    (lambda path: None, load_result, "cannot read"),
    (lambda path: path.write_bytes(b""), load_result, r"a\.npz is (not|a damaged)"),
    (lambda path: path.write_bytes(b"nothing"), load_result, r"a\.npz is (not|a damaged)"),
    (half, load_result, r"a\.npz is (not|a damaged)"),
    (lambda path: np.savez(path, x=np.zeros(3)), load_result, "it has no entry 'result'"),
    (array, read_npz, r"a\.npz: is not an NPZ file"),
    (lambda path: np.savez(path, x=np.array([{}])), read_npz, r"a\.npz: .* more than plain arrays"),
    (zipped("notes.txt", b"no"), read_npz, r"a\.npz: its entry 'notes.txt' is not an array"),
    (zipped("zeros.npy", bytes(17 * 2**24)), read_npz, r"declares 285212672 bytes, packed in"),
]


@pytest.mark.parametrize(("write", "read", "words"), ODD, ids=[row[2] for row in ODD])
def test_a_file_of_something_else_is_refused(
    write: Callable[[Path], object], read: Callable[[Path], object], words: str, tmp_path: Path
) -> None:
    write(tmp_path / "a.npz")
    with pytest.raises(ArgumentError, match=words):
        read(tmp_path / "a.npz")
