"""An ordinary pool as one computation of tensors, which a device captures as a graph.

From frames, or latents, to certificates: numbers of candidates and views come out in one copy, and
nothing waits in between. An objective, candidates that are one choice, softmax means, views of the
goal, and what takes several device calls are computed in pieces.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from acpc.contract import ApplyTo, NumericMode
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from acpc_server.engine import DeviceCall, DeviceContext, pool_rows_per_call
from acpc_server.interactive.certificates import ViewNumbers, view_numbers
from acpc_server.interactive.moment import EncodedMoment, Moment
from acpc_server.interactive.pieces import Measures
from acpc_server.models import FrozenWorldModel, rollout_pool
from acpc_server.numerics import Reduction, consistency, cost_bounds
from acpc_server.scheduling import RequestContext


class PoolProgram(NamedTuple):
    """What is computed of a pool, beside its tensors; it is part of a graph's name.

    Attributes:
        history, views: Frames of the history, and distinct views of it.
        weights: Of the horizon.
    """

    history: int
    views: int
    candidates: int
    weights: tuple[float, ...]
    elites: int
    kept: int
    reduction: Reduction
    endpoint_tolerance: float

    @classmethod
    def of(cls, moment: Moment, views: int, candidates: int, horizon: int) -> PoolProgram:
        """Return the program of so many candidates, of as many steps, under so many views."""
        request = moment.request
        return cls(
            len(request.history),
            views,
            candidates,
            moment.weights or (1 / horizon,) * horizon,
            moment.elite_count,
            moment.kept_elites,
            moment.reduction,
            request.endpoint_tolerance,
        )

    def from_frames(
        self,
        model: FrozenWorldModel,
        frames: Float[Tensor, "n 3 height width"],
        same: Bool[Tensor, "views"],
        goal: Float[Tensor, "goals dim"],
        past: Float[Tensor, "past block_width"],
        pool: Float[Tensor, "candidates horizon block_width"],
    ) -> Float64[Tensor, "numbers"]:
        """Encode frames of history, views and goal, and certify the pool.

        A view with ``same`` frames as the history has its latents; ``goal`` is empty where it is
        the last frame.
        """
        joined = torch.cat([model.encode(frames).float(), goal])
        clean, views, last = self._split(joined)
        views = torch.where(same[:, None, None], clean, views)
        joined = torch.cat([clean, views.flatten(0, 1), last])
        return self.from_latents(model, joined, past, pool)

    def from_latents(
        self,
        model: FrozenWorldModel,
        joined: Float[Tensor, "n dim"],
        past: Float[Tensor, "past block_width"],
        pool: Float[Tensor, "candidates horizon block_width"],
    ) -> Float64[Tensor, "numbers"]:
        """Certify the pool from latents of history, views and goal, which lead the answer."""
        clean, views, goal = self._split(joined)
        starts = torch.cat([clean[None], views])
        rolled = rollout_pool(model, starts, past, pool[None]).float()  # (1 + views, J, H, dim)
        alike = (starts == clean).flatten(1).all(1)
        rolled = torch.where(alike[:, None, None, None], rolled[0], rolled)
        with torch.autocast(joined.device.type, enabled=False):
            bounds = cost_bounds.pool_bounds(
                rolled[0, :, -1],
                rolled[1:, :, -1],
                goal[0],
                reduction=self.reduction,
                endpoint_tolerance=self.endpoint_tolerance,
                finite=True,
            )
            weights = joined.new_empty(len(self.weights), dtype=torch.float64)
            for place, weight in zip(weights, self.weights, strict=True):
                place.fill_(weight)
            steps = consistency.step_distances(rolled[:1], rolled[1:])
            measures = Measures(bounds, steps)
            numbers = view_numbers(measures, weights, self.weights[-1], self.elites, self.kept)
            largest = torch.maximum(joined.abs().amax(), rolled.abs().amax())
            found = largest, joined, bounds.clean_costs, *(x for x in numbers if x is not None)
            return torch.cat([x.double().flatten() for x in found])

    def read(self, found: Float64[Tensor, "numbers"]) -> tuple[Tensor, Tensor, ViewNumbers] | None:
        """Take the answer apart; None where a prediction is not finite.

        Latents of history, views and goal, float32 (n, dim); clean costs, (J,); other numbers.
        """
        tables, v, j = 6, self.views, self.candidates
        n, rest = (1 + v) * self.history + 1, [j, *[v * j] * tables, *[v] * self._choices]
        largest, joined, costs, *each = torch.split(found, [1, len(found) - 1 - sum(rest), *rest])
        if not math.isfinite(float(largest)):
            return None
        elite, kept = each[tables + 4] if self.elites else None, each[-1] if self.kept else None
        shaped = [x.view(v, j) for x in each[:tables]]
        numbers = ViewNumbers._make([*shaped, *each[tables : tables + 4], elite, kept])
        return joined.float().view(n, -1), costs, numbers

    @property
    def chosen(self) -> int:
        """Count the last numbers of an answer, which follow from what is chosen."""
        return self.views * self._choices

    @property
    def _choices(self) -> int:
        return 4 + (self.elites > 0) + (self.kept > 0)

    def _split(self, joined: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Latents of the history (h, dim), its views (views, h, dim), and the goal (1, dim)."""
        h, v = self.history, self.views
        clean, views, goal = torch.split(joined, [h, v * h, 1])
        return clean, views.view(v, h, -1), goal


