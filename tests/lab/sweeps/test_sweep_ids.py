"""The ids of cells follow from what a file says: no release submits a finished cell again."""

import json
from pathlib import Path
from typing import Any

import pytest
from acpc.contract import ScoreProtocol
from acpc_lab.report import from_sweep, render
from acpc_lab.sweeps import Cell, Sweep, SweepFolder, SweepPlan
from sweep_plans import planned, sweep_of

ROOMS = {"dataset": "rooms.h5", "task": "tworoom"}
LEFT_OPEN = {"shifts": ["gaussian_noise:0.08"]}
# What the file says, how the id of its one cell ends, and the request id of its first attempt.
WRITTEN_DOWN: list[tuple[dict[str, Any], str, str]] = [
    ({}, "noise-0.08-seed0-14020a996a", "26cbcd16-b14f-5e55-bb94-f0c96bc946c8"),
    (
        {"anchors": {**ROOMS, "count": 100, "frameskip": 1, "one_per_episode": False}},
        "noise-0.08-seed0-3ec63cec33",
        "20786dbb-02af-5b68-9c97-5c5e5ee24c03",
    ),
    (
        {"shifts": [{"registered": {"name": "fog", "parameters": {"severity": 1}}}]},
        "fog-severity-1-seed0-9b8785bd09",
        "4fe33c63-5991-5a58-82c5-0cd6f4f0df01",
    ),
    ({"reference": "b"}, "noise-0.08-seed0-32365232db", "97861273-225b-5799-9c57-67c152404bae"),
]
ALIKE: list[dict[str, Any]] = [
    {},
    {"protocol": {"draws": None}},
    {"protocol": {"draws": 5, "horizon": 8, "quantile": 0.9, "margin": 0.1}},
    {"thresholds": {"ir": 0.3, "sr": 0.95}},
    {"evidence": {"confidence": 0.95}},
    {"anchors": {**ROOMS, "seed": 9101}},
    {"seeds": [0]},
    {"numeric_mode": "server_default"},
    {"checkpoints": [{"name": "a", "labels": {"run": 2}}]},
]
APART: list[dict[str, Any]] = [
    {},
    {"checkpoints": ["b"]},
    {"shifts": ["gaussian_noise:0.080001"]},
    {"anchors": {**ROOMS, "count": 99}},
    {"protocol": {"draws": 6}},
    {"protocol": {"horizon": 7}},
    {"protocol": {"quantile": 1}},
    {"protocol": {"margin": 0}},
    {"protocol": {"weights": [0.5, 0.5], "horizon": 2, "extra_horizons": [1]}},
    {"protocol": {"extra_quantiles": 0.5}},
    {"thresholds": {"ir": 1}},
    {"thresholds": {"sr": 0.9}},
    {"evidence": {"confidence": 0.9}},
    {"seeds": 7},
    {"anchors": {**ROOMS, "seed": 0}},
    {"anchors": {"set": "ab" * 32}},
    {"reference": "b"},
    {"numeric_mode": "fp32"},
    {"shifts": ["motion_blur:9"]},
    {"shifts": [{"motion_blur": {"length": 9, "angle": 45}}]},
    {"shifts": ["identity"]},
    {"shifts": [{"registered": {"name": "fog", "parameters": {}}}]},
    {"shifts": [{"brightness": [-1]}]},
    {"shifts": [{"jpeg": [10]}]},
]


def cell_of(sweep: Sweep) -> Cell:
    plan = planned(sweep, [*"ab"])
    kept = SweepPlan.from_document(json.loads(json.dumps(plan.to_document())))
    assert kept == plan
    (cell,) = kept.cells
    return cell


@pytest.mark.parametrize(("said", "id", "request_id"), WRITTEN_DOWN, ids=str)
def test_ids_are_those_that_were_written_down(
    said: dict[str, Any], id: str, request_id: str
) -> None:
    cell = cell_of(sweep_of(**LEFT_OPEN | said))
    assert cell.id.removeprefix("a-").removeprefix("gaussian_") == id
    assert cell.job_id("mine", 1) == request_id
    assert len({cell.job_id(name, n) for name in ("mine", "yours") for n in (1, 2)}) == 4


@pytest.mark.parametrize(("documents", "different"), [(ALIKE, 1), (APART, len(APART))])
def test_ids_are_alike_where_the_jobs_are(documents: list[dict[str, Any]], different: int) -> None:
    cells = [cell_of(sweep_of(**LEFT_OPEN | said)) for said in documents]
    assert len({cell.id for cell in cells}) == different
    assert len({cell.job_id("mine", 1) for cell in cells}) == different


def test_what_a_plan_leaves_open_has_the_papers_value(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path / "mine.sweep")
    folder.path.mkdir()
    folder.write_plan(planned(sweep_of(**LEFT_OPEN), ["a"]))
    plan = folder.read_plan()
    assert plan.cells[0].protocol == ScoreProtocol()
    page = render(from_sweep(folder.path))
    assert "seed 9101" in page
    assert "None" not in page
