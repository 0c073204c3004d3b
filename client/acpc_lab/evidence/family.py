"""Decides many cells at once, so that any wrong verdict among them is as rare as one alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from acpc_client import Evidence, Outcome

from acpc_lab.evidence.multiplicity import FamilyWise, all_hold, any_holds, held_in_sequence, holm


@dataclass(frozen=True)
class Sureness:
    """What is sure of a cell, or of all cells of a checkpoint, among the others of its family.

    Attributes:
        alone: The confident outcome by itself; None: not measured, or without evidence.
        outcome: The same, corrected for the family; ``alone`` where that was not asked for.
        p_passed: Adjusted p-value against "does not pass".
        p_failed: Adjusted p-value against "passes".
    """

    alone: Outcome | None
    outcome: Outcome | None
    p_passed: float
    p_failed: float


@dataclass(frozen=True)
class Family:
    """Cells that are judged together. A cell without evidence may still turn out either way.

    Cells of one confidence share its error, which is corrected for their number; those of another,
    as another epoch of a training run, have an error of their own, and the errors add up. A cell
    without evidence counts among those of every confidence.

    Attributes:
        cells: What is known of each cell; references, which cannot pass, are no members.
        method: How the statements are corrected for their number.
    """

    cells: Sequence[Evidence | None]
    method: FamilyWise = FamilyWise.HOLM

    @property
    def confidence(self) -> float:
        """That nothing said of the cells is wrong; uncorrected: no one thing; 1 without any."""
        errors = self._errors()
        return 1 - (sum(errors) if self.method is FamilyWise.HOLM else max(errors, default=0.0))

    def each(self) -> list[Sureness]:
        """Which cells pass, and which fail: Holm over the cells."""
        alone = [None if cell is None else cell.confident_outcome for cell in self.cells]
        return self._judged(alone, *self._p_values(), [(place,) for place in range(len(alone))])

    def everywhere(self, groups: Sequence[Sequence[int]]) -> list[Sureness]:
        """Which groups of cells pass as a whole, and which fail somewhere: Holm over the groups.

        Args:
            groups: Places of the cells of each group, for example of a checkpoint's shifts.
        """
        passed, failed = self._p_values()
        whole = [all_hold([passed[place] for place in group]) for group in groups]
        broken = [any_holds([failed[place] for place in group]) for group in groups]
        alone = [
            self._whole([self.cells[place] for place in group], p <= self._level(group))
            for group, p in zip(groups, broken, strict=True)
        ]
        return self._judged(alone, whole, broken, groups)

    def onsets(self, sequences: Sequence[Sequence[Sequence[int]]]) -> list[int]:
        """How many steps from the start of each sequence surely pass.

        Args:
            sequences: The steps of each sequence, for example levels from the highest down; a
                step holds the places of its cells, which pass together or not.
        """
        passed, _ = self._p_values()
        steps = [[all_hold([passed[i] for i in step]) for step in steps] for steps in sequences]
        level = min(self._errors(), default=0.0)
        if self.method is FamilyWise.HOLM:
            return held_in_sequence(steps, level)
        return [held_in_sequence([one], level)[0] for one in steps]

    def _p_values(self) -> tuple[list[float], list[float]]:
        """Against "does not pass" and against "passes"; 1 where nothing is known."""
        found = [(1.0, 1.0) if cell is None else _p_values(cell) for cell in self.cells]
        return [passed for passed, _ in found], [failed for _, failed in found]

    def _errors(self, group: Sequence[int] | None = None) -> set[float]:
        """The errors of all cells, or of those at some places."""
        cells = self.cells if group is None else [self.cells[place] for place in group]
        return {1 - cell.sure for cell in cells if cell is not None}

    def _level(self, group: Sequence[int]) -> float:
        """The smallest error in a group; 0 where nothing is known."""
        return min(self._errors(group), default=0.0)

    def _judged(
        self,
        alone: Sequence[Outcome | None],
        passed: Sequence[float],
        failed: Sequence[float],
        groups: Sequence[Sequence[int]],
    ) -> list[Sureness]:
        """Statements of groups of cells: those of one level are corrected for their number."""
        if self.method is FamilyWise.NONE:
            return [Sureness(*cell) for cell in zip(alone, alone, passed, failed, strict=True)]
        found = [Sureness(None, None, 1.0, 1.0)] * len(alone)
        levels = [self._level(group) for group in groups]
        for level in set(levels) - {0.0}:
            together = [place for place, its in enumerate(levels) if its in (level, 0.0)]
            p_values = [holm([of[place] for place in together]) for of in (passed, failed)]
            for place, p_passed, p_failed in zip(together, *p_values, strict=True):
                own = alone[place]
                lost = (own is Outcome.PASSED and p_passed > level) or (
                    own is Outcome.FAILED and p_failed > level
                )
                outcome = Outcome.UNDECIDED if lost else own
                found[place] = Sureness(own, outcome, p_passed, p_failed)
        return found

    @staticmethod
    def _whole(cells: Sequence[Evidence | None], fails: bool) -> Outcome | None:
        """The outcome of a group by itself."""
        if fails:
            return Outcome.FAILED
        if any(cell is None for cell in cells):
            return None
        outcomes = {cell.confident_outcome for cell in cells if cell is not None}
        agreed = outcomes in ({Outcome.PASSED}, {Outcome.INCONCLUSIVE})
        return outcomes.pop() if agreed else Outcome.UNDECIDED


def _p_values(cell: Evidence) -> tuple[float, float]:
    """Of a job that looked several times: each look's over its share of the error, the smallest.

    At most a share p of such jobs gives so small a value, whichever look it comes from (Bonferroni
    with the weights of the looks).
    """
    if cell.looks is None:
        return cell.p_passed, cell.p_failed
    error, looks = 1 - cell.looks.confidence, cell.looks.looks
    passed = [look.p_passed * error / look.passing for look in looks if look.passing > 0]
    failed = [look.p_failed * error / look.failing for look in looks if look.failing > 0]
    return min(1.0, *passed, 1.0), min(1.0, *failed, 1.0)
