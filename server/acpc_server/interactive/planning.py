"""Plans on a checkpoint: opens moments, and checks or draws pools before anything is computed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from acpc.contract import MAX_HORIZON, NumericMode, PlannerMoment, Proposal

from acpc_server import numerics
from acpc_server.encoding import (
    HistoryEncoder,
    check_block_width,
    check_history_frames,
)
from acpc_server.engine import CachedCheckpoint, DeviceClient, require_mode
from acpc_server.errors import InvalidArgument
from acpc_server.interactive.moment import EncodedMoment, Moment
from acpc_server.interactive.pieces import check_held
from acpc_server.models import check_proprio
from acpc_server.scheduling import RequestContext

# Candidates x views of one answer: six float64 values of each fit a message.
MAX_PAIRS = 2**20


class Planner:
    """Prepares and encodes moments.

    Limits the frames of views that one moment may have encoded, and the predicted steps of one pool
    or paired run in all.
    """

    def __init__(self, engine: DeviceClient, *, max_frames: int, max_predictions: int) -> None:
        self._engine = engine
        self._encoder = HistoryEncoder(engine, max_frames)
        self._max_predictions = max_predictions

    def prepare(self, checkpoint: CachedCheckpoint, request: PlannerMoment) -> Moment:
        """Check a moment, so that its pool can be checked before anything is computed.

        InvalidArgument names a field that is wrong.
        """
        limits = self._encoder, self._max_predictions
        moment = Moment(self._engine, checkpoint, request, *limits)
        require_mode(moment.mode, self._engine.device, checkpoint.model)
        _check_fit(moment)
        if moment.mode is NumericMode.BF16:
            self._engine.prepare(checkpoint.model)
        return moment

    def encode(self, moment: Moment, context: RequestContext) -> EncodedMoment:
        """Encode a moment's history, views and goal.

        Raises InvalidArgument: A view cannot be drawn, or there are too many; names the field;
        FailedPrecondition: An embedding is not finite; Cancelled, DeadlineExceeded,
        ResourceExhausted, Unavailable: From the engine.
        """
        moment.price(context)
        return moment.encoded(context)


def _check_fit(moment: Moment) -> None:
    card, request = moment.card, moment.request
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
    if not moment.goal_is_frame and request.goal.shape != (card.latent_dim,):
        raise InvalidArgument(
            "goal.latent.shape",
            f"{list(request.goal.shape)}, but the checkpoint's latents are {[card.latent_dim]}",
        )
    proprio, of_goal = request.proprio, request.goal_proprio
    check_proprio(card, None if proprio is None else proprio.shape, "proprio")
    if moment.goal_is_frame or of_goal is not None:
        wanted = card if moment.goal_is_frame else replace(card, proprio_dim=0)
        check_proprio(wanted, None if of_goal is None else of_goal.shape, "goal_proprio")
    numerics.check_tolerance(request.endpoint_tolerance)
    if request.objective is not None:
        numerics.check_objective(request.objective, card.latent_dim, card.action_block_dim)
    if moment.weights:
        numerics.horizon_weights(moment.weights, len(moment.weights))


def check_pool(moment: Moment, shape: tuple[int, ...]) -> None:
    """Reject a pool, (J, H, block width), that does not fit the moment or a limit."""
    count, horizon, width = shape
    if count < 1 or not 1 <= horizon <= MAX_HORIZON:
        raise InvalidArgument(
            "candidates.shape",
            f"{list(shape)}; give at least 1 candidate of 1 to {MAX_HORIZON} blocks",
        )
    check_block_width(moment.card, width, "candidates")
    views, k = moment.view_count, moment.elite_count
    if count * views > MAX_PAIRS:
        raise InvalidArgument(
            "candidates.shape",
            f"{count} candidates under {views} views are over {MAX_PAIRS} results; send fewer",
            reason="TOO_MANY_RESULTS",
        )
    if moment.temperature is not None and views * horizon * width > MAX_PAIRS:
        raise InvalidArgument(
            "temperature",
            f"means of {horizon} x {width} actions under {views} views are over {MAX_PAIRS} "
            "results; send fewer views",
            reason="TOO_MANY_RESULTS",
        )
    moment.check_work(
        f"{count} candidates of {horizon} steps under the clean history and {views} views",
        count,
        moment.histories * horizon,
        "candidates.shape",
    )
    check_held(moment, horizon, "candidates.shape")
    if k >= count:
        raise InvalidArgument(
            "elite_count",
            f"is {k}, but the pool has {count} candidates; an elite certificate needs at least one "
            "candidate outside the elite set",
        )


def draw_pool(moment: Moment, asked: Proposal) -> np.ndarray:
    """Draw the pool of a proposal, which depends on the proposal and its seed only.

    InvalidArgument names the field below ``proposal``, or the moment's, that does not fit.
    """
    mean, std = asked.mean, asked.std
    check_block_width(moment.card, mean.shape[1], "proposal.mean")
    if std.shape != mean.shape:
        raise InvalidArgument(
            "proposal.std.shape", f"found {list(std.shape)}, wanted the mean's {list(mean.shape)}"
        )
    # Before anything is sampled: a few bytes may ask for billions of candidates.
    try:
        check_pool(moment, (asked.candidates, *mean.shape))
    except InvalidArgument as error:
        if error.field != "candidates.shape":
            raise
        field = "proposal.candidates"
        raise InvalidArgument(field, error.description, reason=error.reason) from error
    normals = numerics.pool_normals(
        asked.seed, 0, candidates=asked.candidates, horizon=mean.shape[0], width=mean.shape[1]
    )
    proposal = numerics.CemProposal(torch.from_numpy(mean.copy()), torch.from_numpy(std.copy()))
    candidates = numerics.sample_pool(proposal, normals).numpy()
    if not np.isfinite(candidates).all():
        raise InvalidArgument("proposal.std.data", "a candidate overflows float32; lower it")
    return candidates
