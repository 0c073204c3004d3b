"""Planning sessions: encode a history, its views and the goal once, then only roll out.

One session serves CertifyPool (one pool), Plan (a pool per CEM iteration) and PlanPaired.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from acpc.contract import (
    CandidatePool,
    CostReduction,
    CoverageOutcome,
    NumericMode,
    PerturbationSet,
    PlanFrame,
    PlannerMoment,
    PlanStart,
    Receipt,
    Views,
)
from torch import Tensor

from acpc_server.encoding import (
    ArraysDigest,
    EncodedHistories,
    HistoryEncoder,
    HistorySources,
    View,
    check_block_width,
    check_history_frames,
    check_predictions,
    make_receipt,
    view_rows,
    views_digest,
)
from acpc_server.engine import DeviceEngine, LoadedCheckpoint, equal_rows, require_mode
from acpc_server.errors import AcpcError, InvalidArgument
from acpc_server.interactive.drift import DriftMonitor
from acpc_server.interactive.words import shift_name
from acpc_server.models import check_proprio
from acpc_server.numerics import Reduction, check_objective, check_tolerance, horizon_weights
from acpc_server.observe import Metrics, Shift
from acpc_server.scheduling import RequestContext

# What the views that a caller sends as frames are counted as.
OWN_VIEWS = "explicit_views"


class Planner:
    """Opens planning sessions.

    Args:
        max_frames: Frames of views one session may have encoded.
        max_predictions: Predicted steps one pool, or one paired run, may take in all.
        drift: Observes the sessions of callers.
    """

    def __init__(
        self,
        engine: DeviceEngine,
        *,
        max_frames: int,
        max_predictions: int,
        drift: DriftMonitor | None = None,
    ) -> None:
        self._engine = engine
        self._encoder = HistoryEncoder(engine, max_frames)
        self._max_predictions = max_predictions
        self._drift = drift

    def prepare(self, checkpoint: LoadedCheckpoint, request: PlannerMoment) -> PlanningSession:
        """A session without latents, so that a pool can be checked before anything is computed."""
        session = PlanningSession(
            self._engine, checkpoint, request, self._max_predictions, self._encoder, self._drift
        )
        require_mode(session.mode, self._engine.device, checkpoint.model)
        _check_fit(session)
        return session

    def encode(self, session: PlanningSession, context: RequestContext) -> None:
        """Encode a session's history, views and goal.

        Raises:
            InvalidArgument: A view cannot be drawn, or there are too many; names the field.
            FailedPrecondition: An embedding is not finite.
            Cancelled, DeadlineExceeded, ResourceExhausted, Unavailable: From the engine.
        """
        with session.slot(context):
            (error,) = encode_all([session], context)
        if error is not None:
            raise error

    def move(self, session: PlanningSession, frame: PlanFrame) -> PlanningSession:
        """A session at the next moment, to be encoded: what it keeps is not, again.

        That is the goal, kept frames, and their views where each frame is seen alone.

        Raises:
            InvalidArgument: The moment does not follow, or does not fit the checkpoint.
        """
        assert isinstance(session.request, PlanStart)  # noqa: S101 - Plan alone moves sessions
        moved = self.prepare(session.checkpoint, frame.after(session.request))
        moved.held = session.sources.held(session.latents)
        return moved


class PlanningSession:
    """One moment of a planner; holds latents only, a few kilobytes a view.

    Attributes:
        engine: Computes for it.
        encoder: Encodes its frames.
        checkpoint: Whose latents they are.
        request: What the session was opened with.
        card: Facts of the checkpoint.
        mode: Arithmetic of the network.
        reduction: How costs are reduced over latent coordinates.
        elite_count: Size k of the elite set that is certified; 0 for none.
        endpoint_tolerance: epsilon in latent units, which widens every bound.
        weights: Horizon weights of the ACPC summaries; empty for 1/H.
        coverage_goal: What to say of all draws for each pool; None for nothing.
        kept_elites: How many of the elites the next pool keeps; 0 for none.
        temperature: Of a softmax update; None for none.
        step: What is said of all pools so far, by perturbation and choice.
        encoded: Whether there are latents.
        clean: Latents of the clean history, (h, dim); there once adopted, like the next three.
        views: Latents of those of its views that differ, (views, h, dim).
        goal: Projected goal embedding, (dim,).
        view_rows: Every view asked for, and its row of ``views``.
        pools: How many pools it has certified.
        drift: Observes it, if any does.
        latents: What it has adopted.
        held: Latents (n, dim) that need not be encoded, by the keys of their sources.
    """

    latents: EncodedHistories
    clean: Tensor
    views: Tensor
    goal: Tensor
    view_rows: list[tuple[View, int]]

    def __init__(
        self,
        engine: DeviceEngine,
        checkpoint: LoadedCheckpoint,
        request: PlannerMoment,
        max_predictions: int,
        encoder: HistoryEncoder | None = None,
        drift: DriftMonitor | None = None,
    ) -> None:
        self.engine = engine
        self.encoder = encoder or HistoryEncoder(engine, 0)
        self.encoded = False
        self._max_predictions = max_predictions
        self.drift = drift
        self.checkpoint = checkpoint
        self.request = request
        self.card = checkpoint.model.card
        self.mode = request.numeric_mode or NumericMode.FP32
        mean = request.cost_reduction is CostReduction.MEAN
        self.reduction: Reduction = "mean" if mean else "sum"
        selecting = request if isinstance(request, PlanStart) else None
        self.elite_count = selecting.elite_count if selecting else 0
        self.endpoint_tolerance = request.endpoint_tolerance
        self.weights = selecting.weights if selecting else ()
        self.pools = 0
        self.held: dict[bytes, Tensor] = {}
        self.coverage_goal = selecting.coverage_goal if selecting else None
        self.kept_elites = selecting.kept_elites if selecting else 0
        self.temperature = selecting.temperature if selecting else None
        self.step: dict[tuple[int, str], CoverageOutcome] = {}

    @property
    def metrics(self) -> Metrics:
        """Where its certificates are counted."""
        return self.engine.metrics

    @cached_property
    def shifts(self) -> tuple[Shift, ...]:
        """Under which labels the views of each perturbation are counted, as in ``specs``."""
        views = self.asked_views
        names = map(shift_name, views.specs) if isinstance(views, PerturbationSet) else [OWN_VIEWS]
        return tuple(self.metrics.shift(self.checkpoint.name, name) for name in names)

    @property
    def asked_views(self) -> Views:
        """The other views of the history, as asked for."""
        assert self.request.views is not None  # noqa: S101 - checked
        return self.request.views

    @property
    def drawn_views(self) -> PerturbationSet:
        """Those views, where the server draws them."""
        assert isinstance(self.asked_views, PerturbationSet)  # noqa: S101 - a goal has them
        return self.asked_views

    @property
    def goal_is_frame(self) -> bool:
        """Whether the goal still has to be encoded."""
        return self.request.goal.dtype == np.uint8

    @property
    def selection(self) -> dict[str, object]:
        """Parameters of the certificates, for the receipt."""
        chosen: dict[str, object] = {
            "elite_count": self.elite_count,
            "endpoint_tolerance": self.endpoint_tolerance,
            "weights": list(self.weights),
        }
        if self.coverage_goal is not None:
            seed = self.drawn_views.seed
            chosen["coverage_goal"] = {**asdict(self.coverage_goal), "seed": seed}
        extras = {"kept_elites": self.kept_elites, "temperature": self.temperature}
        chosen |= {name: value for name, value in extras.items() if value}
        return chosen

    @cached_property
    def sources(self) -> HistorySources:
        """What it has encoded.

        Raises:
            InvalidArgument: Too many frames.
        """
        return self.encoder.sources(
            self.checkpoint.model,
            self.request.history,
            self.asked_views,
            self.request.goal[None] if self.goal_is_frame else None,
            self.mode,
            (self.request.proprio, self.request.goal_proprio),
        )

    @cached_property
    def past(self) -> Tensor:
        """The blocks that leave the history's earlier frames, (h - 1, block width)."""
        given = self.request.past_blocks
        none = np.empty((0, self.card.action_block_dim), np.float32)
        return torch.from_numpy(none if given is None else given)

    def adopt(self, latents: EncodedHistories) -> None:
        """Take the latents of the request's history and views, and of its goal where a frame.

        Raises:
            FailedPrecondition: One is not finite.
        """
        check_predictions(latents.clean, latents.views, latents.extra)
        self.encoded, self.latents, self.held = True, latents, {}
        self.clean, self.views = latents.clean, latents.views
        self.view_rows = view_rows(self.asked_views)
        if (first := equal_rows(latents.views)) is not None:
            kept, rows = np.unique(first.numpy(), return_inverse=True)
            self.views = latents.views[torch.from_numpy(kept)]
            self.view_rows = [(view, int(rows[row])) for view, row in self.view_rows]
        goal = self.request.goal
        self.goal = latents.extra[0] if self.goal_is_frame else torch.from_numpy(goal)

    @property
    def view_count(self) -> int:
        """Views asked for, equal ones included."""
        return len(view_rows(self.asked_views))

    def check_work(self, what: str, candidates: int, steps_each: int, field: str) -> None:
        """Reject, with InvalidArgument, more predicted steps than one request may take."""
        if candidates * steps_each > self._max_predictions:
            raise InvalidArgument(
                field,
                f"{what} take {candidates * steps_each} predicted steps, over the limit of "
                f"{self._max_predictions}; send fewer candidates or fewer views",
                reason="TOO_MANY_PREDICTIONS",
            )

    def slot(self, context: RequestContext) -> AbstractContextManager[None]:
        """A slot to work on the session; raises as :meth:`ConcurrencyLimiter.slot`."""
        return self.engine.limiter.slot(context)

    def rollout(self, histories: Tensor, pools: Tensor, context: RequestContext) -> Tensor:
        """Finite float32 latents (n, J, H, dim) of every candidate of a pool per history.

        Histories are latents (n, h, dim), pools (n, J, H, block width), or (1, ...) for one of all.
        """
        latents = self.engine.rollout_pool(
            self.checkpoint.model,
            histories,
            self.past,
            pools,
            context,
            self.mode,
        )
        check_predictions(latents)
        return latents

    def draw(self, which: Sequence[View], context: RequestContext) -> Tensor:
        """Finite latents (views, h, dim) of draws of the session's perturbations; any index."""
        history = self.request.history
        encoder = HistoryEncoder(self.engine, len(which) * len(history))
        latents = encoder.encode_draws(
            self.checkpoint.model,
            history,
            self.clean,
            self.drawn_views,
            which,
            context,
            self.mode,
        )
        check_predictions(latents)
        return latents

    def receipt(
        self,
        parameters: Mapping[str, Any],
        candidates: np.ndarray | None = None,
        said: CandidatePool | None = None,
    ) -> Receipt:
        """Receipt of an answer from this session, about candidates and what is said of them."""
        arrays = [("candidates", candidates), *(said.arrays if said is not None else ())]
        return make_receipt(
            self.mode,
            self.engine.device,
            checkpoint_digest=self.card.digest,
            anchors_digest=self._moment_digest.followed_by(arrays).hex,
            perturbation_digest=self._views_digest,
            parameters={"cost_reduction": self.reduction, **self.request.said, **parameters},
        )

    # A planner asks for one pool after another from the same frames.
    @cached_property
    def _moment_digest(self) -> ArraysDigest:
        arrays = ("history", "past_blocks", "goal", "proprio", "goal_proprio")
        return ArraysDigest((name, getattr(self.request, name)) for name in arrays)

    @cached_property
    def _views_digest(self) -> str:
        return views_digest(self.asked_views)


