"""Rows of a sweep as CSV and JSON."""

from collections import deque
from collections.abc import Callable

import grpc
import pytest
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
