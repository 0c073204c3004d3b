"""A certificate for every iteration of stable-worldmodel's solvers; see docs/certificates.md.

``CemCertificates`` has the interface of stable-worldmodel's callbacks (``solver.callbacks`` in
0.1.1, ``planning.solver.callbacks`` since), and ``attach`` puts it around a ``CEMSolver``, an
``ICEMSolver``, a ``CategoricalCEMSolver`` or a ``PredictiveSamplingSolver``; any other loop can
call it with the same keywords. Neither torch nor stable_worldmodel is imported.

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
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
from acpc.contract import columns_of
from acpc_client import PlanSession
from acpc_client.errors import AcpcError, ArgumentError, DeadlineExceeded

from acpc_lab.integrations.iterations import IterationCertificate, judged
from acpc_lab.integrations.solvers import AttachedSolver, Floats, Integers, floats, integers

T = TypeVar("T")
SPENT = "STEP_SECONDS_SPENT"
__all__ = ["CemCertificates", "IterationCertificate"]


def _or_error(opened: Callable[[], PlanSession]) -> PlanSession | AcpcError:
    """A session, or why there is none; raises ArgumentError, which is every iteration's."""
    try:
        return opened()
    except ArgumentError:
        raise
    except AcpcError as error:
        return error


def _ends(error: AcpcError) -> bool:
    """Whether a session ends with an error: not where nothing was sent."""
    return error.reason != SPENT and not isinstance(error, ArgumentError)


def _require_alike(pools: Floats, costs: Floats, elites: Integers, rows: int) -> None:
    """Raises ArgumentError: Arrays of an iteration that are not of as many rows and candidates."""
    if pools.ndim != 4 or not len(pools) or len(pools) != rows:
        wanted = f"wanted ({rows or 'environments'}, candidates, H, block width)"
        raise ArgumentError("candidates", f"found {pools.shape}, {wanted}")
    if costs.shape != pools.shape[:2]:
        raise ArgumentError("costs", f"found {costs.shape}, wanted {pools.shape[:2]}")
    if elites.ndim != 2 or len(elites) != rows:
        raise ArgumentError("topk_inds", f"found {elites.shape}, wanted ({rows}, k)")
    if not np.isin(elites, np.arange(pools.shape[1])).all():
        raise ArgumentError("topk_inds", f"wanted indices of {pools.shape[1]} candidates")


