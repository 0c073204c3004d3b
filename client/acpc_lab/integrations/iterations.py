"""One iteration of one environment: what its solver chose, and whether that is certified."""

from __future__ import annotations

import math

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
    certified: bool = False
    margin: float | None = None
    same_selection: bool = False
    cost_gap: float | None = None
    seconds: float = 0.0
    certificate: PoolCertificate | None = None
    error: AcpcError | None = None


def judged(
    step: int,
    seconds: float,
    answer: PoolCertificate,
    pool: Floats,
    costs: Floats,
    elites: Integers,
    kept: int,
    winner_counts: bool,
) -> IterationCertificate:
    """Whether the server chose the same as a solver, and proves that every view does.

    Candidates of equal actions are one choice, whichever was taken. The pool, (candidates, H, block
    width), has the solver's costs. Its ``elites``, best first, of which so many ``kept`` are a set
    of their own, are empty where it goes on with its winner alone; ``winner_counts``: or with both.
    """
    rows = pool.reshape(len(pool), -1).astype(np.float32)  # as they are sent
    choices = np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)
    ours, theirs = choices[elites], choices[[*answer.clean_elites]]
    same = all(sorted(ours[:count]) == sorted(theirs[:count]) for count in (len(ours), kept))
    if winner_counts:
        same &= bool(choices[int(costs.argmin())] == choices[answer.clean_winner])
    found = [view.top1 for view in answer.views] if winner_counts else []
    if len(elites):
        sets = [view.kept or view.elite for view in answer.views]
        found += [certificate for certificate in sets if certificate is not None]
    proven = bool(found) and all(certificate.certified for certificate in found)
    feasible = np.isfinite(answer.clean_costs)
    clean = answer.clean_costs[feasible]
    gap = float(np.abs(costs[feasible] - clean).max() / (np.abs(clean).max() or 1.0))
    margin = min((certificate.margin for certificate in found), default=None)
    certified = proven and same and math.isfinite(gap)
    return IterationCertificate(step, certified, margin, same, gap, seconds, answer)
