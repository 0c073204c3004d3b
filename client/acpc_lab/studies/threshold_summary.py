"""What the threshold study answers."""

from __future__ import annotations

from dataclasses import dataclass

from acpc_client import Record


@dataclass(frozen=True, repr=False, eq=False)
class TaskRecovery(Record):
    """Where a task recovers; means are over its runs.

    Attributes:
        base_success: Success of the unaugmented checkpoint under the shift, in %.
        best_level: Level with the highest mean success under the shift; the lowest of equals.
        best_success: That success, in %.
        best_ir_rel: Mean relative IR at that level.
        base_sr: Mean SR of the unaugmented checkpoint.
        best_sr: Mean SR at that level.
        clean_success: Clean success of the unaugmented checkpoint, in %.
        recovered_levels: Levels at which two of three runs meet the success-rate criterion.
    """

    task: str
    base_success: float
    best_level: float
    best_success: float
    best_ir_rel: float
    base_sr: float
    best_sr: float
    clean_success: float
    recovered_levels: tuple[float, ...]


@dataclass(frozen=True, repr=False, eq=False)
class RunRecovery(Record):
    """Which levels of one run meet the success-rate criterion, and what it asks for, in %."""

    task: str
    run: str
    required_success: float
    required_clean: float
    recovered_levels: tuple[float, ...]


@dataclass(frozen=True, repr=False, eq=False)
class Split(Record):
    """Thresholds chosen on the source tasks, and how they do on the test tasks.

    Attributes:
        source_mismatch: Mean onset mismatch on the source tasks, in grid steps.
        source_early: Source runs whose first accepted level comes before the first recovered one.
        source_late: Source runs whose first accepted level comes after it.
        source_balanced_accuracy: On the source tasks.
        mismatch: Mean onset mismatch on the test tasks, in grid steps.
        worst_mismatch: Its largest value in any test run.
        precision: None when the screen accepts nothing in any test run.
        recall: None when nothing is recovered in any test run.
    """

    source: tuple[str, ...]
    test: tuple[str, ...]
    t_ir: float
    t_sr: float
    source_mismatch: float
    source_early: int
    source_late: int
    source_balanced_accuracy: float
    balanced_accuracy: float
    precision: float | None
    recall: float | None
    mismatch: float
    worst_mismatch: float


@dataclass(frozen=True, repr=False, eq=False)
class SplitMean(Record):
    """Plain averages over splits with a number of source tasks in one range."""

    splits: int
    balanced_accuracy: float
    lowest_balanced_accuracy: float
    highest_balanced_accuracy: float
    precision: float | None
    recall: float | None
    mismatch: float
    worst_mismatch: float


@dataclass(frozen=True, repr=False, eq=False)
class Choice(Record):
    """A pair of thresholds that some split chose.

    Attributes:
        splits: Splits that chose it.
        rows_below_ir: Checkpoints, of all, whose relative IR passes.
        rows_accepted: Checkpoints, of all, that pass both.
    """

    t_ir: float
    t_sr: float
    splits: int
    rows_below_ir: int
    rows_accepted: int


@dataclass(frozen=True, repr=False, eq=False)
class ThresholdSummary(Record):
    """The answer of the threshold study.

    Attributes:
        checkpoints: Rows, that is, checkpoints.
        choices: Most frequent first.
        single_source: Over the splits with one source task.
        several_sources: Over the splits with more; None with two tasks.
    """

    checkpoints: int
    levels: tuple[float, ...]
    tasks: tuple[TaskRecovery, ...]
    runs: tuple[RunRecovery, ...]
    splits: tuple[Split, ...]
    choices: tuple[Choice, ...]
    single_source: SplitMean
    several_sources: SplitMean | None
