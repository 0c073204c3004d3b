"""A planner's moment: a history, its views and the goal, encoded once and then rolled out from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import torch
from acpc.contract import (
    ApplyTo,
    CandidatePool,
    CostReduction,
    NumericMode,
    PerturbationSet,
    PlannerMoment,
    Receipt,
    applied_to,
)
from torch import Tensor

from acpc_server.encoding import (
    EncodedHistories,
    HistoryEncoder,
    HistorySources,
    arrays_digest,
    check_predictions,
    make_receipt,
    view_rows,
    views_digest,
)
from acpc_server.engine import CachedCheckpoint, DeviceClient, equal_rows
from acpc_server.errors import InvalidArgument
from acpc_server.interactive.tally import Tally
from acpc_server.numerics import Reduction, consistency, linear_quantile
from acpc_server.scheduling import RequestContext

# Predicted steps of a job's plan: rpc limits those of the request.
NO_LIMIT = 2**63


class Moment:
    """One moment of a planner, of which nothing may be encoded yet.

    Args:
        encoder: None where latents come from elsewhere.
        max_predictions: Steps that one pool, or one paired run, may take.

    Attributes:
        reduction: How costs are reduced over latent coordinates.
        elite_count: Size of the elite set, 0 for none; as what follows, of a plan's start.
        kept_elites: Elites that the next pool keeps, 0 for none.
        weights: Horizon weights of the summaries; empty: alike.
        temperature: Of a softmax update; None: there is none.
        view_count: Views asked for, equal ones included.
        apply_to: What the views change.
        histories: What a pool is rolled out from: the clean history, and each that is changed.
        past: The actions between the history's frames, (h - 1, block width).
    """

    def __init__(
        self,
        engine: DeviceClient,
        checkpoint: CachedCheckpoint,
        request: PlannerMoment,
        encoder: HistoryEncoder | None = None,
        max_predictions: int = NO_LIMIT,
    ) -> None:
        assert request.views is not None  # noqa: S101 - checked
        self.engine, self.checkpoint, self.request = engine, checkpoint, request
        self.model, self.card = checkpoint.model, checkpoint.model.card
        self._encoder, self._max_predictions = encoder, max_predictions
        self.mode = request.numeric_mode or NumericMode.FP32
        mean = request.cost_reduction is CostReduction.MEAN
        self.reduction: Reduction = "mean" if mean else "sum"
        self.elite_count: int = getattr(request, "elite_count", 0)
        self.kept_elites: int = getattr(request, "kept_elites", 0)
        self.weights: tuple[float, ...] = getattr(request, "weights", ())
        self.temperature: float | None = getattr(request, "temperature", None)
        self.asked_views = views = request.views
        self.view_count = (
            len(views.specs) * views.draws if isinstance(views, PerturbationSet) else len(views)
        )
        self.apply_to = applied_to(views)
        self.histories = 1 + self.view_count * self.apply_to.history
        self.goal_is_frame = request.goal.dtype == np.uint8
        past, none = request.past_blocks, (0, self.card.action_block_dim)
        self.past = torch.zeros(none) if past is None else torch.from_numpy(past)

    @cached_property
    def tally(self) -> Tally:
        """Counts what is certified from this moment."""
        return Tally(self.engine.metrics, self.checkpoint.name, self.asked_views)

    @property
    def selection(self) -> dict[str, object]:
        """Parameters of the certificates, for the receipt."""
        extras = {"kept_elites": self.kept_elites, "temperature": self.temperature}
        return {
            "elite_count": self.elite_count,
            "endpoint_tolerance": self.request.endpoint_tolerance,
            "weights": list(self.weights),
            **{name: value for name, value in extras.items() if value},
        }

    @property
    def encoder(self) -> HistoryEncoder:
        """What encodes the moment, whose latents are not given."""
        assert self._encoder is not None  # noqa: S101
        return self._encoder

    @cached_property
    def sources(self) -> HistorySources:
        """The frames to encode; InvalidArgument for too many."""
        request = self.request
        goal = request.goal[None] if self.goal_is_frame else None
        proprio = request.proprio, request.goal_proprio
        return self.encoder.sources(
            self.model, request.history, self.asked_views, goal, self.mode, proprio
        )

    def encoded(self, context: RequestContext) -> EncodedMoment:
        """Encode history, views and goal; raises as :meth:`HistoryEncoder.encode_alone`."""
        latents = self.encoder.encode_alone(self.model, self.sources, context, self.mode)
        return self.with_latents(latents)

    def with_latents(self, latents: EncodedHistories) -> EncodedMoment:
        """Take the latents of history, views and a goal's frame; FailedPrecondition: not finite."""
        check_predictions(latents.clean, latents.views, latents.extra)
        return EncodedMoment(self, latents)

    def check_work(self, what: str, candidates: int, steps_each: int, field: str) -> None:
        """Reject, with InvalidArgument, more predicted steps than one request may take."""
        if candidates * steps_each > self._max_predictions:
            raise InvalidArgument(
                field,
                f"{what} take {candidates * steps_each} predicted steps, over the limit of "
                f"{self._max_predictions}; send fewer candidates or fewer views",
                reason="TOO_MANY_PREDICTIONS",
            )

    def price(self, context: RequestContext, calls: float = 0.0) -> float:
        """Price what is to be encoded and so many calls; return the work of drawing its views."""
        encoding, drawing = self.encoder.work(self.model, self.sources)
        context.price(calls + encoding)
        return drawing

    def receipt(
        self,
        parameters: Mapping[str, Any],
        candidates: np.ndarray | None = None,
        given: CandidatePool | None = None,
        program: str | None = None,
    ) -> Receipt:
        """Make the receipt of an answer, about candidates and what is given of them."""
        arrays = [("candidates", candidates), *(given.arrays if given is not None else ())]
        applied = {} if self.apply_to is ApplyTo.HISTORY else {"apply_to": str(self.apply_to)}
        own = {"cost_reduction": self.reduction, **self.request.costs, **applied}
        frames, views = self._digests
        return make_receipt(
            self.mode,
            self.engine.device,
            checkpoint=self.card,
            anchors_digest=arrays_digest(arrays, frames).hexdigest(),
            perturbation_digest=views,
            parameters={**own, **parameters},
            weights_read=self.card.weights_read,
            program=program or "",
        )

    @cached_property
    def _digests(self) -> tuple[hashlib._Hash, str]:
        """Digests of frames and views; a planner asks for one pool after another from the same."""
        if self._encoder is None:
            history = arrays_digest([("history", self.request.history)])
            views = views_digest(self.asked_views)
        else:
            history, views = self.sources.digest, self.sources.views_digest
        beside = ("past_blocks", "goal", "proprio", "goal_proprio")
        arrays = ((name, getattr(self.request, name)) for name in beside)
        return arrays_digest(arrays, history), views


