"""From names to cells: patterns, labels, references, weights, and ids that depend on content."""

import dataclasses
import json
from typing import Any

import pytest
from acpc.contract import (
    CheckpointRef,
    DatasetAnchors,
    GaussianNoise,
    NumericMode,
    ScoreProtocol,
    Thresholds,
)
from acpc_lab.sweeps import Cell, SweepFileError, SweepPlan
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
    assert SweepPlan.from_document(json.loads(json.dumps(plan.to_document()))) == plan


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
