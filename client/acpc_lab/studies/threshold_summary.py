"""What the threshold study answers."""

from __future__ import annotations

from dataclasses import dataclass

from acpc.contract import Record

from acpc_lab.studies.base import Spread
from acpc_lab.studies.success import Interval


@dataclass(frozen=True, repr=False, eq=False)
class TaskRecovery(Record):
    """Where a task recovers; means are over its runs.

    Attributes:
        base_success: Success of the unaugmented checkpoint under the shift, in %.
        best_level: Level with the highest mean success under the shift; the lowest of equals.
        clean_success: Clean success of the unaugmented checkpoint, in %.
        recovered_levels: Levels at which two of three runs meet the success-rate criterion.
        loss: Points of success that the unaugmented checkpoint loses under the shift, over runs.
        recovered_clean: Lowest and highest clean success of the recovered augmented levels, in %;
            None where there is none.
        clean_rises: At a recovered level clean success is higher, too, by ``clean_gain`` points or
            more: recovery cannot be attributed to robustness alone.
        different_label_distance: Median distance of different-label pairs by level; None where a
            row lacks it.
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
    family: str
    loss: Spread
    recovered_clean: tuple[float, float] | None
    clean_rises: bool
    different_label_distance: tuple[float, ...] | None


@dataclass(frozen=True, repr=False, eq=False)
class RunRecovery(Record):
    """Which levels of one run meet the success-rate criterion, and what it asks for, in %.

    Attributes:
        loss: Points of success that the unaugmented checkpoint loses under the shift.
        clean_success: By level, in %.
        clean_success_sd: Its deviation over evaluation seeds, by level, in points; None where no
            row has success by seed.
        success_interval: 95 % interval of success under the shift, by level, in %; None where
            rows do not tell their episodes.
        clean_success_interval: Of clean success, likewise.
        undecided_levels: Augmented levels whose intervals do not tell whether they meet the
            criterion, its cutoffs taken as they are; none without intervals.
    """

    task: str
    run: str
    required_success: float
    required_clean: float
    recovered_levels: tuple[float, ...]
    family: str
    loss: float
    clean_success: tuple[float, ...]
    clean_success_sd: tuple[float, ...] | None
    success_interval: tuple[Interval, ...] | None
    clean_success_interval: tuple[Interval, ...] | None
    undecided_levels: tuple[float, ...]


@dataclass(frozen=True, repr=False, eq=False)
class Split(Record):
    """Thresholds chosen on the source tasks, and how they do on the test tasks.

    Attributes:
        source_mismatch: Mean onset mismatch on the source tasks, in the summary's ``onset_unit``.
        source_early: Source runs whose first accepted level comes before the first recovered one;
            or source checkpoints that are accepted before it, as ``ties`` says.
        source_late: Source runs whose first accepted level comes after it; or source checkpoints
            that are recovered and rejected.
        mismatch: Mean onset mismatch on the test tasks, likewise.
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
    family: str = ""


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
        rows_below_ir: Checkpoints of the family whose relative IR passes.
        rows_accepted: Checkpoints of the family that pass both.
    """

    t_ir: float
    t_sr: float
    splits: int
    rows_below_ir: int
    rows_accepted: int
    family: str


@dataclass(frozen=True, repr=False, eq=False)
class FamilyMean(Record):
    """Averages over the splits of one model family.

    Attributes:
        single_source: Over the splits with one source task.
        several_sources: Over the splits with more; None with two tasks.
    """

    family: str
    single_source: SplitMean
    several_sources: SplitMean | None


@dataclass(frozen=True, repr=False, eq=False)
class ThresholdSummary(Record):
    """The answer of the threshold study.

    Thresholds are chosen in each model family by itself; rows that name none are one family.

    Attributes:
        choices: Most frequent first, family by family.
        single_source: Over the splits with one source task; None with several families.
        several_sources: Over the splits with more; None with two tasks or several families.
        families: The same averages of each family.
        onset_unit: Of mismatches: ``"grid steps"``, or ``"levels"``, differences of levels.
    """

    checkpoints: int
    levels: tuple[float, ...]
    tasks: tuple[TaskRecovery, ...]
    runs: tuple[RunRecovery, ...]
    splits: tuple[Split, ...]
    choices: tuple[Choice, ...]
    single_source: SplitMean | None
    several_sources: SplitMean | None
    families: tuple[FamilyMean, ...]
    onset_unit: str
