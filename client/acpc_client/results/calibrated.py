"""Thresholds chosen on a training sweep: what ``acpc study run thresholds --out`` writes."""

from __future__ import annotations

from acpc.contract import Record, Thresholds


class SelectionStep(Record):
    """A criterion of a selection; criteria are applied in order.

    Attributes:
        criterion: What is compared, in words.
        best: Its best value among the pairs of thresholds that the criteria before it left.
        left: Pairs that have this value, and so go on to the next criterion.
    """

    criterion: str
    best: float
    left: int


class CalibrationScore(Record):
    """A score that a selection was made on.

    Attributes:
        level: Level of training augmentation; 0: the unaugmented reference.
        checkpoint_digest: These four are of the score's receipt; empty: the rows lack it.
    """

    task: str
    run: str
    level: float
    checkpoint_digest: str
    anchors_digest: str
    perturbation_digest: str
    parameters_digest: str


class CalibratedThresholds(Record):
    """Thresholds that were chosen on all tasks of a training sweep, and how.

    Attributes:
        ir: Threshold of relative IR.
        sr: Threshold of SR.
        family: Model family of the sweep; empty: its rows name none.
        tasks: Of the sweep.
        runs: Training runs, all tasks together.
        selection: How the grid of thresholds came down to this pair.
        splits: Choices of source tasks, for each of which the study chose a pair.
        agreeing: How many of them chose this pair, too.
        warnings: What to know before relying on it, in words; for example that it lies at the edge
            of the grid.
        scores: What it was chosen on.
        source_digest: sha256 of the file that this was read from, hex; empty: of none.
    """

    ir: float
    sr: float
    family: str
    tasks: tuple[str, ...]
    runs: int
    selection: tuple[SelectionStep, ...]
    splits: int
    agreeing: int
    warnings: tuple[str, ...]
    scores: tuple[CalibrationScore, ...]
    source_digest: str = ""

    @property
    def thresholds(self) -> Thresholds:
        """Thresholds, as ``score_checkpoint`` takes them."""
        return Thresholds(self.ir, self.sr, self.source_digest, self.family)
