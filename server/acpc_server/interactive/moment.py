"""A planner's moment: a history, its views and the goal, encoded once and then rolled out from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
    PlanStart,
    Receipt,
    Views,
    applied_to,
)
from torch import Tensor

from acpc_server.encoding import (
    ArraysDigest,
    EncodedHistories,
    HistoryEncoder,
    HistorySources,
    View,
    check_predictions,
    make_receipt,
    view_rows,
    views_digest,
)
from acpc_server.engine import CachedCheckpoint, DeviceClient, equal_rows
from acpc_server.errors import InvalidArgument
from acpc_server.interactive.tally import Tally
from acpc_server.models import ModelCard
from acpc_server.numerics import Reduction, consistency, linear_quantile
from acpc_server.scheduling import RequestContext

# Predicted steps of a job's plan: rpc limits those of the request.
NO_LIMIT = 2**63


@dataclass(frozen=True, eq=False, kw_only=True)
class Moment:
    """One moment of a planner, of which nothing may be encoded yet.

    What it asks of certificates is that of its :class:`PlanStart`, if it is one.
    """

    engine: DeviceClient
    checkpoint: CachedCheckpoint
    request: PlannerMoment
    encoder: HistoryEncoder | None = None  # none where latents come from elsewhere
    max_predictions: int = NO_LIMIT  # steps that one pool, or one paired run, may take

    @property
    def card(self) -> ModelCard:
        """The card of the checkpoint's model."""
        return self.checkpoint.model.card

    @property
    def mode(self) -> NumericMode:
        """Arithmetic of the network."""
        return self.request.numeric_mode or NumericMode.FP32

    @property
    def reduction(self) -> Reduction:
        """How costs are reduced over latent coordinates."""
        return "mean" if self.request.cost_reduction is CostReduction.MEAN else "sum"

    @property
    def _start(self) -> PlanStart | None:
        return self.request if isinstance(self.request, PlanStart) else None

    @property
    def elite_count(self) -> int:
        """Size of the elite set; 0: none."""
        return self._start.elite_count if self._start else 0

    @property
    def kept_elites(self) -> int:
        """Elites that the next pool keeps; 0: none."""
        return self._start.kept_elites if self._start else 0

    @property
    def weights(self) -> tuple[float, ...]:
        """Horizon weights of the summaries; empty: alike."""
        return self._start.weights if self._start else ()

    @property
    def temperature(self) -> float | None:
        """Of a softmax update; None: there is none."""
        return self._start.temperature if self._start else None

    @cached_property
    def tally(self) -> Tally:
        """Counts what is certified from this moment."""
        return Tally(self.engine.metrics, self.checkpoint, self.asked_views)

    @property
    def asked_views(self) -> Views:
        """The other views of the history, as asked for."""
        assert self.request.views is not None  # noqa: S101 - checked
        return self.request.views

    @property
    def view_count(self) -> int:
        """Views asked for, equal ones included."""
        views = self.asked_views
        return len(views.specs) * views.draws if isinstance(views, PerturbationSet) else len(views)

    @property
    def apply_to(self) -> ApplyTo:
        """What the views change."""
        return applied_to(self.asked_views)

    @property
    def histories(self) -> int:
        """Histories that a pool is rolled out from: the clean one, and each that is changed."""
        return 1 + self.view_count * self.apply_to.history

    @property
    def goal_is_frame(self) -> bool:
        """Whether the goal is to be encoded."""
        return self.request.goal.dtype == np.uint8

    @property
    def selection(self) -> dict[str, object]:
        """Parameters of the certificates, for the receipt."""
        chosen: dict[str, object] = {
            "elite_count": self.elite_count,
            "endpoint_tolerance": self.request.endpoint_tolerance,
            "weights": list(self.weights),
        }
        extras = {"kept_elites": self.kept_elites, "temperature": self.temperature}
        return chosen | {name: value for name, value in extras.items() if value}

    @cached_property
    def sources(self) -> HistorySources:
        """The frames to encode; InvalidArgument for too many."""
        assert self.encoder is not None  # noqa: S101 - only where latents are not given
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
        """The actions between the history's frames, (h - 1, block width)."""
        given = self.request.past_blocks
        none = np.empty((0, self.card.action_block_dim), np.float32)
        return torch.from_numpy(none if given is None else given)

    def encoded(self, context: RequestContext) -> EncodedMoment:
        """Encode history, views and goal; raises as :meth:`HistoryEncoder.encode_alone`."""
        assert self.encoder is not None  # noqa: S101 - only where latents are not given
        model = self.checkpoint.model
        return self.with_latents(self.encoder.encode_alone(model, self.sources, context, self.mode))

    def with_latents(self, latents: EncodedHistories) -> EncodedMoment:
        """Take the latents of history, views and a goal's frame; FailedPrecondition: not finite."""
        check_predictions(latents.clean, latents.views, latents.extra)
        return EncodedMoment(self, latents)

    def check_work(self, what: str, candidates: int, steps_each: int, field: str) -> None:
        """Reject, with InvalidArgument, more predicted steps than one request may take."""
        if candidates * steps_each > self.max_predictions:
            raise InvalidArgument(
                field,
                f"{what} take {candidates * steps_each} predicted steps, over the limit of "
                f"{self.max_predictions}; send fewer candidates or fewer views",
                reason="TOO_MANY_PREDICTIONS",
            )

    def price(self, context: RequestContext, calls: float = 0.0) -> float:
        """Price what is to be encoded and so many calls; return the work of drawing its views."""
        assert self.encoder is not None  # noqa: S101 - only where latents are not given
        encoding, drawing = self.encoder.work(self.checkpoint.model, self.sources.all)
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
        return make_receipt(
            self.mode,
            self.engine.device,
            checkpoint=self.card,
            anchors_digest=self._moment_digest.followed_by(arrays).hex,
            perturbation_digest=self._views_digest,
            parameters={**own, **parameters},
            program=program or "",
        )

    # A planner asks for one pool after another from the same frames.
    @cached_property
    def _moment_digest(self) -> ArraysDigest:
        arrays = ("history", "past_blocks", "goal", "proprio", "goal_proprio")
        return ArraysDigest((name, getattr(self.request, name)) for name in arrays)

    @cached_property
    def _views_digest(self) -> str:
        return views_digest(self.asked_views)


