"""Rows and parameters of studies: what fits is read exactly, what does not is rejected by name."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from acpc_client.errors import ArgumentError
from acpc_lab.studies import STUDIES
from acpc_lab.studies.geometry import GeometryRows, measure
from acpc_lab.studies.shifts import ShiftRows
from acpc_lab.tables import parse_csv, to_csv
from hypothesis import given, settings
from hypothesis import strategies as st
from study_examples import EXAMPLES, Columns, clouds, geometry_columns, summary, where

Change = Callable[[Columns], Columns]


def put(**values: Any) -> Change:
    """Columns with other values; a function is given the columns, a single value fills one."""

    def change(columns: Columns) -> Columns:
        count = len(next(iter(columns.values())))
        held = {name: v(columns) if callable(v) else v for name, v in values.items()}
        filled = {k: np.full(count, v) if np.ndim(v) == 0 else v for k, v in held.items()}
        return columns | filled

    return change


def keep(held: Callable[[Columns], Any]) -> Change:
    return lambda columns: where(columns, held(columns))


def at_zero(value: float, other: float) -> Callable[[Columns], np.ndarray]:
    """A column with one value at level 0 and another above it."""
    return lambda columns: np.where(np.array(columns["level"]) == 0, value, other)


def lacks_ir(columns: Columns) -> Columns:
    return {name: values for name, values in columns.items() if name != "ir_rel"}


REFUSED: list[tuple[str, Change, str]] = [
    ("drift", put(drift=lambda c: c["drift"] * 1.01), "drift: row 1: found"),
    ("drift", put(severity=0.0), "is 0 in every row"),
    ("drift", put(draw=0), "row 2 repeats row 1"),
    ("drift", put(perturbed_error=lambda c: c["clean_error"], drift=0.0), "without error"),
    ("drift", put(group=0), "found 1, wanted at least 2"),
    ("planner", put(task="t0"), "row 49 repeats row 1"),
    ("planner", put(selection_regret=0.0), "predicted without error"),
    ("planner", put(selection_regret=-1.0), "found -1.0"),
    ("planner", keep(lambda c: c["task"] == "t0"), "run 0 has one task, t0"),
    ("geometry", put(encoder_nearest=0.0), "two anchors have one representation"),
    ("sensitivity", keep(lambda c: np.arange(1, len(c["task"]))), "between 1 and 2 probes"),
    ("sensitivity", put(anchor=lambda c: c["anchor"] + 5 * (c["level"] > 0)), "have other anchors"),
    ("sensitivity", put(squared_norm=0.0), "is 0 throughout for the reference"),
    ("horizons", keep(lambda c: c["level"] == 0), "is 0 in every row"),
    ("horizons", keep(lambda c: (c["run"] != "1") | (c["level"] > 0)), "found 0 rows of level 0"),
    ("horizons", put(ir_raw=at_zero(0.0, 1.0)), "is 0 at level 0"),
    ("collapse", put(median_latent_distance=0), "is 0 in every row"),
    ("collapse", put(checkpoint="fine"), "row 2 repeats row 1"),
    ("shifts", put(t_ir=0.51), "sr_reference: row 1: is missing"),
    ("shifts", put(t_sr=0.0), "t_sr: row 1: found 0"),
    ("thresholds", keep(lambda c: np.arange(3)), "found 1 tasks, wanted 2"),
    ("thresholds", keep(lambda c: np.arange(1, 6)), "a, run 0 has 0 rows of level 0"),
    ("thresholds", keep(lambda c: [0, 1, 2, 3, 4, 5, 4]), "b, run 0 has 2 rows of level 1"),
    ("thresholds", keep(lambda c: np.array(c["level"]) > 0), "found 1, 2; wanted 0, the reference"),
    ("thresholds", lambda c: put(ir_raw=at_zero(0.0, 1.0))(lacks_ir(c)), "is 0 at level 0"),
    ("thresholds", put(ir_raw=1.0), "wanted ir_raw in all rows or ir_rel in all rows"),
    ("thresholds", put(ir_rel=at_zero(0.9, 0.5)), "found 0.9 at level 0, wanted 1"),
    ("thresholds", lacks_ir, "wanted ir_raw in all rows or ir_rel in all rows"),
    ("thresholds", put(success_clean_seeds="90"), "a, run 0: row 1: has success_clean too"),
    ("thresholds", put(success_clean=np.nan), "a, run 0: is missing"),
    ("thresholds", put(success_clean=np.nan, success_clean_seeds="101"), "found '101', wanted per"),
    ("thresholds", put(success_clean=np.nan, success_clean_seeds="9;9"), "found '9;9', wanted per"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change", "words"), REFUSED)
def test_what_cannot_be_a_study_is_refused(name: str, change: Change, words: str) -> None:
    assert summary(name, EXAMPLES[name]) is not None
    with pytest.raises(ArgumentError, match=words):
        summary(name, change(EXAMPLES[name]))


def test_representations_must_fit_their_rows_and_each_other() -> None:
    columns, arrays = geometry_columns(clouds(2, 0.5, 12))
    other = {**arrays, "0.rollout_views": arrays["0.rollout_views"] * 1.01}
    with pytest.raises(ArgumentError, match="rollout_radius: the rows do not agree"):
        summary("geometry", columns, other)
    with pytest.raises(ArgumentError, match=r"0\.encoder_clean is missing"):
        summary("geometry", columns, {"0.rollout_clean": arrays["0.rollout_clean"]})
    shapes = [((3,), (3, 2)), ((3, 2), (2, 4, 2)), ((1, 2), (1, 4, 2)), ((3, 2), (3, 0, 2))]
    for clean, views in shapes:
        with pytest.raises(ArgumentError, match="wanted"):
            measure(np.zeros(clean), np.zeros(views))


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("drift", {"alpha": 0}, r"alpha: found 0, wanted a number in \(0, inf\)"),
        ("drift", {"alpha": "x"}, "alpha: found 'x', wanted a number"),
        ("planner", {"reading": "mine"}, "reading: found 'mine', wanted one of paper, released"),
        ("planner", {"pool": "middle"}, "pool: found 'middle', wanted one of last, first"),
        ("planner", {"distance": "sum"}, "distance: found 'sum', wanted one of acpc, displacement"),
        ("geometry", {"highlighted": 0}, "highlighted: found 0"),
        ("geometry", {"envelope": 1.0}, "envelope: found 1.0"),
        ("horizons", {"quantile": 1.5}, "quantile: found 1.5"),
        ("collapse", {"distance_share": 1.0}, r"distance_share: found 1.0.*\(0, 1\)"),
        ("shifts", {"gain": 0.0}, "gain: found 0.0"),
        ("thresholds", {"reading": "mine"}, "reading: found 'mine', wanted one of paper, released"),
        ("thresholds", {"ties": "tasks"}, "ties: found 'tasks', wanted one of runs, checkpoints"),
        ("thresholds", {"no_onset": "never"}, "no_onset: found 'never', wanted past or a positive"),
        ("thresholds", {"no_onset": 0.0}, "no_onset: found 0.0, wanted past or a positive number"),
        ("thresholds", {"ir_grid": ()}, "ir_grid: is empty"),
        ("thresholds", {"sr_grid": (0.0,)}, "sr_grid: found 0.0"),
        ("thresholds", {"recovery": 0}, "recovery: found 0"),
        ("thresholds", {"clean_loss": -1}, "clean_loss: found -1"),
        ("thresholds", {"gian": 1}, "gian: is no parameter; there are ir_grid, sr_grid"),
    ],
)
def test_a_parameter_out_of_range_is_refused(name: str, given: Columns, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        STUDIES[name].parameters.from_dict(given)


@pytest.mark.parametrize(
    ("name", "given", "wanted"),
    [
        ("thresholds", {}, ("runs", "past")),
        ("thresholds", {"reading": "released"}, ("checkpoints", 1.0)),
        ("thresholds", {"reading": "released", "ties": "runs"}, ("runs", 1.0)),
        ("thresholds", {"ties": "checkpoints", "no_onset": 0.5}, ("checkpoints", 0.5)),
        ("planner", {}, ("last", "acpc")),
        ("planner", {"reading": "released"}, ("first", "displacement")),
        ("planner", {"reading": "released", "pool": "last"}, ("last", "displacement")),
    ],
)
def test_the_switch_chooses_defaults_and_each_can_be_given(
    name: str, given: Columns, wanted: tuple[Any, Any]
) -> None:
    kind = STUDIES[name].parameters
    made = kind.from_dict(given)
    assert kind.from_dict(made.to_dict()) == made
    names = ("ties", "no_onset") if name == "thresholds" else ("pool", "distance")
    assert tuple(getattr(made, field) for field in names) == wanted


HEADER = "task,run,shift,ir_rel,sr,success_gain"
GOOD = f"{HEADER}\nmaze,0,blur,0.5,0.9,12\n"


def test_a_csv_with_comments_blank_lines_spaces_and_another_order_reads() -> None:
    text = "# from the lab\n\nrun, task ,shift,sr,ir_rel,success_gain\n7, maze,blur,0.9,0.5,12\n"
    rows = parse_csv(text, ShiftRows)
    assert (rows.task.tolist(), rows.run.tolist()) == (["maze"], ["7"])
    assert (rows.ir_rel[0], rows.sr[0]) == (0.5, 0.9)
    assert math.isnan(rows.sr_reference[0])
    assert math.isnan(rows.t_ir[0])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{GOOD}maze,1,blur,0.5x,0.9,12\n", ["line 3, column ir_rel", "'0.5x'", "at least 0"]),
        (f"{GOOD}maze,1,blur,0.5,1.9,12\n", ["line 3, column sr", "'1.9'", "between 0 and 1"]),
        (f"{GOOD}maze,1,blur,nan,0.9,12\n", ["line 3, column ir_rel", "'nan'"]),
        (f"{GOOD}maze,1,blur,inf,0.9,12\n", ["line 3, column ir_rel", "'inf'"]),
        (f"{GOOD}maze,1,blur,,0.9,12\n", ["line 3, column ir_rel", "''"]),
        (f"{GOOD}maze,,blur,1,0.9,12\n", ["line 3, column run", "not empty"]),
        (f"{GOOD}# note\n\nmaze,1,blur,-1,0.9,12\n", ["line 5, column ir_rel", "'-1'"]),
        (f"{GOOD}maze,1,blur,0.5,0.9\n", ["line 3", "found 5 cells, wanted 6"]),
        (f"{HEADER},ir_rell\n", ["line 1", "unknown column 'ir_rell'", "did you mean 'ir_rel'?"]),
        ("[" * 100_000, ["line 1", "unknown column '" + "[" * 80 + "'...; the columns"]),
        (f"{HEADER},sr\n", ["line 1", "column sr occurs 2 times"]),
        ("task,run,shift,ir_rel,sr\n", ["line 1", "column success_gain is missing"]),
        (HEADER.replace(",", ";"), ["line 1", "unknown column", "separate columns by commas"]),
        ("", ["line 1", "column task is missing"]),
        (f"{HEADER}\n", ["has a header and no rows"]),
        (f'{GOOD}"maze,1,blur,1,1,1\n', ["is not CSV"]),
    ],
)
def test_a_csv_that_does_not_fit_is_refused_by_line_and_column(text: str, words: list[str]) -> None:
    with pytest.raises(ArgumentError) as raised:
        parse_csv(text, ShiftRows, "pairs.csv")
    assert raised.value.message.startswith("pairs.csv")
    for word in words:
        assert word in raised.value.message


finite = st.floats(0, 1e300)


@settings(max_examples=10)
@given(
    st.lists(
        st.tuples(
            st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1),
            finite,
            st.floats(0, 1),
            st.one_of(st.just(math.nan), st.floats(0, 1)),
            st.floats(-100, 100),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_files_give_back_every_text_and_every_bit(values: list[tuple[str, float, float]]) -> None:
    """Reading what was written yields equal columns, NaN included."""
    names = ("task", "ir_rel", "sr", "sr_reference", "success_gain")
    columns = dict(zip(names, map(list, zip(*values, strict=True)), strict=True))
    columns["task"] = [f"t{task}" for task in columns["task"]]  # a leading # is a comment
    columns |= {"run": ["0"] * len(values), "shift": ["blur"] * len(values)}
    rows = ShiftRows.of(columns)
    again = parse_csv(to_csv(rows), ShiftRows)
    for field in ShiftRows.fields():
        np.testing.assert_array_equal(getattr(again, field.name), getattr(rows, field.name))


def test_columns_from_python_are_checked_as_those_of_files_are() -> None:
    good = {
        "task": ["a", "a"], "run": ["0", "0"], "level": [0, 0.5], "anchor": [1, 2],
        "encoder_radius": [1, 2], "encoder_nearest": [1, 2], "encoder_disjoint": [True, False],
        "rollout_radius": [1, 2], "rollout_nearest": [1, 2], "rollout_disjoint": [0, 1],
    }  # fmt: skip
    rows = GeometryRows.of(good)
    assert rows.encoder_disjoint.dtype == np.int64
    assert rows.level.dtype == np.float64
    assert len(rows) == 2
    for change, words in [
        ({"anchor": [1, 2.5]}, "anchor: row 2: found 2.5, wanted an integer"),
        ({"anchor": [1, "x"]}, "anchor"),
        ({"encoder_disjoint": [0, 2]}, "row 2: found 2, wanted an integer between 0 and 1"),
        ({"level": [0, -1]}, "row 2: found -1"),
        ({"level": [0, 1, 2]}, "3 rows, where the columns before it have 2"),
        ({"level": [[0, 1]]}, "one axis"),
        ({"extra": [0, 1]}, "unknown column .extra."),
    ]:
        with pytest.raises(ArgumentError, match=words):
            GeometryRows.of({**good, **change})
    with pytest.raises(ArgumentError, match="column task is missing"):
        GeometryRows.of({name: values for name, values in good.items() if name != "task"})
    with pytest.raises(ArgumentError, match="there are none"):
        GeometryRows.of({name: [] for name in good})
    with pytest.raises(ArgumentError, match="row 2 repeats row 1: both have task a, run 0"):
        rows.require_unique("task", "run")
