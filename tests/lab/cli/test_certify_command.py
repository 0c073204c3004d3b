"""``acpc certify`` against a server on a socket: its table, its grid of severities, its gate."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from acpc.v1 import diagnostic_service_pb2 as pb
from acpc_command import Acpc
from client_fixtures import BLOCKS, HISTORY
from result_documents import checked

GRID = ["--shift", "gaussian_noise:0.02,0.05", "--shift", "blur:15", "--draws", 2]


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    return {
        "history": HISTORY,
        "candidates": np.ones((5, 3, 2), np.float32),
        "goal": HISTORY[0],
        "past_blocks": BLOCKS[:2],
    }


@pytest.fixture
def pool(arrays: dict[str, np.ndarray]) -> list[Any]:
    """The arguments every command here begins with."""
    path = Path("pool.npz")
    np.savez(path, **arrays)
    return ["certify", "a", "--input", path]


def test_a_row_per_shift_of_the_grid(acpc: Acpc, pool: list[Any]) -> None:
    acpc.server.uncertified = {(1, 0), (2, 0), (2, 1)}
    answer = acpc(*pool, *GRID, "--protocol", "{seed: 9}")
    rows = [line.split() for line in answer.stdout.splitlines() if "/2" in line]
    shown = [tuple(row) for row in rows]
    assert shown == [
        ("gaussian_noise:0.02", "winner", "2/2", "0.5", "0/2", "50", "%"),
        ("gaussian_noise:0.05", "winner", "1/2", "-0.25", "1/2", "50", "%"),
        ("gaussian_blur:15", "winner", "0/2", "-0.25", "2/2", "50", "%"),
    ]
    assert "elite" not in answer.stdout
    assert "the share of all draws that may change it, at most" in answer.stdout
    assert "largest certified severity of gaussian_noise: winner 0.08" in answer.stdout
    assert "clean gap that the bounds must not close: winner 1;" in answer.stdout
    (sent,) = acpc.server.requests["CertifyPool"]
    sigmas = [spec.gaussian_noise.sigma for spec in sent.perturbations.specs[:2]]
    assert sigmas == [0.02, 0.05]
    assert sent.perturbations.specs[2].gaussian_blur.kernel_size == 15
    assert (sent.perturbations.draws, sent.perturbations.seed) == (2, 9)
    assert list(sent.past_blocks.shape) == [2, 2]
    assert sent.elite_count == 0
    # A value that is the contract's default need not be sent.
    assert sent.cost_reduction in (pb.COST_REDUCTION_UNSPECIFIED, pb.COST_REDUCTION_SUM)
    whole = acpc(*pool, *GRID, "-o", "csv").stdout.splitlines()
    assert whole[0].startswith("view,draw,top1 certified,") and len(whole) == 1 + 6


@pytest.mark.parametrize("require", ["top1", "elite"])
@pytest.mark.parametrize(("uncertified", "code"), [(set(), 0), ({(2, 1)}, 3)])
def test_the_gate_is_the_exit_code(
    require: str, uncertified: set[tuple[int, int]], code: int, acpc: Acpc, pool: list[Any]
) -> None:
    acpc.server.uncertified = uncertified
    asked = [*pool, *GRID, "--elites", 2, "--require", require, "--junit", Path("gate.xml")]
    answer = acpc(*asked, "-o", "json", code=code)
    written = Path("gate.xml").read_text()
    assert f'failures="{int(code == 3)}"' in written
    assert f"a under gaussian_noise:0.02,0.05, blur:15 --require {require}" in written
    assert len(checked(answer.stdout)["answer"]["views"]) == 6
    assert (f"not met: --require {require}" in answer.stderr) == (code == 3)


def test_a_paired_run_has_a_row_per_view(acpc: Acpc, arrays: dict[str, np.ndarray]) -> None:
    del arrays["candidates"]
    path = Path("moment.npz")
    np.savez(path, **arrays)
    command = ["plan-paired", "a", "--input", path, "--shift", "blur:15"]
    answer = acpc(*command, "--draws", 2, "--protocol", "{budget: {iterations: 3}}")
    rows = [line.split() for line in answer.stdout.splitlines() if "3/3" in line]
    assert rows == [
        ["gaussian_blur:15", "0", "yes", "3/3", "-", "0", "-"],
        ["gaussian_blur:15", "1", "no", "3/3", "0", "0.125", "-"],
    ]
    assert "smallest clean gap of an iteration: winner 0.5, elite set 0.25" in answer.stdout
    assert json.loads(acpc(*command, "-o", "json").stdout)
    gated = acpc(*command, "--require-certified", "--junit", Path("gate.xml"), code=3)
    assert "not met: --require-certified" in Path("gate.xml").read_text()
    assert "not met: --require-certified" in gated.stderr
    (budget, *_) = [sent.budget for sent in acpc.server.requests["PlanPaired"]]
    assert (budget.iterations, budget.candidates) == (3, 64)
