"""Rows of a sweep as CSV and JSON."""

import csv
import io
import json
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
