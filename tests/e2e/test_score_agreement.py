"""ScoreCheckpoint over the wire against float64 NumPy, from the HDF5 file to the verdict."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import numpy_reference as metrics
import pytest
import score_reference
from acpc.contract import (
    DatasetAnchors,
    GaussianBlur,
    GaussianNoise,
    NumericMode,
    PartnerPast,
    Perturbation,
    Reading,
    Resize,
    ScoreProtocol,
    Thresholds,
)
from acpc_client import CheckpointScore, Outcome, SkipReason
from acpc_client.sync.client import AcpcClient
from numpy.typing import ArrayLike
from score_reference import ReferenceScore
from served_world import ServedWorld
from waiting import GENEROUS_SECONDS

TOLERANCE = 1e-4
COUNT, HORIZON, SEED = 24, 4, 5
SOURCE = DatasetAnchors("tworoom.h5", "tworoom", count=COUNT)


def gap(found: ArrayLike | None, wanted: ArrayLike) -> float:
    """Largest relative error; NaN must meet NaN."""
    a, b = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    assert a.shape == b.shape
    assert (np.isnan(a) == np.isnan(b)).all()
    return float(np.nanmax(np.abs(a - b) / np.where(b == 0, 1.0, np.abs(b))))


def gaps(found: object, own: metrics.Side, base: metrics.Side) -> list[float]:
    """Relative error of each number of a part of a score that follows from measurements."""
    loops = metrics.NUMBERS.items()
    return [gap(getattr(found, x), loop(own, base)) for x, loop in loops if hasattr(found, x)]


def worst(found: CheckpointScore, wanted: ReferenceScore, ids: list[int], margin: float) -> float:
    """Largest relative error of a checkpoint's score; what is discrete must be equal."""
    values = found.anchor_values
    assert values.anchor_ids.tolist() == ids
    assert values.partner.tolist() == wanted.partner
    in_reach = (SkipReason.NONE_IN_REACH, SkipReason.UNSPECIFIED)
    assert values.skip_reasons == tuple(in_reach[j >= 0] for j in wanted.partner)
    # SR counts; no distance may lie so near its threshold that float32 could decide.
    edge = min(abs(d - wanted.ir_raw - margin) for d in wanted.apart)
    assert edge > 10 * TOLERANCE * wanted.ir_raw
    assert {(row.horizon, row.quantile) for row in found.summaries} == set(wanted.summaries)
    return max(
        gap(values.radius, wanted.radius),
        gap(values.motion_scale, wanted.motion_scale),
        gap(values.different_state_distance, wanted.distance),
        gap(values.draw_radius, wanted.draw_radius),
        gap(values.step_radius, wanted.step_radius),
        *gaps(found, wanted, wanted),
        *(gap(row.ir_raw, wanted.summaries[row.horizon, row.quantile]) for row in found.summaries),
    )


@pytest.fixture(scope="module")
def anchors(world: ServedWorld) -> score_reference.Anchors:
    return drawn_of(world, HORIZON)


def drawn_of(world: ServedWorld, future: int, horizon: int = HORIZON) -> score_reference.Anchors:
    return score_reference.draw_anchors(
        world.columns, history=3, horizon=horizon, count=COUNT, seed=9101, frameskip=5,
        future_frames=future,
    )  # fmt: skip


def measured(
    world: ServedWorld, name: str, anchors: score_reference.Anchors, shift: Perturbation,
    **options: object,
) -> ReferenceScore:  # fmt: skip
    given = {"history": 3, "draws": 2, "seed": SEED, **options}
    model = world.reference(name)
    return score_reference.score(model, anchors, shift.to_spec(), **given)


@pytest.mark.parametrize(
    ("name", "shift"),
    [("lewm", GaussianNoise(0.08)), ("pldm", GaussianBlur(5)), ("lewm", Resize(0.25))],
    ids=str,
)
def test_one_checkpoint(
    client: AcpcClient, world: ServedWorld, anchors: score_reference.Anchors, name: str,
    shift: Perturbation,
) -> None:  # fmt: skip
    asked = {"draws": 3, "quantile": 0.75, "margin": 0.25, "weights": [0.1, 0.2, 0.3, 0.4]}
    asked |= {"extra_horizons": [1, 2], "extra_quantiles": [0.5, 1.0]}
    protocol = ScoreProtocol(seed=SEED, horizon=HORIZON, **asked)
    score, exact = (
        client.score_checkpoint(name, SOURCE, shift, protocol=protocol, numeric_mode=mode).result(
            timeout=GENEROUS_SECONDS
        )
        for mode in (NumericMode.FP32, NumericMode.FP64)
    )
    wanted = measured(world, name, anchors, shift, **asked)
    assert exact.checkpoint.ir_raw == pytest.approx(wanted.ir_raw, rel=1e-9)
    error = worst(score.checkpoint, wanted, anchors.ids, 0.25)
    print(
        f"{name} {type(shift).__name__}: IR {wanted.ir_raw:.4f}, SR {wanted.sr:.3f}, "
        f"{score.checkpoint.skipped} skipped, largest relative error {error:.2e}"
    )
    assert error <= TOLERANCE
    assert score.reference is None
    verdict = metrics.verdict(None, wanted.sr)
    assert score.verdict.outcome is {
        "failed": Outcome.FAILED, "inconclusive": Outcome.INCONCLUSIVE
    }[verdict]  # fmt: skip
    assert score.verdict.ir_relative is None
    assert score.verdict.score is None


