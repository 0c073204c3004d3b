"""Intervals and confident verdicts of a sweep: columns, tables, and the gate."""

from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from acpc.v1 import scoring_service_pb2 as pb
from acpc_client import Outcome
from acpc_command import acpc_command
from acpc_lab.evidence import Correction
from acpc_lab.sweeps import Sweep
from client_messages import score_response, status, sure
from grpc import StatusCode
from job_counterparty import DOCUMENT, FAILED
from sweep_plans import POLL, Scene

PASSES = score_response(
    pb.OUTCOME_PASSED, evidence=sure(pb.OUTCOME_PASSED, p_passed=0.001, p_failed=1.0)
)
BARELY = score_response(
    pb.OUTCOME_PASSED, evidence=sure(pb.OUTCOME_PASSED, p_passed=0.04, p_failed=1.0)
)
OPEN = score_response(
    pb.OUTCOME_PASSED,
    evidence=sure(pb.OUTCOME_UNDECIDED, p_passed=0.3, doubt=pb.DOUBT_SR, anchors_to_decide=240),
)
FAILS = score_response(
    pb.OUTCOME_FAILED, sr_passed=False, evidence=sure(pb.OUTCOME_FAILED, p_failed=0.001)
)
OLDER = score_response(pb.OUTCOME_PASSED)


@pytest.fixture
def run(at: Scene) -> Callable[..., Sweep]:
    """A sweep of one checkpoint under two shifts whose jobs end with these scores."""

    def make(*scores: pb.ScoreCheckpointResponse) -> Sweep:
        at.party.fates["a"] = deque(scores)
        made = at.sweep(concurrency=1)
        made.run(at.client, poll=POLL)
        return made

    return make


def test_rows_hold_intervals_and_both_verdicts(run: Callable[..., Sweep]) -> None:
    results = run(BARELY, OPEN).results()
    barely, open_ = results.rows()
    assert (barely["ir_relative_lower"], barely["ir_relative_upper"]) == (0.1, 0.15)
    assert (barely["delta_score_lower"], barely["confidence"]) == (2.0, 0.95)
    assert (barely["confident_outcome"], barely["corrected_outcome"]) == ("passed", "undecided")
    assert (barely["p_passed"], barely["corrected_p_passed"]) == (0.04, 0.08)
    assert (open_["doubt"], open_["anchors_to_decide"]) == ("sr", 240)
    single = results.corrected(Correction.NONE).rows()[0]
    assert single["corrected_outcome"] == "passed" and results.rows()[0] == barely


def test_scores_of_older_servers_have_no_evidence_and_stay_readable(
    run: Callable[..., Sweep],
) -> None:
    """Beside one that has, and as the whole sweep."""
    older, newer = run(OLDER, PASSES).results().rows()
    assert older["outcome"] == "passed" and older["sr"] == 0.97
    assert older["confident_outcome"] is older["sr_lower"] is older["corrected_outcome"] is None
    assert newer["corrected_outcome"] == "passed" and newer["limit"] is None


def test_cells_that_stopped_at_different_anchors_compare(run: Callable[..., Sweep]) -> None:
    """The digest is of the anchors that were evaluated, which are fewer where a look decided."""
    sooner = pb.ScoreCheckpointResponse()
    sooner.CopyFrom(PASSES)
    sooner.checkpoint.anchors = 1
    sooner.receipt.anchors_digest = "c" * 64
    results = run(sooner, PASSES).results()
    assert results.inconsistencies == ()
    assert len(results.limits) == 1


def test_a_reference_is_no_member(run: Callable[..., Sweep]) -> None:
    own = pb.ScoreCheckpointResponse()
    own.CopyFrom(FAILS)
    own.receipt.reference_digest = own.receipt.checkpoint_digest
    results = run(own, BARELY).results()
    reference, other = results
    assert reference.is_reference and reference.among is None
    assert other.among is not None and other.among.outcome is Outcome.PASSED
    assert results.rejected == () and results.outcome() is Outcome.PASSED


def test_a_file_names_its_gate_and_the_option_wins(at: Scene, target: str, tmp_path: Path) -> None:
    """The gate is of the run alone: the same jobs are found again."""
    file = tmp_path / "mine.yaml"
    point = ["--gate", "point"]
    for gate, options, code in (("confident", [], 5), ("confident", point, 0), ("point", [], 0)):
        file.write_text(yaml.safe_dump({**DOCUMENT, "gate": gate}))
        at.party.fates["a"].extend([PASSES, OPEN])
        acpc_command("--target", target)("sweep", "run", file, *options, code=code)
    assert len(at.party.jobs) == 2


def test_the_table_shows_intervals_and_both_verdicts(
    at: Scene, target: str, tmp_path: Path
) -> None:
    at.party.fates["a"] = deque([BARELY, OPEN])
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(DOCUMENT))
    acpc = acpc_command("sweep", ACPC_TARGET=target)
    answer = acpc("run", file)
    row = next(line for line in answer.stdout.splitlines() if "gaussian_noise:0.02" in line)
    wide = acpc("show", file, "--offline", "-o", "wide").stdout
    assert "0.1 to 0.15" in wide and "0.93 to 0.99" in wide and "0.1 to 0.15" not in row
    assert row.index("PASSED") < row.index("UNDECIDED")  # by the numbers, then for sure
    assert "95 % sure: of 1 checkpoint" in answer.stdout
    assert "sigma 0.08 or more" in answer.stdout and "[0.02, beyond 0.08]" in answer.stdout
    shares = acpc("show", file, "--offline", "--correction", "bh").stdout
    assert "At most 5 % of what is called sure is expected to be wrong: of 1" in shares
    alone = acpc("show", file, "--offline", "--correction", "none").stdout
    assert "UNDECIDED" not in next(x for x in alone.splitlines() if "gaussian_noise:0.02" in x)


def test_a_reference_whose_latents_have_not_spread_is_named(at: Scene) -> None:
    """As an early epoch, over which relative IR says nothing; one that has spread is not."""
    at.party.listing = {"a": ["weights.pt"], "base": ["weights.pt"]}
    for spread, named in ((0.035, True), (2.0, False)):
        score = score_response(pb.OUTCOME_FAILED)
        score.checkpoint.median_latent_distance = 5.0
        score.reference.median_latent_distance = spread
        at.party.fates["a"] = deque([score, score])
        results = at.sweep(name=f"of {spread}", reference="base").run(at.client, poll=POLL)
        notes = " ".join(results.reference_notes)
        assert ("reference base looks collapsed or untrained" in notes) is named


def test_a_sweep_is_a_table_and_a_picture_in_a_notebook(at: Scene) -> None:
    at.party.listing = {"a": ["weights.pt"], "b": ["weights.pt"]}
    unfit = status(StatusCode.FAILED_PRECONDITION, "no, it, does\nnot fit")
    at.party.fates.update(a=deque([unfit]), b=deque([FAILED]))
    named = [{"name": "a", "labels": {"run": 1, "task": "x"}}, {"name": "b"}]
    sweep = at.sweep(checkpoints=named, shifts=["resize:0.5"], reference="b")
    results = sweep.run(at.client, poll=POLL)
    frame = results.to_dataframe()
    assert list(frame["state"]) == ["failed", "succeeded"]
    assert list(frame.columns) == results.rows().columns
    shown = results._repr_html_()
    assert "2 cells: 1 succeeded, 1 failed" in shown and "<td>0.125</td>" in shown