@dataclass(frozen=True, eq=False)
class EncodedMoment:
    """A moment with its latents, a few kilobytes a view."""

    asked: Moment
    latents: EncodedHistories

    @property
    def clean(self) -> Tensor:
        """Latents of the history, (h, dim)."""
        return self.latents.clean

    @cached_property
    def goal(self) -> Tensor:
        """The projected goal, (dim,)."""
        request = self.asked.request
        return self.latents.extra[0] if self.asked.goal_is_frame else torch.from_numpy(request.goal)

    @property
    def views(self) -> Tensor:
        """Latents of the history in those of its views that differ, (views, h, dim)."""
        return self._distinct[0]

    @property
    def goals(self) -> Tensor:
        """The goal in each of ``views``, (views, dim)."""
        return self._distinct[1]

    @property
    def view_rows(self) -> list[tuple[View, int]]:
        """Every view asked for, and its row of ``views``."""
        return self._distinct[2]

    @cached_property
    def _distinct(self) -> tuple[Tensor, Tensor, list[tuple[View, int]]]:
        views, rows = self.latents.views, view_rows(self.asked.asked_views)
        moved = self.asked.apply_to.goal
        goals = self.latents.extra[1:] if moved else self.goal.expand(len(views), -1)
        if (first := equal_rows(views, goals)) is not None:
            kept, distinct = np.unique(first.numpy(), return_inverse=True)
            views, goals = (part[torch.from_numpy(kept)] for part in (views, goals))
            rows = [(view, int(distinct[row])) for view, row in rows]
        return views, goals, rows

    @cached_property
    def moved(self) -> Tensor:
        """Distance by which each requested view moved the latents it changes, (views,)."""
        rows = [row for _, row in self.view_rows]
        clean = torch.cat([self.clean, self.goal[None]])
        changed = torch.cat([self.views, self.goals[:, None]], dim=1)
        return consistency.encoder_shift(clean[None], changed)[rows]

    @cached_property
    def motion(self) -> float:
        """Median distance between consecutive latents of the history; 0 where it has one frame."""
        if len(self.clean) < 2:
            return 0.0
        return linear_quantile(
            consistency.encoder_shift(self.clean[1:, None], self.clean[:-1, None]), 0.5
        )

    def rollout(self, histories: Tensor, pools: Tensor, context: RequestContext) -> Tensor:
        """Predict finite float32 latents (n, J, H, dim) of each candidate of a pool per history.

        Histories are latents (n, h, dim), pools (n, J, H, block width), or (1, ...) for one of all.
        Where views change the goal alone, one rollout of a pool is that of all histories.
        """
        asked, model = self.asked, self.asked.checkpoint.model
        alike = len(pools) == 1 and not asked.apply_to.history
        latents = asked.engine.rollout_pool(
            model, histories[:1] if alike else histories, asked.past, pools, context, asked.mode
        )
        check_predictions(latents)
        return latents.expand(len(histories), -1, -1, -1)
