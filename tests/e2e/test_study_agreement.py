"""RunStudy over the wire against float64 NumPy, from the HDF5 file to every column."""

import numpy as np
import pixel_reference as pixels
import pytest
import score_reference
import study_reference
import torch
from acpc.contract import (
    CemBudget,
    DatasetAnchors,
    DriftStudy,
    GaussianNoise,
    GeometryStudy,
    PlannerStudy,
    Reading,
    SensitivityStudy,
)
from acpc_client import AnchorSet
from acpc_client.results.answers import StudyResult
from acpc_client.sync.client import AcpcClient
from numpy.typing import ArrayLike
from public_dataset import PublicColumns, public_columns, write_public_dataset
from reference_model import ReferenceModel
from served_world import ServedWorld
from study_reference import StudyAnchors
from waiting import GENEROUS_SECONDS

TOLERANCE = 1e-4
EPISODES, FRAMESKIP = (60, 48, 1, 60, 44, 60, 64, 70), 5
SIGMAS = (0.02, 0.08)
SHIFTS = [GaussianNoise(sigma) for sigma in SIGMAS]
SEED, COUNT = 5, 12
# Columns of the drift study: measured, and equal in every digit.
DRIFTS = ["encoder_shift", "acpc_one_step", "acpc", "acpc_zeroed", "acpc_swapped", "acpc_shuffled",
          "clean_error", "perturbed_error"]  # fmt: skip
EXACT = ["anchor", "group", "shift", "severity", "draw"]
Study = DriftStudy | GeometryStudy | PlannerStudy | SensitivityStudy


@pytest.fixture(scope="module")
def model(world: ServedWorld) -> ReferenceModel:
    return world.reference("lewm")


@pytest.fixture(scope="module")
def content(world: ServedWorld) -> PublicColumns:
    columns = public_columns(EPISODES, side=36, seed=8)
    write_public_dataset(world.dataset_root / "studies.h5", columns)
    return columns


def drawn(content: PublicColumns, history: int, horizon: int, count: int = COUNT) -> StudyAnchors:
    anchors = score_reference.draw_anchors(
        content, history=history, horizon=horizon, count=count, seed=9101, frameskip=FRAMESKIP
    )
    counts = np.maximum(content.lengths - (history + horizon) * FRAMESKIP + 1, 0)
    ends = np.cumsum(counts)
    return StudyAnchors(anchors, np.searchsorted(ends, anchors.ids, side="right").tolist(), history)


def episodes(
    content: PublicColumns, history: int, horizon: int, *, count: int, future_frames: int
) -> StudyAnchors:
    """Anchors as the released code samples trajectories: an episode, then a start in it."""
    windows = score_reference.starts(content, history + future_frames, FRAMESKIP)
    by_episode: dict[int, list[int]] = {}
    for identity, (episode, _) in enumerate(windows):
        by_episode.setdefault(episode, []).append(identity)
    known = sorted(by_episode)
    generator = torch.Generator().manual_seed(9101)
    chosen = [known[i] for i in torch.randperm(len(known), generator=generator)[:count].tolist()]
    ids = []
    for episode in chosen:
        held = by_episode[episode]
        ids.append(held[int(torch.randint(len(held), (1,), generator=generator))])
    anchors = score_reference.anchors_at(
        content, ids, history=history, horizon=horizon, frameskip=FRAMESKIP,
        future_frames=future_frames,
    )  # fmt: skip
    return StudyAnchors(anchors, chosen, history)


def source(**changed: object) -> DatasetAnchors:
    return DatasetAnchors(
        "studies.h5", "tworoom", **{"count": COUNT, "one_per_episode": False, **changed}
    )


def answered(client: AcpcClient, study: Study, anchors: AnchorSet | DatasetAnchors) -> StudyResult:
    return client.run_study("lewm", anchors, study).result(timeout=GENEROUS_SECONDS)


def column(rows: list[study_reference.Row], name: str) -> np.ndarray:
    return np.array([row[name] for row in rows], np.float64)


