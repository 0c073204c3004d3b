"""Threshold selection against loops in float64 written from the paper's text, and its edges."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from acpc_client.errors import ArgumentError
from acpc_lab.studies import STUDIES, Evidence, paper
from acpc_lab.studies.recovery import (
    Judgement,
    SweepRows,
    ThresholdPair,
    meets_criterion,
    read_training_sweep,
    select,
)
from acpc_lab.studies.recovery import ThresholdPair as Pair
from acpc_lab.studies.statistics import Confusion
from acpc_lab.studies.threshold_summary import ThresholdSummary
from acpc_lab.studies.thresholds import ThresholdParameters
from hypothesis import given, settings
from hypothesis import strategies as st
from threshold_reference import Cells, chosen, over_tasks

GRID = ThresholdParameters()
LEVELS = [level / 100 for level in range(9)]


def rows_of(cells: Cells, levels: list[float] = LEVELS, ir: str = "ir_rel") -> SweepRows:
    columns: dict[str, list[object]] = {
        name: [] for name in ("task", "run", "level", ir, "sr", "success_noisy", "success_clean")
    }
    for (task, run), values in cells.items():
        for index, level in enumerate(levels):
            columns["task"].append(task)
            columns["run"].append(run)
            columns["level"].append(level)
            for name in (ir, "sr", "success_noisy", "success_clean"):
                columns[name].append(values[name][index])
    return SweepRows.of(columns)


def summarise(rows: SweepRows, parameters: ThresholdParameters = GRID) -> ThresholdSummary:
    summary = Evidence.of(STUDIES["thresholds"], rows, parameters).summary
    assert isinstance(summary, ThresholdSummary)
    return summary


success = st.integers(0, 300).map(lambda count: count / 3)


@st.composite
def sweeps(draw: st.DrawFn) -> Cells:
    cells: Cells = {}
    for task in ("a", "b", "c")[: draw(st.integers(2, 3))]:
        for run in range(draw(st.integers(1, 3))):
            ir = draw(
                st.lists(
                    st.sampled_from([0.04, 0.05, 0.09, 0.2, 0.25, 0.3, 0.6]), min_size=4, max_size=4
                )
            )
            cells[task, str(run)] = {
                "ir_rel": [1.0, *ir],
                "sr": draw(
                    st.lists(st.sampled_from([0.5, 0.8, 0.88, 0.95, 1.0]), min_size=5, max_size=5)
                ),
                "success_noisy": draw(st.lists(success, min_size=5, max_size=5)),
                "success_clean": draw(st.lists(success, min_size=5, max_size=5)),
            }
    return cells


FEW = [0.0, 0.1, 0.2, 0.3, 0.4]


@pytest.mark.parametrize("reading", ["paper", "released"])
@settings(max_examples=10, deadline=None)
@given(cells=sweeps())
def test_every_split_agrees_with_plain_loops(reading: str, cells: Cells) -> None:
    """Thresholds and every test metric are those of float64 loops, in both readings."""
    summary = summarise(rows_of(cells, FEW), ThresholdParameters(reading=reading))
    released = FEW if reading == "released" else None
    tasks = tuple(dict.fromkeys(task for task, _ in cells))
    assert len(summary.splits) == 2 ** len(tasks) - 2
    for split in summary.splits:
        grids = (GRID.ir_grid, GRID.sr_grid)
        assert (split.t_ir, split.t_sr) == chosen(cells, split.source, grids, released)
        assert split.test == tuple(task for task in tasks if task not in split.source)
        seen = over_tasks(cells, split.source, split.t_ir, split.t_sr, released)
        unseen = over_tasks(cells, split.test, split.t_ir, split.t_sr, released)
        assert (split.source_early, split.source_late) == (seen["early"], seen["late"])
        np.testing.assert_allclose(
            [split.source_mismatch, split.source_balanced_accuracy, split.mismatch,
             split.worst_mismatch, split.balanced_accuracy, held(split.precision),
             held(split.recall)],
            [seen["mismatch"], seen["ba"], unseen["mismatch"], unseen["worst"], unseen["ba"],
             unseen["p"], unseen["r"]],
            rtol=1e-12,
            atol=1e-12,
        )  # fmt: skip


def held(value: float | None) -> float:
    return float("nan") if value is None else value


# --- a made-up sweep behind the paper's table --------------------------------------------------

SPANS = {  # of each run: recovered, accepted at t_IR = 0.3, accepted at 0.1; in levels 1 to 8
    "TwoRoom": (((1, 8), (2, 8), (5, 8)), ((1, 8), (2, 8), (5, 8)), ((2, 8), (3, 8), (6, 8))),
    "PushT": (((3, 8), (2, 7), (6, 7)), ((2, 8), (2, 8), (6, 8)), ((3, 8), (3, 8), (6, 8))),
    "Reacher": (((3, 8), (2, 8), (3, 8)), ((2, 7), (2, 8), (2, 8)), ((3, 8), (3, 8), (3, 8))),
    "Cube": (((4, 8), (4, 8), (7, 8)), ((3, 6), (2, 8), (6, 8)), ((3, 7), (3, 8), (7, 8))),
}


def made_up() -> Cells:
    def inside(span: tuple[int, int], level: int) -> bool:
        return span[0] <= level <= span[1]

    cells: Cells = {}
    for task, runs in SPANS.items():
        for run, (recovered_at, loose, tight) in enumerate(runs):
            cells[task, str(3072 + run)] = {
                "ir_rel": [1.0]
                + [
                    0.08 if inside(tight, k) else 0.25 if inside(loose, k) else 0.5
                    for k in range(1, 9)
                ],
                "sr": [0.3] + [0.97] * 8,
                "success_noisy": [20.0]
                + [95.0 if inside(recovered_at, k) else 50 for k in range(1, 9)],
                "success_clean": [96.0] * 9,
            }
    return cells


def test_a_made_up_sweep_gives_the_printed_table() -> None:
    """The tables are consistent with the protocol: per-run labels, runs averaged first, then tasks.

    Of the split that chooses on Reacher alone only the thresholds are compared.
    """
    summary = summarise(rows_of(made_up()))
    assert (summary.choices[0].rows_below_ir, summary.choices[0].rows_accepted) == (77, 77)
    sweep = paper.table("sweep_tasks")
    assert [
        (task.recovered_levels[0], task.recovered_levels[-1]) for task in summary.tasks
    ] == list(zip(sweep.first_recovered, sweep.last_recovered, strict=True))
    assert [(choice.t_ir, choice.t_sr, choice.splits) for choice in summary.choices] == [
        (0.3, 0.95, 13),
        (0.1, 0.95, 1),
    ]
    printed = {split.source: split for split in paper.splits()}
    for split in summary.splits:
        wanted = printed[
            tuple(sorted(split.source, key=("TwoRoom", "PushT", "Reacher", "Cube").index))
        ]
        assert (split.t_ir, split.t_sr) == (wanted.t_ir, wanted.t_sr)
        if split.source != ("Reacher",):
            assert round(split.mismatch, 1) == wanted.mismatch
            assert split.worst_mismatch == wanted.worst_mismatch
            for name in ("balanced_accuracy", "precision", "recall"):
                assert getattr(split, name) == pytest.approx(getattr(wanted, name), abs=0.00051)
    assert summary.checkpoints == 108


# --- criterion -----------------------------------------------------------------------------------


def test_the_criterion_is_met_exactly_at_its_edges() -> None:
    noisy = np.array([20.0, 84.0, 83.99, 100.0, 100.0])  # 20 + 0.8 (100 - 20) = 84
    clean = np.array([90.0, 85.0, 90.0, 84.99, 85.0])
    found = meets_criterion(noisy, clean, recovery=0.8, clean_loss=5)
    assert found.tolist() == [False, True, False, False, True]


@given(st.integers(0, 100), st.integers(0, 100), st.integers(1, 3))
def test_a_cutoff_that_is_hit_exactly_is_met(low: int, gain: int, parts: int) -> None:
    """Rounding of success rates, which are counts over episodes, never decides."""
    best = low + gain
    hit = float(Fraction(low, parts) + Fraction(4, 5) * Fraction(gain, parts))
    noisy = np.array([low / parts, best / parts, hit])
    found = meets_criterion(noisy, np.full(3, 50.0), recovery=0.8, clean_loss=5)
    assert found[2]


def test_a_level_is_recovered_when_two_of_three_runs_are() -> None:
    def run(*levels: int) -> dict[str, list[float]]:
        noisy = [10.0] + [90.0 if level in levels else 30.0 for level in (1, 2, 3)]
        return {"ir_rel": [1, 0.2, 0.2, 0.2], "sr": [1] * 4, "success_noisy": noisy,
                "success_clean": [90.0] * 4}  # fmt: skip

    cells = {("a", "0"): run(1, 2), ("a", "1"): run(2, 3), ("a", "2"): run(3), ("b", "0"): run(2)}
    summary = summarise(rows_of(cells, [0.0, 1.0, 2.0, 3.0]))
    assert [task.recovered_levels for task in summary.tasks] == [(2.0, 3.0), (2.0,)]
    assert summary.runs[0].recovered_levels == (1.0, 2.0)
    assert summary.tasks[0].best_success == pytest.approx((30 + 90 + 90) / 3)
    assert (summary.tasks[0].best_level, summary.tasks[0].base_success) == (2.0, 10.0)


def test_nothing_accepted_or_recovered_counts_as_one_step_past_the_grid() -> None:
    never = {"ir_rel": [1, 0.9, 0.9], "sr": [1, 1, 1], "success_noisy": [10.0, 20, 90],
             "success_clean": [90.0, 90, 90]}  # fmt: skip
    lost = {"ir_rel": [1, 0.04, 0.04], "sr": [1, 1, 1], "success_noisy": [10.0, 20, 90],
            "success_clean": [90.0, 50, 50]}  # fmt: skip
    summary = summarise(rows_of({("a", "0"): never, ("b", "0"): lost}, [0.0, 1.0, 2.0]))
    on_b, on_a = summary.splits  # chosen on a, tested on b, and the reverse
    # b recovers nowhere (past the grid: 3) and is accepted from level 1 on.
    assert (on_b.mismatch, on_b.precision, on_b.recall) == (2, 0, None)
    assert on_b.balanced_accuracy == pytest.approx(1 / 3)  # specificity alone
    # a recovers at level 2 and is accepted nowhere.
    assert (on_a.mismatch, on_a.precision, on_a.recall) == (1, None, 0)
    assert on_a.balanced_accuracy == 0.5


# --- ties ----------------------------------------------------------------------------------------


def case(onset: int, good: bool = True) -> Judgement:
    counts = Confusion(1, 0, 0, 1) if good else Confusion(1, 1, 0, 0)
    return Judgement(Fraction(onset), counts, early=int(onset < 0), late=int(onset > 0))


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (([case(1), case(1)], Pair(0.3, 0.8)), ([case(0), case(3)], Pair(0.1, 0.95))),
        (([case(1), case(1)], Pair(0.3, 0.8)), ([case(-1), case(1)], Pair(0.1, 0.95))),
        (([case(2), case(0)], Pair(0.3, 0.8)), ([case(1), case(1)], Pair(0.1, 0.95))),
        (([case(1), case(1)], Pair(0.3, 0.8)), ([case(1), case(1, good=False)], Pair(0.1, 0.95))),
        (([case(1), case(1)], Pair(0.1, 0.8)), ([case(1), case(1)], Pair(0.3, 0.95))),
        (([case(1), case(1)], Pair(0.1, 0.95)), ([case(1), case(1)], Pair(0.1, 0.8))),
    ],
    ids=["mismatch", "early", "late", "balanced accuracy", "smaller t_IR", "larger t_SR"],
)
def test_ties_are_broken_in_the_papers_order(
    better: tuple[list[Judgement], ThresholdPair], worse: tuple[list[Judgement], ThresholdPair]
) -> None:
    """Each pair wins by one criterion and would lose by every later one."""
    for order in ((better, worse), (worse, better)):
        judged = {pair: {"a": judgements} for judgements, pair in order}
        assert select(judged, ["a"]) == better[1]


# --- readings ------------------------------------------------------------------------------------


def test_the_switch_chooses_defaults_and_each_can_be_given() -> None:
    def told(**given: object) -> tuple[str, object]:
        parameters = ThresholdParameters(**given)  # type: ignore[arg-type]
        assert ThresholdParameters.from_dict(parameters.to_dict()) == parameters
        return parameters.ties, parameters.no_onset

    assert told() == ("runs", "past")
    assert told(reading="released") == ("checkpoints", 1.0)
    assert told(reading="released", ties="runs") == ("runs", 1.0)
    assert told(ties="checkpoints", no_onset=0.5) == ("checkpoints", 0.5)
    for wrong, words in [
        ({"reading": "mine"}, "reading: found 'mine', wanted one of paper, released"),
        ({"ties": "tasks"}, "ties: found 'tasks', wanted one of runs, checkpoints"),
        ({"no_onset": "never"}, "no_onset: found 'never', wanted past or a positive number"),
    ]:
        with pytest.raises(ArgumentError, match=words):
            told(**wrong)


def test_checkpoints_of_one_run_can_decide_where_runs_tie() -> None:
    """At 0.05 one run is two levels early, at 0.3 it is so with one checkpoint more."""
    run = {"ir_rel": [1, 0.04, 0.2, 0.04, 0.04], "sr": [1.0] * 5, "success_clean": [90.0] * 5,
           "success_noisy": [10.0, 20, 20, 90, 90]}  # fmt: skip
    grid = {"ir_grid": (0.05, 0.3), "sr_grid": (0.8,)}
    cells = {("a", "0"): run, ("b", "0"): run}
    for ties in ("runs", "checkpoints"):
        (split, _) = summarise(rows_of(cells, FEW), ThresholdParameters(**grid, ties=ties)).splits
        assert (split.t_ir, split.source_early, split.source_mismatch) == (0.05, 1, 2)
    (split, _) = summarise(
        rows_of(cells, FEW), ThresholdParameters((0.3,), (0.8,), ties="checkpoints")
    ).splits
    assert split.source_early == 2


def test_each_family_has_its_own_thresholds() -> None:
    """Two families in one file give what each gives alone."""
    cells = made_up()
    swapped = {
        key: {**values, "ir_rel": [1.0, *values["ir_rel"][:0:-1]]} for key, values in cells.items()
    }
    alone = [summarise(rows_of(one)) for one in (cells, swapped)]
    columns = {}
    parts = [rows_of(one).columns() for one in (cells, swapped)]
    for name in parts[0]:
        columns[name] = np.concatenate([part[name] for part in parts])
    columns["family"] = np.repeat(["lewm", "pldm"], [len(part["task"]) for part in parts])
    both = summarise(SweepRows.of(columns))
    assert (both.single_source, both.several_sources) == (None, None)
    for index, (family, one) in enumerate(zip(("lewm", "pldm"), alone, strict=True)):
        mean = both.families[index]
        assert (mean.family, mean.single_source) == (family, one.single_source)
        for name in ("tasks", "runs", "splits", "choices"):
            mine = [item for item in getattr(both, name) if item.family == family]
            plain = [item.to_dict() | {"family": family} for item in getattr(one, name)]
            assert [item.to_dict() for item in mine] == plain
    assert alone[0].splits != alone[1].splits
    columns["family"] = np.where(columns["task"] == "Cube", "other", columns["family"])
    columns["run"] = np.char.add(columns["run"], np.repeat(["", "x"], len(columns["run"]) // 2))
    with pytest.raises(ArgumentError, match="found 1 tasks of family other"):
        summarise(SweepRows.of(columns))


# --- what recovery costs and what else changes ---------------------------------------------------


def test_losses_have_their_deviation_over_runs() -> None:
    """What the unaugmented checkpoint loses under the shift, run by run, and over runs."""
    summary = summarise(rows_of(made_up()))
    assert [run.loss for run in summary.runs] == [76.0] * 12
    cells = made_up()
    for run, noisy in (("3072", 70.0), ("3073", 71.5), ("3074", 74.0)):
        cells["TwoRoom", run]["success_noisy"][0] = noisy
    loss = summarise(rows_of(cells)).tasks[0].loss
    assert loss.mean == pytest.approx((26 + 24.5 + 22) / 3)
    assert loss.sd == pytest.approx(np.std([26, 24.5, 22], ddof=1))


def test_clean_success_that_rises_is_told() -> None:
    """As on Reacher in the paper: from 59.2 % to 76-82 % at the recovered levels."""
    cells = made_up()
    for (task, _), values in cells.items():
        if task == "Reacher":
            values["success_clean"] = [59.2, 60, 70, 76, 82, 80, 78, 79, 77]
        if task == "Cube":
            values["success_clean"] = [90.0] + [94.9] * 8
    tasks = {task.task: task for task in summarise(rows_of(cells)).tasks}
    assert [task for task, found in tasks.items() if found.clean_rises] == ["Reacher"]
    assert tasks["Reacher"].recovered_clean == (76.0, 82.0)
    assert tasks["TwoRoom"].recovered_clean == (96.0, 96.0)
    lower = ThresholdParameters(clean_gain=4.9)
    assert summarise(rows_of(cells), lower).tasks[3].clean_rises


def test_success_by_evaluation_seed_has_a_deviation() -> None:
    """The paper's table has 96.3 +- 1.7, 99.3 +- 0.5 and 98.0 +- 2.2 % from 100 episodes a seed."""
    rows = rows_of({(task, "0"): PLAIN for task in ("a", "b")}, [0.0, 1.0, 2.0], "ir_raw")
    columns = rows.columns()
    del columns["success_clean"]
    columns["success_clean_seeds"] = np.array(["94 97 98", "99 99 100", "95 99 100"] * 2)
    (run, _) = summarise(SweepRows.of(columns)).runs
    assert [round(value, 1) for value in run.clean_success] == [96.3, 99.3, 98.0]
    assert run.clean_success_sd is not None
    assert [round(value, 1) for value in run.clean_success_sd] == [1.7, 0.5, 2.2]
    assert summarise(rows).runs[0].clean_success_sd is None
    for change, words in [
        ({"success_clean": rows.success_clean}, "a, run 0: row 1: has success_clean too"),
        ({"success_clean_seeds": ["", *["90"] * 5]}, "a, run 0: is missing"),
        ({"success_clean_seeds": ["101", *["90"] * 5]}, "found '101', wanted percentages"),
        ({"success_clean_seeds": ["90;91", *["90"] * 5]}, "found '90;91', wanted percentages"),
    ]:
        with pytest.raises(ArgumentError, match=words):
            summarise(SweepRows.of({**columns, **change}))


