"""Planning sessions: encode a history, its views and the goal once, then only roll out.

One session serves CertifyPool (one pool), Plan (a pool per CEM iteration) and PlanPaired.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from acpc.contract import CostReduction, Receipt
from torch import Tensor

from acpc_server.encoding import (
    ArraysDigest,
    EncodedHistories,
    HistoryEncoder,
    View,
    Views,
    check_block_width,
    check_history_frames,
    check_predictions,
    interactive_receipt,
    view_rows,
    views_digest,
)
from acpc_server.engine import DeviceEngine, LoadedCheckpoint, NumericMode, equal_rows
from acpc_server.errors import InvalidArgument
from acpc_server.models import ModelCard
from acpc_server.numerics import Reduction, check_tolerance, horizon_weights
from acpc_server.scheduling import RequestContext

REDUCTIONS: dict[CostReduction, Reduction] = {
    CostReduction.SUM: "sum",
    CostReduction.MEAN: "mean",
}
# Predicted steps held in memory at a time; longer requests go in pieces of whole views.
GROUP_STEPS = 2**15


@dataclass(frozen=True)
class PlanningRequest:
    """Where the planner is, where it wants to go, and what certificates it asks for.

    Attributes:
        history: uint8 (h, height, width, 3), 1 <= h <= the model's history.
        past_blocks: Normalised float32 (h - 1, block width) that leave the earlier frames; None
            when h is 1.
        goal: uint8 (height, width, 3), or float32 (dim,) in the projected latent space.
        views: Other views of the history.
        elite_count: k; 0 for no elite certificate.
        reduction: How costs are reduced over latent coordinates.
        endpoint_tolerance: epsilon in latent units, which widens every bound.
        weights: Horizon weights of the ACPC summaries; empty for 1/H.
        numeric_mode: Arithmetic of the network.
    """

    history: np.ndarray
    past_blocks: np.ndarray | None
    goal: np.ndarray
    views: Views
    elite_count: int
    reduction: Reduction
    endpoint_tolerance: float
    weights: tuple[float, ...]
    numeric_mode: NumericMode

    @property
    def goal_is_frame(self) -> bool:
        """Whether the goal still has to be encoded."""
        return self.goal.dtype == np.uint8


class Planner:
    """Opens planning sessions.

    Args:
        engine: Owner of the device.
        max_frames: Frames of views one session may have encoded.
        max_predictions: Predicted steps one pool, or one paired run, may take in all.
    """

    def __init__(self, engine: DeviceEngine, *, max_frames: int, max_predictions: int) -> None:
        self._engine = engine
        self._encoder = HistoryEncoder(engine, max_frames)
        self._max_predictions = max_predictions

    def prepare(self, checkpoint: LoadedCheckpoint, request: PlanningRequest) -> PlanningSession:
        """A session without latents, so that a pool can be checked before anything is computed.

        Raises:
            InvalidArgument: A field does not fit the checkpoint; names the field.
        """
        request.numeric_mode.require(self._engine.device)
        _check_fit(checkpoint.model.card, request)
        return PlanningSession(self._engine, checkpoint, request, self._max_predictions)

    def encode(self, session: PlanningSession, context: RequestContext) -> None:
        """Encode a session's history, views and goal.

        Raises:
            InvalidArgument: A view cannot be drawn, or there are too many; names the field.
            FailedPrecondition: An embedding is not finite.
            Cancelled, DeadlineExceeded, ResourceExhausted, Unavailable: From the engine.
        """
        request = session.request
        with session.slot(context):
            latents = self._encoder.encode(
                session.checkpoint.model,
                request.history,
                request.views,
                request.goal[None] if request.goal_is_frame else None,
                context,
                request.numeric_mode,
            )
        check_predictions(latents.clean, latents.views, latents.extra)
        session.adopt(latents)

    def open(
        self, checkpoint: LoadedCheckpoint, request: PlanningRequest, context: RequestContext
    ) -> PlanningSession:
        """A session that is prepared and encoded; raises what both do."""
        session = self.prepare(checkpoint, request)
        self.encode(session, context)
        return session


class PlanningSession:
    """One moment of a planner; holds latents only, a few kilobytes a view.

    Attributes:
        checkpoint: Whose latents they are.
        request: What the session was opened with.
        card: Facts of the checkpoint.
        clean: Latents of the clean history, (h, dim); there once adopted, like the next two.
        views: Latents of those of its views that differ, (views, h, dim).
        goal: Projected goal embedding, (dim,).
        view_rows: Every view asked for, and its row of ``views``.
    """

    clean: Tensor
    views: Tensor
    goal: Tensor
    view_rows: list[tuple[View, int]]

    def __init__(
        self,
        engine: DeviceEngine,
        checkpoint: LoadedCheckpoint,
        request: PlanningRequest,
        max_predictions: int,
    ) -> None:
        self._engine = engine
        self._max_predictions = max_predictions
        self.checkpoint = checkpoint
        self.request = request
        self.card = checkpoint.model.card

    def adopt(self, latents: EncodedHistories) -> None:
        """Take the latents of the request's history and views, and of its goal where a frame."""
        self.clean, self.views = latents.clean, latents.views
        self.view_rows = view_rows(self.request.views)
        if (first := equal_rows(latents.views)) is not None:
            kept, rows = np.unique(first.numpy(), return_inverse=True)
            self.views = latents.views[torch.from_numpy(kept)]
            self.view_rows = [(view, int(rows[row])) for view, row in self.view_rows]
        goal = self.request.goal
        self.goal = latents.extra[0] if self.request.goal_is_frame else torch.from_numpy(goal)

    @property
    def view_count(self) -> int:
        """Views asked for, equal ones included."""
        return len(view_rows(self.request.views))

    def check_work(self, what: str, candidates: int, steps_each: int, field: str) -> None:
        """Reject, with InvalidArgument, more predicted steps than one request may take.

        Args:
            what: How the work was counted, for the message.
            candidates: Action sequences.
            steps_each: Predicted steps of each, over all views and iterations.
            field: The field to blame.
        """
        if candidates * steps_each > self._max_predictions:
            raise InvalidArgument(
                field,
                f"{what} take {candidates * steps_each} predicted steps, over the limit of "
                f"{self._max_predictions}; send fewer candidates or fewer views",
                reason="TOO_MANY_PREDICTIONS",
            )

    def slot(self, context: RequestContext) -> AbstractContextManager[None]:
        """A slot to work on the session; raises as :meth:`ConcurrencyLimiter.slot`."""
        return self._engine.limiter.slot(context)

    def rollout(self, histories: Tensor, pools: Tensor, context: RequestContext) -> Tensor:
        """Predicted latents of every candidate of a pool per history.

        Args:
            histories: Latents, (n, h, dim).
            pools: Candidate blocks, (n, J, H, block width), or (1, ...) for one pool of all.
            context: The request's deadline, priority and times.

        Returns:
            Finite float32 latents, (n, J, H, dim).

        Raises:
            FailedPrecondition: A prediction is not finite.
            Cancelled, DeadlineExceeded, ResourceExhausted, Unavailable: From the engine.
        """
        past = self.request.past_blocks
        if past is None:
            past = np.empty((0, pools.shape[3]), np.float32)
        latents = self._engine.rollout_pool(
            self.checkpoint.model,
            histories,
            torch.from_numpy(past),
            pools,
            context,
            self.request.numeric_mode,
        )
        check_predictions(latents)
        return latents

    def share_clean(self, histories: Tensor, rollouts: Tensor, clean: Tensor) -> Tensor:
        """Rollouts of some histories, with ``clean`` for each that equals the clean history.

        Args:
            histories: Latents, (n, h, dim).
            rollouts: Theirs under one pool, (n, J, H, dim).
            clean: Rollouts of the clean history under the same pool, (J, H, dim).
        """
        same = (histories == self.clean).flatten(1).all(dim=1)  # (n,)
        return torch.where(same[:, None, None, None], clean, rollouts) if same.any() else rollouts

    def receipt(
        self, parameters: Mapping[str, Any], candidates: np.ndarray | None = None
    ) -> Receipt:
        """Receipt of an answer from this session.

        Args:
            parameters: Everything beside frames, actions and views that can change a number.
            candidates: The pool, when one was evaluated.
        """
        return interactive_receipt(
            self.checkpoint,
            evaluated=self._moment_digest.followed_by([("candidates", candidates)]),
            perturbation_digest=self._views_digest,
            parameters={"cost_reduction": self.request.reduction, **parameters},
            mode=self.request.numeric_mode,
            device=self._engine.device,
        )

    # A planner asks for one pool after another from the same frames.
    @cached_property
    def _moment_digest(self) -> ArraysDigest:
        request = self.request
        return ArraysDigest(
            [
                ("history", request.history),
                ("past_blocks", request.past_blocks),
                ("goal", request.goal),
            ]
        )

    @cached_property
    def _views_digest(self) -> str:
        return views_digest(self.request.views)


def _check_fit(card: ModelCard, request: PlanningRequest) -> None:
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
    if not request.goal_is_frame and request.goal.shape != (card.latent_dim,):
        raise InvalidArgument(
            "goal.latent.shape",
            f"{list(request.goal.shape)}, but the checkpoint's latents are {[card.latent_dim]}",
        )
    check_tolerance(request.endpoint_tolerance)
    if request.weights:
        horizon_weights(request.weights, len(request.weights))