def check(
    result: StudyResult, rows: list[study_reference.Row], scales: dict[str, str | None],
    exact: list[str],
) -> None:  # fmt: skip
    """Every column, within the tolerance of itself or of the column that bounds its rounding."""
    assert list(result.columns) == list(rows[0]) or set(rows[0]) < set(result.columns)
    for name in exact:
        assert result.columns[name].tolist() == column(rows, name).tolist(), name
    for name, scale in scales.items():
        wanted = column(rows, name)
        size = np.abs(column(rows, scale or name))
        error = np.max(np.abs(result.columns[name] - wanted) / size)
        print(f"{result.kind} {name}: {error:.1e}")
        assert error <= TOLERANCE, name


def same(found: ArrayLike, wanted: np.ndarray, scale: ArrayLike) -> None:
    assert np.max(np.abs(np.asarray(found) - wanted) / np.asarray(scale)) <= TOLERANCE


def test_drift(client: AcpcClient, model: ReferenceModel, content: PublicColumns) -> None:
    study = DriftStudy(SHIFTS, draws=2, seed=SEED, horizon=4, groups=3)
    result = answered(client, study, source())
    given = drawn(content, 3, 4)
    rows = study_reference.drift_rows(model, given, SIGMAS, draws=2, seed=SEED, groups=3)
    # A difference of errors is known to what bounds it.
    check(result, rows, {**dict.fromkeys(DRIFTS), "drift": "acpc"}, EXACT)
    assert list(result.columns) == list(rows[0])
    identity = result.arrays["identity_acpc"]
    assert identity.shape == (COUNT,)
    assert identity.max() == 0
    assert (result.columns["drift"] <= result.columns["acpc"] * (1 + 1e-12)).all()


def test_drift_as_the_released_code_has_it(
    client: AcpcClient, model: ReferenceModel, content: PublicColumns
) -> None:
    """Its sample, its windows and its destroyed actions; one group an episode."""
    study = DriftStudy(SHIFTS, draws=1, seed=SEED, horizon=4, groups=5, reading=Reading.RELEASED)
    anchors = DatasetAnchors("studies.h5", "tworoom")
    result = answered(client, study, anchors)
    given = episodes(content, 3, 4, count=5, future_frames=9)
    assert len(set(given.trajectories)) == 5
    generator = torch.Generator().manual_seed(SEED)
    partners = torch.randperm(5, generator=generator).tolist()
    orders = [torch.randperm(12, generator=generator).tolist() for _ in range(5)]
    destroyed = study_reference.destroyed_windows(given, partners, orders)
    rows = study_reference.drift_rows(
        model, given, SIGMAS, draws=1, seed=SEED, groups=5, destroyed=destroyed
    )
    check(result, rows, dict.fromkeys(DRIFTS), EXACT)
    told = result.receipt.parameters
    for name, value in [("reading", "released"), ("destroyed", "window"), ("sample", "episodes"),
                        ("window_future_frames", 9)]:  # fmt: skip
        assert told[name] == value


def test_planner_as_the_released_code_draws_it(
    client: AcpcClient, model: ReferenceModel, content: PublicColumns
) -> None:
    """Its sample of windows; the features of both readings are columns."""
    budget, asked = (12, 4, 2, 3), {"goal_offset": 2, "reading": Reading.RELEASED}
    study = PlannerStudy(SHIFTS[:1], budget=CemBudget(*budget), **asked)
    result = answered(client, study, source(count=3, one_per_episode=None))
    given = episodes(content, 1, 2, count=3, future_frames=9)
    rows, _ = study_reference.planner_rows(
        model, given, SIGMAS[:1], study_reference.Budget(*budget), draws=1, seed=0,
        sampling_seed=0, history=1, goal_offset=2,
    )  # fmt: skip
    features = ["first_acpc_one_step_q90", "first_displacement_q90"]
    check(result, rows, dict.fromkeys(features), ["anchor", "first_divergence"])
    same(result.columns["first_clean_gap"], column(rows, "first_clean_gap"), 1.0)