def test_distances_of_different_label_pairs_are_told_by_level() -> None:
    rows = rows_of({(t, r): PLAIN for t in ("a", "b") for r in "01"}, [0.0, 1.0, 2.0], "ir_raw")
    assert summarise(rows).tasks[0].different_label_distance is None
    distances = np.array([2.0, 2.2, 2.4, 3.0, 3.0, 3.0] * 2)
    with_distances = {**rows.columns(), "different_label_distance": distances}
    found = summarise(SweepRows.of(with_distances)).tasks[0].different_label_distance
    assert found == pytest.approx((2.5, 2.6, 2.7))


# --- refusals ------------------------------------------------------------------------------------

PLAIN = {"ir_raw": [2.0, 1.0, 0.5], "sr": [1.0] * 3, "success_noisy": [10.0, 20, 90],
         "success_clean": [90.0] * 3}  # fmt: skip
THREE = [0.0, 1.0, 2.0]


def test_raw_ir_is_divided_by_the_reference_of_the_run() -> None:
    rows = rows_of({("a", "0"): PLAIN}, THREE, ir="ir_raw")
    (run,) = read_training_sweep(rows, recovery=0.8, clean_loss=5).runs
    assert run.ir_rel.tolist() == [1, 0.5, 0.25]


def test_what_cannot_be_a_sweep_is_refused() -> None:
    good = rows_of({("a", "0"): PLAIN, ("b", "0"): PLAIN}, THREE, ir="ir_raw")
    everything = np.arange(len(good))
    for rows, words in [
        (good.where(everything[:3]), "found 1 tasks, wanted 2"),
        (good.where(everything[1:]), "a, run 0 has 0 rows of level 0"),
        (good.where(np.append(everything, 4)), "b, run 0 has 2 rows of level 1"),
        (good.where(good.level > 0), "found 1, 2; wanted 0, the reference"),
    ]:
        with pytest.raises(ArgumentError, match=words):
            summarise(rows)
    columns = good.columns()
    nought = np.where(good.level == 0, 0.0, good.ir_raw)
    off = np.where(good.level == 0, 0.9, 0.5)
    for change, words in [
        ({"ir_raw": nought}, "is 0 at level 0"),
        ({"ir_rel": off}, "wanted ir_raw in all rows or ir_rel in all rows"),
        ({"ir_raw": [np.nan] * 6, "ir_rel": off}, "found 0.9 at level 0, wanted 1"),
        ({"ir_raw": [np.nan] * 6}, "wanted ir_raw in all rows or ir_rel in all rows"),
    ]:
        with pytest.raises(ArgumentError, match=words):
            summarise(SweepRows.of({**columns, **change}))
    for change in ({"ir_grid": ()}, {"sr_grid": (0.0,)}, {"recovery": 0}, {"clean_loss": -1}):
        with pytest.raises(ArgumentError, match=next(iter(change))):
            ThresholdParameters(**change)
