"""One iteration of one environment: what its solver chose, and whether that is certified."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from acpc.contract import Record
from acpc_client import PoolCertificate
from acpc_client.errors import AcpcError

from acpc_lab.integrations.solvers import Floats, Integers


class IterationCertificate(Record):
    """One iteration of one environment's plan.

    Attributes:
        step: Iteration of the solver.
        certified: Every view leaves the solver's selection unchanged, by proof.
        margin: Smallest margin over the views; None without an answer.
        same_selection: Whether the server, from the clean history, selects what the solver did.
        cost_gap: Largest difference between the solver's and the server's clean costs, as a
            fraction of the largest cost; None without an answer.
        seconds: How long the solver had to wait for it, the environments of a batch at once.
        certificate: The server's whole answer; None: there was an error.
        error: Why there is no answer.
    """

    step: int
    certified: bool
    margin: float | None
    same_selection: bool
    cost_gap: float | None
    seconds: float
    certificate: PoolCertificate | None
    error: AcpcError | None

    @staticmethod
    def missing(step: int, seconds: float, error: AcpcError) -> IterationCertificate:
        """One without an answer."""
        return IterationCertificate(step, False, None, False, None, seconds, None, error)


@dataclass(frozen=True, eq=False)
class Chosen:
    """What a solver selected; candidates of equal actions are one choice, whichever it took.

    Attributes:
        choices: Of each candidate.
        costs: Of each, as the solver has them.
        elites: Best first; empty where the solver goes on with its winner alone.
        kept: How many of them are a set of their own.
        winner_counts: Whether the solver goes on with its winner.
    """

    choices: Integers
    costs: Floats
    elites: Integers
    kept: int
    winner_counts: bool

    @staticmethod
    def of(pool: Floats, costs: Floats, elites: Integers, kept: int, winner_counts: bool) -> Chosen:
        """What was selected of a pool (candidates, H, block width)."""
        rows = pool.reshape(len(pool), -1).astype(np.float32)  # as they are sent
        _, choices = np.unique(rows, axis=0, return_inverse=True)
        return Chosen(choices.reshape(-1), costs, elites, kept, winner_counts)

    def judged(self, step: int, answer: PoolCertificate, seconds: float) -> IterationCertificate:
        """Whether the server chose the same, and proves that every view does."""
        found = [view.top1 for view in answer.views] if self.winner_counts else []
        if len(self.elites):
            sets = [view.kept or view.elite for view in answer.views]
            found += [certificate for certificate in sets if certificate is not None]
        same = self._agrees(answer)
        proven = bool(found) and all(certificate.certified for certificate in found)
        feasible = np.isfinite(answer.clean_costs)
        ours = answer.clean_costs[feasible]
        gap = np.abs(self.costs[feasible] - ours).max() / (np.abs(ours).max() or 1.0)
        margin = min((certificate.margin for certificate in found), default=None)
        certified = proven and same and bool(np.isfinite(gap))
        return IterationCertificate(
            step, certified, margin, same, float(gap), seconds, answer, None
        )

    def _agrees(self, answer: PoolCertificate) -> bool:
        """Whether both have the same choices, copies counted; of the kept ones too."""
        ours, theirs = self.choices[self.elites], self.choices[[*answer.clean_elites]]
        sets = all(
            sorted(ours[:count]) == sorted(theirs[:count]) for count in (len(ours), self.kept)
        )
        winner = self.choices[int(self.costs.argmin())] == self.choices[answer.clean_winner]
        return sets and bool(winner or not self.winner_counts)