def test_geometry(client: AcpcClient, model: ReferenceModel, content: PublicColumns) -> None:
    study = GeometryStudy(SHIFTS, draws=2, seed=SEED, horizon=4, motion=True)
    result = answered(client, study, source())
    given = drawn(content, 3, 4)
    rows, arrays = study_reference.geometry_rows(model, given, SIGMAS, draws=2, seed=SEED)
    observed = np.array(
        [model.encode(pixels.model_input(frames[2:], model.image_size)) for _, frames, _ in given]
    )
    moves = np.linalg.norm(np.diff(observed, axis=1), axis=2)
    same(result.columns["motion_scale"], np.median(moves, axis=1), moves.max())
    same(result.arrays["observed"], observed, np.abs(observed).max())
    spaces = ("encoder", "rollout")
    measured = dict.fromkeys(f"{s}_{part}" for s in spaces for part in ("radius", "nearest"))
    check(result, rows, measured, ["anchor", *(f"{space}_disjoint" for space in spaces)])
    for name, wanted in arrays.items():
        assert result.arrays[name].dtype == np.float32
        same(result.arrays[name], wanted, np.abs(wanted).max())
    assert result.arrays["view_shift"].tolist() == [0, 0, 1, 1]
    assert result.arrays["view_draw"].tolist() == [0, 1, 0, 1]


def test_sensitivity(client: AcpcClient, model: ReferenceModel, content: PublicColumns) -> None:
    """A step large enough that float32 keeps its digits; the smaller default is for the limit."""
    study = SensitivityStudy(probes=3, seed=SEED, horizon=4, step=0.02)
    result = answered(client, study, source())
    rows = study_reference.sensitivity_rows(
        model, drawn(content, 3, 4), probes=3, seed=SEED, step=0.02
    )
    check(result, rows, {"squared_norm": None}, ["anchor", "method", "probe"])


@pytest.mark.parametrize(
    ("history", "stored"), [(3, None), (1, (3, 4))], ids=["history", "of-a-set"]
)
def test_planner(
    client: AcpcClient, model: ReferenceModel, content: PublicColumns, history: int,
    stored: tuple[int, int] | None,
) -> None:  # fmt: skip
    """Also on a set with more history and more future than the study asks for."""
    budget = (12, 4, 3, 3)
    asked = {"seed": SEED, "sampling_seed": 4, "history": history, "goal_offset": 2}
    study = PlannerStudy(SHIFTS, budget=CemBudget(*budget), **asked)
    anchors: DatasetAnchors | AnchorSet = source(count=3)
    if stored is not None:
        anchors = client.anchors.create(source(count=3), history=stored[0], horizon=stored[1])
    result = answered(client, study, anchors)
    given = drawn(content, *(stored or (history, 2)), count=3)
    rows, arrays = study_reference.planner_rows(
        model, given, SIGMAS, study_reference.Budget(*budget), draws=1, **asked
    )
    exact = ["anchor", "shift", "severity", "draw", "first_divergence", "candidate_pairs"]
    features = ("acpc_one_step_q90", "acpc_q90", "displacement_q90")
    distances = dict.fromkeys(f"{of}{name}" for of in ("", "first_") for name in features)
    check(result, rows, distances, [*exact, "bound_violations"])
    assert result.columns["bound_violations"].sum() == 0
    assert result.arrays.keys() == arrays.keys()
    for name, wanted in arrays.items():
        same(result.arrays[name], wanted, np.abs(wanted).max())
    same(result.columns["selection_regret"], column(rows, "selection_regret"), 1.0)
    for name in ("clean_gap", "first_clean_gap"):  # in float64: a small one has its digits
        np.testing.assert_allclose(result.columns[name], column(rows, name), rtol=1e-5)
    assert (result.columns["selection_regret"] > 0).any()
    divergence, certified = result.columns["first_divergence"], result.columns["certified"]
    assert certified.dtype == np.bool_
    assert not (certified & (divergence >= 0)).any()