def encode_all(
    sessions: Sequence[PlanningSession], context: RequestContext
) -> list[AcpcError | None]:
    """Encode sessions of one checkpoint, mode and size of frames together; their errors.

    Those that have latents stay as they are. Raises as :meth:`HistoryEncoder.encode`.
    """
    new = [session for session in sessions if not session.encoded]
    held = {key: latents for session in new for key, latents in session.held.items()}
    found: list[EncodedHistories | AcpcError] = []
    if new:
        asked = [session.sources for session in new]
        model, mode = new[0].checkpoint.model, new[0].mode
        found = new[0].encoder.encode(model, asked, context, mode, held)
    errors = {id(session): _adopted(session, one) for session, one in zip(new, found, strict=True)}
    return [errors.get(id(session)) for session in sessions]


def _adopted(session: PlanningSession, latents: EncodedHistories | AcpcError) -> AcpcError | None:
    if isinstance(latents, AcpcError):
        return latents
    try:
        session.adopt(latents)
    except AcpcError as error:
        return error
    return None


def _check_fit(session: PlanningSession) -> None:
    card, request = session.card, session.request
    check_history_frames(card, request.history)
    past = request.past_blocks
    given, needed = 0 if past is None else len(past), len(request.history) - 1
    if given != needed:
        raise InvalidArgument(
            "past_blocks.shape",
            f"{given} blocks, but a history of {needed + 1} frames has {needed} blocks that leave "
            "its earlier frames",
        )
    if past is not None:
        check_block_width(card, past.shape[1], "past_blocks")
    if not session.goal_is_frame and request.goal.shape != (card.latent_dim,):
        raise InvalidArgument(
            "goal.latent.shape",
            f"{list(request.goal.shape)}, but the checkpoint's latents are {[card.latent_dim]}",
        )
    proprio, of_goal = request.proprio, request.goal_proprio
    check_proprio(card, None if proprio is None else proprio.shape, "proprio")
    if session.goal_is_frame or of_goal is not None:
        wanted = card if session.goal_is_frame else replace(card, proprio_dim=0)
        check_proprio(wanted, None if of_goal is None else of_goal.shape, "goal_proprio")
    check_tolerance(session.endpoint_tolerance)
    if request.objective is not None:
        check_objective(request.objective, card.latent_dim, card.action_block_dim)
    if session.weights:
        horizon_weights(session.weights, len(session.weights))
