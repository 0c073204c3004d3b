"""Reports from scores, files, jobs and sweeps say what was measured and how."""

import functools
import json
import math
import operator
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from acpc.contract import (
    CheckpointRef,
    DatasetAnchors,
    GaussianBlur,
    NumericMode,
    ScoreProtocol,
    Thresholds,
)
from acpc.v1 import scoring_service_pb2 as pb
from acpc_client import ScoreRequest
from acpc_client.errors import ArgumentError
from acpc_client.retries import RetryPolicy
from acpc_client.sync.client import AcpcClient
from acpc_lab.report import (
    from_files,
    from_operations,
    from_sweep,
    render,
    with_pictures,
)
from acpc_lab.sweeps import SweepResults
from client_counterparty import Counterparty
from client_messages import operation, status
from report_samples import judged, kept_sweep, saved, side


@pytest.mark.parametrize("suffix", ["json", "npz"])
def test_a_file_gives_the_score_that_was_saved(tmp_path: Path, suffix: str) -> None:
    score = judged(side("trained", 0.2, 2.0, seed=1), side("base", 2.0, 2.0), shift="blur:15")
    (cell,) = from_files([saved(tmp_path / f"score.{suffix}", score)]).cells
    assert cell.score == score and (cell.name, cell.task) == ("trained", "two-room.yaml")
    assert cell.cell.shift == GaussianBlur(15)


def test_a_report_of_nothing_is_refused() -> None:
    with pytest.raises(ArgumentError, match="found no scores"):
        from_files([])


REQUEST = ScoreRequest(
    checkpoint=CheckpointRef("trained", "weights_epoch_3.pt"),
    reference=CheckpointRef("base", "weights.pt"),
    anchors=DatasetAnchors("two-room.h5", "two-room.yaml", 100, 9101, 5, False),
    shift=GaussianBlur(15),
    protocol=ScoreProtocol(5, 3, 8, 0.9, 0.1, (), (1, 4), (0.5,)),
    thresholds=Thresholds(0.3, 0.95),
    numeric_mode=NumericMode.FP32,
)


@pytest.fixture
def client(counterparty: Counterparty, target: str) -> Iterator[AcpcClient]:
    """Of a server whose first job was ``REQUEST``, and has succeeded."""
    score = judged(side("trained", 0.2, 2.0), side("base", 2.0, 2.0, seed=1), shift="blur:15")
    told = {"request": REQUEST.to_message(), "state": pb.JOB_STATE_SUCCEEDED}
    done = operation("operations/one", 4, response=score.to_message(), **told)
    counterparty.script.append(done)
    with AcpcClient(target) as client:
        yield client


def test_a_job_tells_shift_and_protocol(client: AcpcClient, counterparty: Counterparty) -> None:
    data = from_operations(client, ["operations/one"])
    assert data.previews_missing == "" and not data.previews
    data = with_pictures(data, client)
    (cell,) = data.cells
    assert (cell.shift, cell.task) == ("gaussian_blur:15", "two-room.yaml")
    assert (cell.cell.protocol.seed, cell.cell.protocol.margin) == (3, 0.1)
    asked = counterparty.requests["PreviewAnchors"][0]
    assert asked.name == "operations/one" and 3 <= len(asked.anchors) <= 6
    assert {name for name, _ in data.previews} == {"operations/one"}


@pytest.mark.parametrize("code", [grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION])
def test_a_server_that_refuses_pictures_is_quoted(
    client: AcpcClient, counterparty: Counterparty, code: grpc.StatusCode
) -> None:
    counterparty.refusals["PreviewAnchors"].append(status(code, "it expired"))
    data = with_pictures(from_operations(client, ["operations/one"]), client)
    words = f"the server answered {code.name}: it expired"
    assert not data.previews and data.previews_missing == words


def test_without_a_server_the_report_is_made_and_says_so(
    client: AcpcClient, unused_target: str
) -> None:
    data = from_operations(client, ["operations/one"])
    with AcpcClient(unused_target, retry=RetryPolicy(attempts=1)) as away:
        data = with_pictures(data, away)
    assert "no server could be reached" in data.previews_missing