RELEASED = {"reading": Reading.RELEASED}


@pytest.mark.parametrize(
    ("given", "horizon", "future", "past", "reach"),
    [
        *((RELEASED | {"neighbourhood": x}, HORIZON, 9, "anchor", x) for x in (0.1, 0.25, 0.5)),
        (RELEASED, HORIZON, 9, "anchor", 0.35),
        (RELEASED, 10, 11, "anchor", 0.35),
        (RELEASED | {"partner_past": PartnerPast.OWN, "neighbourhood": 0.25},
         HORIZON, 9, "own", 0.25),
        ({"partner_past": PartnerPast.ANCHOR, "neighbourhood": 0.5},
         HORIZON, HORIZON, "anchor", 0.5),
    ],
)  # fmt: skip
def test_each_parameter_of_the_reading(
    client: AcpcClient, world: ServedWorld, given: dict[str, Any], horizon: int, future: int,
    past: str, reach: float,
) -> None:  # fmt: skip
    """Windows, anchors, partners and their blocks, by the switch and each by its own parameter."""
    shift = GaussianNoise(0.08)
    protocol = ScoreProtocol(draws=2, seed=SEED, horizon=horizon, **given)
    job = client.score_checkpoint("lewm", SOURCE, shift, protocol=protocol)
    score = job.result(timeout=GENEROUS_SECONDS)
    anchors = drawn_of(world, future, horizon)
    wanted = measured(world, "lewm", anchors, shift, reach=reach, partner_past=past)
    assert worst(score.checkpoint, wanted, anchors.ids, 0.10) <= TOLERANCE
    asked = score.receipt.parameters
    assert asked["window_future_frames"] == future
    said = asked["protocol"]
    assert said["reading"] == ("released" if "reading" in given else "paper")
    assert (said["partner_past"], said["neighbourhood"]) == (past, reach)


def test_a_task_file_says_the_reading(client: AcpcClient, world: ServedWorld) -> None:
    """A request that says another one is obeyed; both end in the receipt, of a set as well."""
    preset = "state: pos_agent\nlabels: [{rule: coordinates, of: [0]}]\n"
    path = world.dataset_root / "as-released.yaml"
    path.write_text(f"name: as-released\nprotocol: released\n{preset}")
    source = DatasetAnchors("tworoom.h5", path.name, count=COUNT)
    stored = client.anchors.create(source, history=3, horizon=HORIZON)
    found = {}
    for anchors, asked in itertools.product((source, stored), Reading):
        protocol = ScoreProtocol(draws=1, horizon=HORIZON, reading=asked)
        job = client.score_checkpoint("lewm", anchors, GaussianNoise(0.08), protocol=protocol)
        parameters = job.result(timeout=GENEROUS_SECONDS).receipt.parameters
        reading, windows = parameters["protocol"]["reading"], parameters["window_future_frames"]
        found[anchors is stored, asked] = reading, windows
    released, paper = ("released", 9), ("paper", HORIZON)
    assert found == {
        (False, Reading.SERVER_DEFAULT): released,
        (False, Reading.PAPER): paper,
        (False, Reading.RELEASED): released,
        (True, Reading.SERVER_DEFAULT): released,
        (True, Reading.PAPER): ("paper", 9),
        (True, Reading.RELEASED): released,
    }


@pytest.mark.parametrize("limits", [(0.3, 0.95), (50.0, 0.01)], ids=["strict", "lenient"])
def test_against_a_reference(
    client: AcpcClient, world: ServedWorld, anchors: score_reference.Anchors,
    limits: tuple[float, float],
) -> None:  # fmt: skip
    """Relative IR, S, Delta S and the verdict follow from both checkpoints' measurements."""
    shift, (t_ir, t_sr) = GaussianNoise(0.08), limits
    asked = {"protocol": ScoreProtocol(draws=2, seed=SEED, horizon=HORIZON)}
    asked |= {"reference": "lewm-base", "thresholds": Thresholds(ir=t_ir, sr=t_sr)}
    score = client.score_checkpoint("lewm", SOURCE, shift, **asked).result(GENEROUS_SECONDS)
    ours, base = (
        replace(measured(world, name, anchors, shift), t_ir=t_ir, t_sr=t_sr)
        for name in ("lewm", "lewm-base")
    )
    assert score.reference is not None
    relative = metrics.relative_ir(ours.ir_raw, base.ir_raw)
    error = max(
        worst(score.checkpoint, ours, anchors.ids, 0.10),
        worst(score.reference, base, anchors.ids, 0.10),
        *gaps(score.verdict, ours, base),
    )
    print(f"relative IR {relative:.4f}, largest relative error {error:.2e}")
    assert error <= TOLERANCE
    passed = metrics.verdict(relative, ours.sr, t_ir, t_sr) == "passed"
    assert passed == (limits == (50.0, 0.01))
    # These models of random weights predict nothing, so where the screen passes they do not fit.
    wanted_outcome = Outcome.DOES_NOT_FIT if score.fit_notes else Outcome.PASSED
    assert score.verdict.outcome is (wanted_outcome if passed else Outcome.FAILED)
    assert score.verdict.ir_passed == (relative <= t_ir)
    assert score.verdict.sr_passed == (ours.sr >= t_sr)
    assert (score.verdict.score >= 0) == passed
