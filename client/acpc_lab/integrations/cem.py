"""A certificate for every iteration of stable-worldmodel's CEM solvers; see docs/certificates.md.

``CemCertificates`` has the interface of stable-worldmodel's callbacks (``solver.callbacks`` in
0.1.1, ``planning.solver.callbacks`` since), and ``attach`` puts it into a ``CEMSolver`` or an
``ICEMSolver``; any other loop can call it with the same keywords. Neither torch nor
stable_worldmodel is imported.

    certificates = CemCertificates(
        lambda env: client.plan(
            "lewm-pusht",
            frames[env],  # uint8 (1, height, width, 3), as the camera gave them
            goals[env],  # uint8 (height, width, 3)
            perturbations=GaussianNoise(0.02),
            draws=5,
            elite_count=30,  # the solver's topk
        )
    )
    solver = certificates.attach(CEMSolver(cost, n_steps=30, topk=30))
    outputs = solver.solve(info_dict)
    print(certificates.first_uncertified(env=0))

The session has the solver's model, inputs and objective, and an iCEM's ``kept_elites``. Where the
server would select otherwise than the solver, the iteration's certificate counts for nothing. The
hook cannot change the solver's iterations: the caller decides, after ``solve``, what to do with a
plan that is not certified.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from acpc.contract import Record, columns_of
from acpc_client import PlanSession, PoolCertificate
from acpc_client.errors import AcpcError, ArgumentError, DeadlineExceeded

from acpc_lab.integrations.breaker import CircuitBreaker
from acpc_lab.integrations.solvers import Floats, Integers, Solver, SolverHook, floats, integers

SPENT = "STEP_SECONDS_SPENT"
__all__ = ["CemCertificates", "IterationCertificate", "Solver"]


class IterationCertificate(Record):
    """One iteration of one environment's plan.

    Attributes:
        step: Iteration of the solver.
        certified: Every view leaves the solver's selection unchanged, by proof.
        margin: Smallest margin over the views; None without an answer.
        same_selection: Whether the server, from the clean history, selects what the solver did.
        cost_gap: Largest difference between the solver's and the server's clean costs, as a
            fraction of the largest cost; None without an answer.
        seconds: How long the solver was held up.
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


@dataclass(frozen=True)
class _Chosen:
    """What a solver selected; candidates of equal actions are one choice, whichever it took."""

    choices: Integers  # of each candidate
    winner: int
    elites: Integers  # best first
    kept: int

    @staticmethod
    def of(pool: Floats, costs: Floats, elites: Integers, kept: int) -> _Chosen:
        rows = pool.reshape(len(pool), -1).astype(np.float32)  # as they are sent
        _, choices = np.unique(rows, axis=0, return_inverse=True)
        return _Chosen(choices.reshape(-1), int(costs.argmin()), elites, kept)

    def winner_is(self, candidate: int) -> bool:
        return bool(self.choices[self.winner] == self.choices[candidate])

    def elites_are(self, elites: Sequence[int]) -> bool:
        """Whether both have the same choices, copies counted; of the kept ones too."""
        return all(
            sorted(self.choices[self.elites[:count]]) == sorted(self.choices[[*elites[:count]]])
            for count in (len(self.elites), self.kept)
        )


def _ends(error: AcpcError) -> bool:
    """Whether a session ends with an error: not where nothing was sent."""
    return error.reason != SPENT and not isinstance(error, ArgumentError)


