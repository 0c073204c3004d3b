"""From names to cells: patterns, labels, references, weights, and ids that depend on content."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from acpc.contract import (
    CheckpointRef,
    DatasetAnchors,
    GaussianNoise,
    NumericMode,
    ScoreProtocol,
    Thresholds,
    from_plain,
)
from acpc_lab.report import from_sweep, render
from acpc_lab.sweeps import Cell, Sweep, SweepFileError, SweepFolder, SweepPlan
from acpc_lab.sweeps.reading import Pattern, as_value, fill
from sweep_plans import planned, sweep_of

RUNS = [f"noise-{level}-run-{run}" for run in (0, 1) for level in ("0.00", "0.04", "0.16")]


@pytest.mark.parametrize(
    ("pattern", "name", "labels"),
    [
        ("a/b", "a/b", {}),
        ("a/*", "a/bc", {}),
        ("*", "a/b", None),
        ("**", "a/b", {}),
        ("a?c", "abc", {}),
        ("a?c", "a/c", None),
        ("run[01]", "run1", {}),
        ("run[!01]", "run1", None),
        ("run[!01]", "run2", {}),
        ("a.b+(c)", "a.b+(c)", {}),
        ("a.b", "axb", None),
        ("noise-{level}-run-{run}", "noise-0.00-run-1", {"level": "0.00", "run": "1"}),
        ("{task}/run{run}/*", "cube/run2/x", {"task": "cube", "run": "2"}),
        ("{task}", "cube/run2", None),
        ("x{run}", "x", None),
    ],
)
def test_a_pattern_fits_whole_names(pattern: str, name: str, labels: dict[str, str] | None) -> None:
    assert Pattern.of(pattern).match(name) == labels


def test_labels_are_numbers_where_they_look_like_it() -> None:
    shown = [as_value(text) for text in ("3", "0.04", "1e-3", "run3", "nan", "inf", "1_0", "")]
    assert shown == [3, 0.04, 0.001, "run3", "nan", "inf", "1_0", ""]
    assert fill("{a}/x-{b}", {"a": "0.00", "b": "1"}) == "0.00/x-1"
    with pytest.raises(ValueError, match="names the label 'c', which this item lacks; it has a"):
        fill("{c}", {"a": "1"})


def test_labels_name_references_and_anchors() -> None:
    sweep = sweep_of(
        checkpoints=[
            {
                "name": "noise-{level}-run-{run}",
                "reference": "noise-0.00-run-{run}",
                "labels": {"task": "rooms"},
                "anchors": {"dataset": "{task}.h5", "task": "{task}.yaml"},
            }
        ],
        shifts=["blur:5"],
    )
    plan = planned(sweep, RUNS)
    assert [cell.checkpoint.name for cell in plan.cells] == RUNS
    for cell in plan.cells:
        assert cell.reference == CheckpointRef(f"noise-0.00-run-{cell.labels['run']}", "weights.pt")
        assert cell.anchors == DatasetAnchors("rooms.h5", "rooms.yaml")
    assert [cell.labels["level"] for cell in plan.cells] == [0.0, 0.04, 0.16] * 2
    assert [cell.of_reference for cell in plan.cells] == [True, False, False] * 2
    written = plan.to_document()
    read = from_plain(SweepPlan, json.loads(json.dumps(written)), arrays={})
    assert read.to_document() == written


def test_weights_files_can_be_a_ladder() -> None:
    ladder = {"run": ["weights_epoch_1.pt", "weights_epoch_10.pt", "last.pt"]}
    group = {"name": "run", "weights": "weights_epoch_{epoch}.pt"}
    reference = {"name": "run", "weights": "weights_epoch_1.pt"}
    plan = planned(sweep_of(checkpoints=[{**group, "reference": reference}]), ladder)
    found = [(cell.checkpoint.weights, cell.labels) for cell in plan.cells]
    assert found[::2] == [
        ("weights_epoch_1.pt", {"epoch": 1}),
        ("weights_epoch_10.pt", {"epoch": 10}),
    ]
    assert plan.cells[0].of_reference


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"checkpoints": ["b"]}, "'b' fits no checkpoint at the server, which has a, many"),
    ({"checkpoints": ["a", "*"]}, r"a \(weights.pt\) is already in checkpoints\[0\]"),
    ({"checkpoints": ["many"]}, r"many has 2 weights files \(x.pt, y.pt\); say which with weights"),
    ({"checkpoints": [{"name": "a", "weights": "x*.pt"}]}, "'a' with weights 'x\\*.pt' fits no"),
    ({"reference": "b"}, "its reference b is not at the server, which has a"),
    ({"reference": "many"}, "the reference many has 2 weights files"),
    ({"reference": {"name": "many", "weights": "z.pt"}}, "no weights file z.pt; it has x.pt, y.pt"),
    ({"reference": "a-{run}"}, "names the label 'run', which this item lacks; it has none"),
]


@pytest.mark.parametrize(("changes", "words"), REFUSED, ids=[item[1] for item in REFUSED])
def test_names_that_fit_nothing_say_what_there_is(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SweepFileError, match=words) as refused:
        planned(sweep_of(**changes), {"a": ["weights.pt"], "many": ["x.pt", "y.pt"]})
    assert refused.value.path.startswith("checkpoints[")


CELL = Cell(
    checkpoint=CheckpointRef("a", "weights.pt"),
    reference=CheckpointRef("b", "weights.pt"),
    anchors=DatasetAnchors("rooms.h5", "tworoom"),
    shift=GaussianNoise(0.08),
    protocol=ScoreProtocol(seed=0),
    thresholds=Thresholds(),
    numeric_mode=NumericMode.SERVER_DEFAULT,
    labels={"run": 1},
)


def test_long_and_strange_names_make_good_file_names() -> None:
    cell = dataclasses.replace(CELL, checkpoint=CheckpointRef("/".join(["ä b", "x" * 200]), "w.pt"))
    assert "/" not in cell.id
    assert len(cell.id.encode()) < 120


@pytest.mark.parametrize(("seeds", "resamples"), [(4, 2_000), (60, 32_000)])
def test_so_many_cells_have_resamples_that_show_each_is_sure(seeds: int, resamples: int) -> None:
    """2,000 cannot give a p-value below 2 / 2,001, which 51 cells make more than 5 %."""
    sweep = sweep_of(checkpoints=["a", "b"], seeds=list(range(seeds)), shifts=["blur:5"])
    plan = planned(sweep, ["a", "b"])
    assert {cell.evidence.resamples for cell in plan.cells} == {resamples}
    assert 2 / (resamples + 1) * len(plan.cells) < 0.05
    assert {cell.request().anchors.count for cell in plan.cells} == {100}


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
    document = json.loads(json.dumps(plan.to_document()))
    kept = from_plain(SweepPlan, document, arrays={})
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
    assert "<dt>anchors.seed</dt><dd><code>9101</code>" in page
    assert "None" not in page