@dataclass(eq=False, repr=False)
class CemCertificates:
    """Asks for a certificate at each iteration of a solver, and keeps the answers of one solve.

    The environments of a batch are asked about at once, and each answer is that of its environment
    alone.

    Attributes:
        open_session: Makes the session of an environment, by its number among the solver's
            ``n_envs``; called once per environment and solve. ``client.plan(...)`` as it is.
        select: Certify the winner or the elite set; CEM moves with the elite set, predictive
            sampling with the winner.
        on_error: ``"raise"`` errors of an iteration out of ``solve``, those of the first
            environment that has one, or ``"deny"``: go on planning, with that iteration of that
            environment uncertified, and where the server ended the session its later ones.
        step_seconds: How long one iteration may wait for its answers; None: as long as the
            sessions may. What is not answered by then is an error, as above.
        name: Key of ``history`` among the solver's outputs.
        constrained: Whether the solver gives infinite costs to candidates whose *actions* break a
            constraint; the server learns which they are. Not for constraints on predictions, which
            a view may change.
        iterations: Answers by environment, in the order of the solver's steps.
        history: Batches x steps of plain values, as the library's own callbacks keep them.
        rows: What an attached solver was given for each environment of its solve, by key.
    """

    open_session: Callable[[int], PlanSession]
    _: KW_ONLY
    select: Literal["top1", "elite"] = "elite"
    on_error: Literal["raise", "deny"] = "raise"
    step_seconds: float | None = None
    name: str = "acpc"
    constrained: bool = False
    iterations: dict[int, list[IterationCertificate]] = field(default_factory=dict, init=False)
    history: list[list[dict[str, Any]]] = field(default_factory=list, init=False)
    rows: dict[int, dict[str, Any]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        for name, known in (("select", ("top1", "elite")), ("on_error", ("raise", "deny"))):
            if (found := getattr(self, name)) not in known:
                raise ArgumentError(name, f"found {found!r}, wanted {' or '.join(known)}")
        if self.step_seconds is not None and not self.step_seconds > 0:
            wanted = f"found {self.step_seconds}, wanted seconds above 0"
            raise ArgumentError("step_seconds", wanted)
        self.output_key = self.name
        self._step_ends = math.inf
        self._sessions: list[PlanSession | AcpcError] = []
        self._environments: Sequence[int] | None = None
        self._solving: Any = None
        self._first_row = self._planned = 0

    def __getstate__(self) -> dict[str, Any]:
        """Copies the answers, and no session."""
        return {**vars(self), "_sessions": [], "_solving": None, "_environments": None}

    def attach(self, solver: T) -> T:
        """Returns the solver with these certificates around each ``solve``, which is as it was.

        So the environment of each row is known, and no error inside ``solve`` leaves a session
        open. Attaching again changes nothing. A solver may have several hooks, and a hook several
        solvers, one solve at a time; answers are the last solve's. A deep copy has hooks and
        sessions of its own. Raises ArgumentError: The solver has no callbacks, as MPPI's.
        """
        around: Any = solver
        while isinstance(around, AttachedSolver):
            if around.hook is self:
                return solver
            around = around.solver
        attached: Any = AttachedSolver(solver, self)
        return attached  # type: ignore[no-any-return]

    @contextmanager
    def around(self, solver: object, rows: dict[int, dict[str, Any]]) -> Iterator[None]:
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

        Raises ArgumentError: Arrays do not fit each other, or the batch; the session's elite count
        is not k, or its kept elites are not the attached solver's; AcpcError: Where ``on_error`` is
        "raise", the candidates cannot be sent, as after a single elite, whose spread is NaN, or the
        server rejected or could not do it.
        """
        self._step_ends = time.monotonic() + (self.step_seconds or math.inf)
        pools, solver_costs, elites = floats(candidates), floats(costs), integers(topk_inds)
        try:
            _require_alike(pools, solver_costs, elites, len(self._sessions) or len(pools))
            if not self._sessions:
                self._open(len(pools))
            self._check(elites.shape[1])
            rows = self._sessions, pools, solver_costs, elites
            answers = self._together(partial(self._ask, step), *rows)
        except BaseException:
            self._hang_up()
            raise
        for row, answer in enumerate(answers):
            if answer.error is not None and _ends(answer.error):
                self._sessions[row] = answer.error
            self.iterations.setdefault(self._environment(row), []).append(answer)
        kept = columns_of(answers, "certified", "margin")
        self.history[-1].append({**kept, "seconds": max(answer.seconds for answer in answers)})

    def _environment(self, row: int) -> int:
        """Whose row of the batch it is."""
        row += self._first_row
        return row if self._environments is None else self._environments[row]

    def _open(self, rows: int) -> None:
        """Makes the sessions of a batch, in their order, and enters them at once."""
        envs = [self._environment(row) for row in range(rows)]
        made = [_or_error(partial(self.open_session, env)) for env in envs]
        self._sessions = self._together(self._entered, made)
        for session in self._sessions:
            if isinstance(session, AcpcError) and self.on_error == "raise":
                raise session

    def _entered(self, session: PlanSession | AcpcError) -> PlanSession | AcpcError:
        if isinstance(session, AcpcError):
            return session
        return _or_error(lambda: session.enter(timeout=self._left()))

    def _together(self, work: Callable[..., T], *rows: Any) -> list[T]:  # noqa: ANN401
        """What comes of each row of a batch, in their order; all wait for the server at once."""
        with ThreadPoolExecutor(len(rows[0])) as threads:
            try:
                return list(threads.map(work, *rows))
            except BaseException:
                self._hang_up()  # the other threads wait for what will not be used
                raise

    def _left(self) -> float | None:
        """Seconds that are left of the iteration; DeadlineExceeded: none."""
        left = self._step_ends - time.monotonic()
        if left <= 0:
            spent = f"the iteration has spent its {self.step_seconds:g} s"
            raise DeadlineExceeded(spent, reason=SPENT)
        return left if math.isfinite(left) else None

    def _ask(
        self,
        step: int,
        session: PlanSession | AcpcError,
        pool: Floats,
        costs: Floats,
        elites: Integers,
    ) -> IterationCertificate:
        """Asks about one environment; raises AcpcError where ``on_error`` is "raise"."""
        begun = time.perf_counter()
        if isinstance(session, AcpcError):
            return IterationCertificate(step, error=session)
        try:
            infeasible = np.isposinf(costs) if self.constrained else None
            answer = session.certify(pool, infeasible=infeasible, timeout=self._left())
            seconds = time.perf_counter() - begun
            if self.select == "top1":
                return judged(step, seconds, answer, pool, costs, elites[:0], 0, True)
            mean = getattr(self._solving, "return_mean", True)
            planned = not mean and step == self._solving.n_steps - 1  # its winner is the plan
            kept = session.kept_elites
            return judged(step, seconds, answer, pool, costs, elites, kept, planned)
        except AcpcError as error:
            if self.on_error == "raise":
                raise
            return IterationCertificate(step, seconds=time.perf_counter() - begun, error=error)

    def _check(self, count: int) -> None:
        """Rejects sessions that certify other sets than a solver of so many elites goes on with."""
        kept = getattr(self._solving, "n_elite_keep", None)
        for session in self._sessions:
            if self.select != "elite" or not isinstance(session, PlanSession):
                continue
            if session.elite_count != count:
                wanted = f"found {session.elite_count}, wanted the solver's topk {count}"
                raise ArgumentError("elite_count", wanted)
            if kept is not None and session.kept_elites != min(kept, count):
                wanted = f"found {session.kept_elites}, wanted the solver's n_elite_keep"
                raise ArgumentError("kept_elites", f"{wanted}, {min(kept, count)}")

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