def test_a_sweep_is_read_from_its_folder(tmp_path: Path) -> None:
    data = from_sweep(kept_sweep(tmp_path / "by noise.sweep"))
    assert data.title == "by noise" and data.description == "What it is about."
    assert [cell.level for cell in data.cells] == [0, 0.02, 0.04, 0.08]
    assert {cell.run for cell in data.cells} == {"7"}
    assert {cell.task for cell in data.cells} == {"two-room.yaml"}
    assert [cell.success for cell in data.cells] == [0, 0.02, 0.04, 0.08]
    assert [cell.score is None for cell in data.cells] == [False, False, True, True]
    assert data.cells[2].problem == "failed: NOT_FOUND: no checkpoint"
    assert [cell.state.done for cell in data.cells] == [True, True, True, False]
    assert data.pending == 1
    again = json.loads(data.recipe)
    assert set(again) == {"checkpoints", "anchors", "shifts"}  # no name: measured, not found
    assert data.cells[0].is_reference and not data.cells[1].is_reference
    page = render(data)
    assert "75 % done: 3 of 4 measurements." in page
    assert "95 % sure: of 3 checkpoints, 0 pass under gaussian_blur:15, " in page
    assert " and 2 are not judged.</p>" in page
    assert "1 measurement gave no result" in page


def test_labels_can_be_named(tmp_path: Path) -> None:
    results = SweepResults.open(kept_sweep(tmp_path / "s.sweep"))
    data = from_sweep(results, labels={"level": "run", "run": "noise", "task": "other"}, title="T")
    assert data.title == "T" and data.level_name == "run"
    assert {cell.level for cell in data.cells} == {7.0}
    assert {cell.task for cell in data.cells} == {"x"}
    assert (data.level_axis, data.level_words) == ("run", "level (run)")
    with pytest.raises(ArgumentError, match="the label nothing; there are: noise"):
        from_sweep(results, labels={"level": "nothing"})


SIDE = ("answer", "checkpoint")
VALUES = (*SIDE, "anchor_values")
WRONG = [
    ((*SIDE, "ir_raw"), math.nan, "answer.checkpoint.ir_raw: found nan, wanted a number"),
    ((*SIDE, "ir_raw"), 1e308, "answer.checkpoint.ir_raw: found 1e+308"),
    (("answer", "reference", "ir_raw"), 1e308, "answer.reference.ir_raw: found 1e+308"),
    ((*SIDE, "eligible"), 10**30, "an integer of 100 bits, wanted 64"),
    ((*VALUES, "radius", 1), None, "anchor_values.radius[1]: found nan, wanted a finite"),
    ((*VALUES, "radius", 1), math.inf, "anchor_values.radius[1]: found inf, wanted a number"),
    ((*VALUES, "radius", 0), 1e308, "answer.checkpoint.anchor_values.radius[0]: found 1e+308"),
    ((*VALUES, "draw_radius", 1, 0), None, "anchor_values.draw_radius[1][0]: found nan"),
    ((*VALUES, "partner", 0), 10**6, "anchor_values.partner[0]: found 1000000, wanted an index"),
    ((*VALUES, "motion_scale"), [1.0], "anchor_values.motion_scale: found 1 entries, wanted"),
    (("answer", "verdict", "thresholds", "ir"), -1, "answer.verdict.thresholds.ir: found -1"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "words"), WRONG, ids=[row[2] for row in WRONG])
def test_a_number_that_no_measurement_gives_is_named_with_file_and_field(
    tmp_path: Path, path: tuple[str | int, ...], value: object, words: str
) -> None:
    file = tmp_path / "score.json"
    saved(file, judged(side("trained", 0.2, 2.0), side("base", 2.0, 2.0)))
    document = json.loads(file.read_text())
    *above, last = path
    functools.reduce(operator.getitem, above, document)[last] = value
    file.write_text(json.dumps(document))
    with pytest.raises(ArgumentError) as refused:
        render(from_files([file]))
    assert str(file) in refused.value.message
    assert words in refused.value.message
    assert len(refused.value.message.splitlines()) == 1