class EncodedMoment:
    """A moment with its latents, a few kilobytes a view.

    Attributes:
        clean: Latents of the history, (h, dim).
        goal: The projected goal, (dim,).
        views: Latents of the history in those of its views that differ, (views, h, dim).
        kept: Which of the views that were encoded these are; None: all.
        goals: The goal in each of ``views``, (views, dim).
        view_rows: Every view asked for, and its row of ``views``.
    """

    def __init__(self, asked: Moment, latents: EncodedHistories) -> None:
        self.asked = asked
        self.clean = latents.clean
        frame = asked.goal_is_frame
        self.goal = latents.extra[0] if frame else torch.from_numpy(asked.request.goal)
        views, rows = latents.views, view_rows(asked.asked_views)
        goals = latents.extra[1:] if asked.apply_to.goal else self.goal.expand(len(views), -1)
        self.kept: Tensor | None = None
        if (first := equal_rows(views, goals)) is not None:
            kept, distinct = np.unique(first.numpy(), return_inverse=True)
            self.kept = torch.from_numpy(kept)
            views, goals = views[self.kept], goals[self.kept]
            rows = [(view, int(distinct[row])) for view, row in rows]
        self.views, self.goals, self.view_rows = views, goals, rows

    def shifts(self) -> tuple[list[float], float]:
        """Return how far each view asked for moved the latents that it changes, and the history.

        That is the median distance of its consecutive latents, 0 where it has one frame.
        """
        clean = torch.cat([self.clean, self.goal[None]])
        changed = torch.cat([self.views, self.goals[:, None]], dim=1)
        moved = consistency.encoder_shift(clean[None], changed).tolist()
        motion = 0.0
        if len(self.clean) > 1:
            steps = consistency.encoder_shift(self.clean[1:, None], self.clean[:-1, None])
            motion = linear_quantile(steps, 0.5)
        return [moved[row] for _, row in self.view_rows], motion

    def rollout(self, histories: Tensor, pools: Tensor, context: RequestContext) -> Tensor:
        """Predict finite float32 latents (n, J, H, dim) of each candidate of a pool per history.

        Histories are latents (n, h, dim), pools (n, J, H, block width), or (1, ...) for one of all.
        Where views change the goal alone, one rollout of a pool is that of all histories.
        """
        asked = self.asked
        alike = len(pools) == 1 and not asked.apply_to.history
        latents = asked.engine.rollout_pool(
            asked.model, histories[:1] if alike else histories, asked.past, pools, context,
            asked.mode,
        )  # fmt: skip
        check_predictions(latents)
        return latents.expand(len(histories), -1, -1, -1)
