"""Rows of a sweep as CSV and JSON."""

import csv
import io
import json
import math
from collections import deque
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from acpc_client.errors import ArgumentError
from acpc_client.sync.client import AcpcClient
from acpc_lab.sweeps import Sweep
from client_messages import status
from job_counterparty import FAILED, JobParty

Make = Callable[..., Sweep]
UNFIT = status(grpc.StatusCode.FAILED_PRECONDITION, "no, it, does\nnot fit")


@pytest.fixture
def sweep(sweep_of: Make, client: AcpcClient, party: JobParty) -> Sweep:
    party.listing = {"a": ["weights.pt"], "b": ["weights.pt"]}
    party.fates.update(a=deque([UNFIT]), b=deque([FAILED]))
    made = sweep_of(
        checkpoints=[{"name": "a", "labels": {"run": 1, "task": "x"}}, {"name": "b"}],
        shifts=["resize:0.5"],
        reference="b",
    )
    made.run(client, poll=0.01)
    return made


def test_a_row_says_what_was_asked_and_what_came_of_it(sweep: Sweep) -> None:
    failed, rejected = sweep.results().rows()
    assert (failed["checkpoint"], failed["state"]) == ("a", "failed")
    assert failed["error"] == "FAILED_PRECONDITION: no, it, does\nnot fit"
    assert (failed["label_run"], failed["label_task"], failed["sr"]) == (1, "x", None)
    assert (rejected["label_run"], rejected["reference"], rejected["error"]) == (None, "b", None)
    assert (rejected["shift"], rejected["kind"], rejected["seed"]) == ("resize:0.5", "resize", 0)
    score = sweep.results()[1].score
    assert rejected["sr"] == score.checkpoint.sr == 0.97
    assert rejected["ir_relative"] == score.verdict.ir_relative == 0.125
    assert (rejected["outcome"], rejected["sr_passed"]) == ("failed", False)
    assert (rejected["eligible"], rejected["skipped"]) == (1, 1)
    assert rejected["anchors_digest"] == "a" * 64
    assert rejected["operation"].startswith("operations/")
    columns = list(failed)
    assert columns[:6] == ["cell", "checkpoint", "weights", "reference", "label_run", "label_task"]
    assert list(rejected) == columns


def test_a_sweep_is_a_table_and_a_picture_in_a_notebook(sweep: Sweep) -> None:
    results = sweep.results()
    frame = results.to_dataframe()
    assert list(frame["state"]) == ["failed", "succeeded"]
    assert list(frame.columns) == results.rows().columns
    shown = results._repr_html_()
    assert "2 cells: 1 succeeded, 1 failed" in shown and "<td>0.125</td>" in shown
    assert results.plot()._repr_png_().startswith(b"\x89PNG")


def test_every_format_holds_the_same_rows(sweep: Sweep, tmp_path: Path) -> None:
    rows = sweep.results().rows()
    for suffix in ("csv", "json"):
        rows.save(tmp_path / f"rows.{suffix}")
    assert json.loads((tmp_path / "rows.json").read_text()) == list(rows)
    read = list(csv.DictReader(io.StringIO((tmp_path / "rows.csv").read_text())))
    assert read == [{k: "" if v is None else str(v) for k, v in row.items()} for row in rows]
    with pytest.raises(ArgumentError, match=r"wanted \.csv or \.json"):
        rows.save(tmp_path / "rows.txt")


def test_there_is_a_row_for_every_anchor_of_a_cell_that_has_a_score(sweep: Sweep) -> None:
    rows = sweep.results().anchor_rows()
    assert [(row["checkpoint"], row["anchor"], row["anchor_ids"]) for row in rows] == [
        ("b", 0, 7), ("b", 1, 11),
    ]  # fmt: skip
    assert [row["radius"] for row in rows] == [0.25, 0.5]
    assert math.isnan(rows[1]["different_state_distance"])
    assert json.loads(rows.to_json())[1]["different_state_distance"] is None
    assert "draw_radius" not in rows.columns