class CemCertificates(SolverHook):
    """Asks for a certificate at each iteration of a solver, and keeps the answers of one solve.

    Args:
        open_session: Makes the session of an environment, by its number among the solver's
            ``n_envs``; called once per environment and solve. ``client.plan(...)`` as it is.
        select: Certify the winner or the elite set; CEM moves with the elite set.
        on_error: ``"raise"`` errors of an iteration out of ``solve``, or ``"deny"``: go on
            planning, with that iteration uncertified, and where the server ended the session the
            later ones of the environment. A server that was away twice in a row is then asked again
            only every ten seconds.
        step_seconds: How long one iteration may wait for its answers; None: as long as the
            sessions may. What is not answered by then is an error, as above.
        name: Key of ``history`` among the solver's outputs.
        constrained: Whether the solver gives infinite costs to candidates whose *actions* break a
            constraint; the server learns which they are. Not for constraints on predictions, which
            a view may change.

    Attributes:
        iterations: Answers by environment, in the order of the solver's steps.
        history: Batches x steps of plain values, as the library's own callbacks keep them.
        rows: What an attached solver was given for each environment of its solve, by key.
    """

    def __init__(
        self,
        open_session: Callable[[int], PlanSession],
        *,
        select: Literal["top1", "elite"] = "elite",
        on_error: Literal["raise", "deny"] = "raise",
        step_seconds: float | None = None,
        name: str = "acpc",
        constrained: bool = False,
    ) -> None:
        self._open_session = open_session
        self._select = select
        self._on_error = on_error
        if step_seconds is not None and not step_seconds > 0:
            raise ArgumentError("step_seconds", f"found {step_seconds}, wanted seconds above 0")
        self._step_seconds = step_seconds
        self._step_ends = math.inf
        self._breaker = CircuitBreaker()
        self.output_key = name
        self._constrained = constrained
        self.iterations: dict[int, list[IterationCertificate]] = {}
        self.history: list[list[dict[str, Any]]] = []
        self.rows: dict[int, dict[str, Any]] = {}
        self._sessions: list[PlanSession | AcpcError] = []
        self._environments: Sequence[int] | None = None
        self._solving: Any = None
        self._first_row = self._planned = 0

    def __getstate__(self) -> dict[str, Any]:
        """Copies the answers, and no session."""
        return {**vars(self), "_sessions": [], "_solving": None, "_environments": None}

    @contextmanager
    def around(self, solver: Solver, rows: dict[int, dict[str, Any]]) -> Iterator[None]:
        """Wraps one solve, for the environments of these rows, in their order."""
        if self._environments is not None:
            raise ArgumentError(
                "solver", "begins while another solve is under way; give each its CemCertificates"
            )
        self.reset()
        self.rows, self._environments, self._solving = rows, list(rows), solver
        try:
            yield
        except BaseException:
            self._hang_up()
            raise
        finally:
            self._environments = self._solving = None

    def first_uncertified(self, env: int = 0) -> int | None:
        """Step of the first iteration that is not certified; None: all are."""
        return next((item.step for item in self.iterations[env] if not item.certified), None)

    def certified(self, env: int = 0) -> bool:
        """Whether every iteration of the last solve is certified."""
        return self.first_uncertified(env) is None

    def reset(self) -> None:
        """Begins a solve; closes what a solve that raised has left open."""
        self._close_sessions()
        self._first_row = 0
        self.iterations, self.history = {}, []

    def start_batch(self) -> None:
        """Begins the next environments of the solve."""
        self._close_sessions()
        self.history.append([])

    def end_solve(self) -> None:
        """Ends a solve: closes its sessions.

        Raises ArgumentError: A solver that is not attached planned for other environments than
        before.
        """
        self._close_sessions()
        rows, before = self._first_row, self._planned
        self._planned = rows
        if self._environments is None and before not in (0, rows):
            raise ArgumentError(
                "environment",
                f"the solver planned for {before} environments before and for {rows} now, and "
                "which they are is not known: use certificates.attach(solver)",
            )

    def __call__(
        self,
        *,
        step: int,
        candidates: Any,  # noqa: ANN401 - tensors of a library that is not imported
        costs: Any,  # noqa: ANN401
        topk_inds: Any,  # noqa: ANN401
        **_: object,
    ) -> None:
        """Certifies one iteration.

        Args:
            step: Iteration.
            candidates: (environments, candidates, H, block width).
            costs: (environments, candidates).
            topk_inds: Indices of the elite set, (environments, k), best first.

        Raises ArgumentError: The session's elite count is not k, or its kept elites are not the
        attached solver's; AcpcError: Where ``on_error`` is "raise", the candidates cannot be sent,
        as after a single elite, whose spread is NaN, or the server rejected or could not do it.
        """
        self._step_ends = time.monotonic() + (self._step_seconds or math.inf)
        pools, solver_costs, elites = floats(candidates), floats(costs), integers(topk_inds)
        try:
            while len(self._sessions) < len(pools):
                self._sessions.append(self._enter(self._environment(len(self._sessions))))
            answers = [
                self._ask(row, step, pool, solver_costs[row], elites[row])
                for row, pool in enumerate(pools)
            ]
        except BaseException:
            self._hang_up()
            raise
        for row, answer in enumerate(answers):
            self.iterations.setdefault(self._environment(row), []).append(answer)
        kept = columns_of(answers, "certified", "margin")
        self.history[-1].append({**kept, "seconds": sum(answer.seconds for answer in answers)})

    def _environment(self, row: int) -> int:
        """Whose row of the batch it is."""
        row += self._first_row
        return row if self._environments is None else self._environments[row]

    def _enter(self, env: int) -> PlanSession | AcpcError:
        try:
            session = self._open_session(env)
            if self._on_error == "deny" and (known := self._breaker.error):
                return known
            return session.enter(timeout=self._left())
        except ArgumentError:  # of every iteration
            raise
        except AcpcError as error:
            return self._denied(error)

    def _left(self) -> float | None:
        """Seconds that are left of the iteration; DeadlineExceeded: none."""
        left = self._step_ends - time.monotonic()
        if left <= 0:
            spent = f"the iteration has spent its {self._step_seconds:g} s"
            raise DeadlineExceeded(spent, reason=SPENT)
        return left if math.isfinite(left) else None

    def _denied(self, error: AcpcError) -> AcpcError:
        if self._on_error == "raise":
            raise error
        if _ends(error):
            self._breaker.noted(error)
        return error

    def _ask(
        self, row: int, step: int, pool: Floats, costs: Floats, elites: Integers
    ) -> IterationCertificate:
        session, begun = self._sessions[row], time.perf_counter()
        if isinstance(session, PlanSession):
            if self._select == "elite":
                self._check(session, len(elites))
            try:
                infeasible = np.isposinf(costs) if self._constrained else None
                answer = session.certify(pool, infeasible=infeasible, timeout=self._left())
                self._breaker.noted(None)
                seconds = time.perf_counter() - begun
                chosen = _Chosen.of(pool, costs, elites, session.kept_elites)
                return self._judge(step, answer, costs, chosen, seconds)
            except AcpcError as error:
                denied = self._denied(error)
                if _ends(denied):
                    self._sessions[row] = denied
                session = denied
        seconds = time.perf_counter() - begun
        return IterationCertificate(step, False, None, False, None, seconds, None, session)

    def _check(self, session: PlanSession, count: int) -> None:
        if session.elite_count != count:
            wanted = f"found {session.elite_count}, wanted the solver's topk {count}"
            raise ArgumentError("elite_count", wanted)
        kept = getattr(self._solving, "n_elite_keep", None)
        if kept is not None and session.kept_elites != min(kept, count):
            wanted = f"found {session.kept_elites}, wanted the solver's n_elite_keep"
            raise ArgumentError("kept_elites", f"{wanted}, {min(kept, count)}")

    def _judge(
        self,
        step: int,
        answer: PoolCertificate,
        costs: Floats,
        solver: _Chosen,
        took: float,
    ) -> IterationCertificate:
        chosen = [view.top1 for view in answer.views]
        same = solver.winner_is(answer.clean_winner)
        if self._select == "elite":
            winners = (chosen, same) if step == self._returns_best_of() else ([], True)
            sets = [view.kept or view.elite for view in answer.views]
            chosen = [certificate for certificate in sets if certificate is not None] + winners[0]
            same = winners[1] and solver.elites_are(answer.clean_elites)
        proven = bool(chosen) and all(certificate.certified for certificate in chosen)
        feasible = np.isfinite(answer.clean_costs)
        ours = answer.clean_costs[feasible]
        gap = np.abs(costs[feasible] - ours).max() / (np.abs(ours).max() or 1.0)
        margin = min((certificate.margin for certificate in chosen), default=None)
        certified = proven and same and bool(np.isfinite(gap))
        return IterationCertificate(step, certified, margin, same, float(gap), took, answer, None)

    def _returns_best_of(self) -> int | None:
        """The iteration whose best candidate is the attached solver's plan; None: the mean is."""
        mean = getattr(self._solving, "return_mean", True)
        return None if mean else int(self._solving.n_steps) - 1

    def _close_sessions(self) -> None:
        for session in self._sessions:
            if isinstance(session, PlanSession):
                session.close()
        self._first_row += len(self._sessions)
        self._sessions = []

    def _hang_up(self) -> None:
        """Ends the batch's sessions at once: what they were asked for will not be used."""
        for session in self._sessions:
            if isinstance(session, PlanSession):
                session.__exit__(AcpcError)
        self._sessions = []