def certify_captured(
    opened: Moment | EncodedMoment,
    pool: Float[Tensor, "candidates horizon block_width"],
    context: RequestContext,
) -> tuple[EncodedMoment, Tensor, ViewNumbers] | None:
    """Certify a pool of a moment in one computation; return its clean costs and other numbers.

    None where it has to be done in pieces, whatever the reason; raises what that does.
    """
    moment = opened if isinstance(opened, Moment) else opened.asked
    model, owner, (count, horizon) = moment.model, moment.engine.owner, pool.shape[:2]
    call = DeviceCall("certify", moment.mode, 0.0, context)
    placed = isinstance(context, DeviceContext) and moment.mode is not NumericMode.FP64
    ordinary = moment.temperature is None and moment.apply_to is ApplyTo.HISTORY
    if not (placed and ordinary and owner.captures(model, call)):
        return None
    views = len(opened.sources.views if isinstance(opened, Moment) else opened.views)
    if (1 + views) * count > pool_rows_per_call(moment.engine.device.type, moment.card, horizon):
        return None
    program = PoolProgram.of(moment, views, count, horizon)

    def ask(
        sent: Tensor, there: Sequence[Tensor] = ()
    ) -> tuple[Tensor, Tensor, ViewNumbers] | None:
        """From latents that are ``sent``, or from frames that are ``there`` and a goal's latent."""
        compute = program.from_frames if there else program.from_latents
        inputs = there, sent, moment.past, pool
        found = owner.captured(model, call, program, compute, *inputs, chosen=program.chosen)
        return None if found is None else program.read(found)

    if isinstance(opened, EncodedMoment):
        known = opened.clean, opened.views.flatten(0, 1), opened.goal[None]
        read = ask(torch.cat(known))
        return None if read is None else (opened, *read[1:])
    encoder, sources, goal = opened.encoder, opened.sources, torch.zeros(0, opened.card.latent_dim)
    if sources.proprio is not None:  # which is added to what is encoded
        return None
    if not opened.goal_is_frame:
        goal = torch.from_numpy(opened.request.goal)[None]
    read = None
    if (joined := encoder.recall(sources, context)) is not None:
        read = ask(torch.cat([joined, goal]))
    elif inputs := encoder.inputs(opened.model, sources, context, opened.mode):
        read = ask(goal, inputs)
    if read is None:
        return None
    latents, costs, numbers = read
    joined = latents[: len(latents) - len(goal)].clone()
    encoder.keep(sources, context, joined)
    encoded = opened.with_latents(sources.split(joined))
    if (kept := encoded.kept) is not None:
        numbers = ViewNumbers._make(None if x is None else x[kept] for x in numbers)
    return encoded, costs, numbers
