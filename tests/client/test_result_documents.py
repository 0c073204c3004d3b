"""One document per outcome: what was asked stands beside the answer, in every format."""

import copy
import functools
import json
import operator
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from acpc.v1 import scoring_service_pb2 as pb
from acpc.v1 import study_service_pb2
from acpc_client import (
    Operation,
    Result,
    load_result,
    save_result,
)
from acpc_client.errors import ArgumentError
from acpc_client.results.files import read_document
from client_messages import operation, score_response, study_operation, study_response
from hypothesis import given, settings
from hypothesis import strategies as st
from result_documents import checked

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


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": "other"}, "schema: found 'other', wanted 'acpc.result'"),
        ({"schema_version": 2}, "schema_version: is 2, of a newer release; .* update acpc"),
        ({"schema_version": None}, "schema_version: found None, wanted 1"),
        ({"schema_version": True}, "schema_version: found True, wanted 1"),
        ({"schema_version": -1}, "schema_version: found -1, wanted 1"),
        ({"kind": None}, "kind: found None, wanted one of score, study, "),
        ({"kind": "scroe"}, "kind: found 'scroe', wanted one of score, study, "),
        ({"answer": None}, "answer: found None, wanted an object"),
        ({"answer": {"verdict": 1}}, "answer.verdict: found 1, wanted an object"),
        ({"receipt": 1}, "json: receipt: found 1, wanted an object"),
        ({"request": [1]}, "request: found .1., wanted an object"),
        ({"operation": 1}, "operation: found 1, wanted a text"),
        ({"time": "yesterday"}, "time: found 'yesterday', wanted a time such as"),
    ],
)
def test_a_document_that_cannot_be_read_says_why(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps({**Result.of(scored()).to_dict(), **change}))
    with pytest.raises(ArgumentError, match=words) as raised:
        load_result(path)
    assert "result.json" in raised.value.message


def paths(plain: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a document."""
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
WHOLE = [Result.of(scored()).to_dict(), Result.of(studied()).to_dict(), scored().result().to_dict()]


@given(data=st.data(), document=st.sampled_from(WHOLE), value=ANY_JSON, absent=st.booleans())
def test_any_json_is_a_result_or_one_line_that_says_why_not(
    data: st.DataObject, document: dict[str, Any], value: Any, absent: bool
) -> None:
    path = data.draw(st.sampled_from(list(paths(document))))
    changed: Any = copy.deepcopy(document) if path else value
    if path:
        *above, last = path
        holder = functools.reduce(operator.getitem, above, changed)
        if absent:
            del holder[last]
        else:
            holder[last] = value
    try:
        read = read_document(json.loads(json.dumps(changed)), {})
    except ArgumentError as error:
        assert "Error" not in error.message
        assert len(error.message.splitlines()) == 1 and error.description
    else:
        assert read.score_request is None or read.kind == "score"


@settings(max_examples=30)
@given(
    at=st.floats(0, 1),
    cut=st.booleans(),
    bits=st.integers(1, 255),
)
def test_a_damaged_file_is_a_result_or_one_line_that_names_it(
    at: float, cut: bool, bits: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.npz"
        save_result(scored(), path)
        content = bytearray(path.read_bytes())
        index = int(at * (len(content) - 1))
        content[index] ^= bits
        path.write_bytes(content[:index] if cut else content)
        try:
            load_result(path)
        except ArgumentError as error:
            assert "result.npz" in error.message and "Error" not in error.message
            assert len(error.message.splitlines()) == 1


def test_fields_of_a_newer_release_are_passed_over(tmp_path: Path) -> None:
    document = Result.of(scored()).to_dict()
    document["answer"]["checkpoint"]["more"] = 1
    document["more"] = 1
    path = tmp_path / "result.json"
    path.write_text(json.dumps(document))
    assert load_result(path) == Result.of(scored())
