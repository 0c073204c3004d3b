"""Rows and their files: what fits is read exactly, what does not is named by line and column."""

import math

import numpy as np
import pytest
from acpc_client.errors import ArgumentError
from acpc_lab.studies.geometry import GeometryRows
from acpc_lab.studies.shifts import ShiftRows
from acpc_lab.tables import parse_csv, to_csv
from hypothesis import given, settings
from hypothesis import strategies as st

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
        ({"extra": [0, 1]}, "is no column"),
    ]:
        with pytest.raises(ArgumentError, match=words):
            GeometryRows.of({**good, **change})
    with pytest.raises(ArgumentError, match="task: is missing"):
        GeometryRows.of({name: values for name, values in good.items() if name != "task"})
    with pytest.raises(ArgumentError, match="there are none"):
        GeometryRows.of({name: [] for name in good})
    with pytest.raises(ArgumentError, match="row 2 repeats row 1: both have task a, run 0"):
        rows.require_unique("task", "run")
