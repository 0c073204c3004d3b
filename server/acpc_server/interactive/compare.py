"""Compares the predicted futures of a clean history and its views (pairwise ACPC)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from acpc.contract import (
    ErrorDrift,
    GaussianNoise,
    NumericMode,
    PairComparison,
    PairRequest,
    PairResult,
    PerturbationSet,
)
from torch import Tensor

from acpc_server.encoding import (
    HistoryEncoder,
    HistorySources,
    arrays_digest,
    check_block_width,
    check_history_frames,
    check_latents,
    make_receipt,
    predictions_not_finite,
    view_rows,
)
from acpc_server.engine import (
    CachedCheckpoint,
    DeviceClient,
    equal_rows,
    held_rows,
    require_mode,
    rollouts_per_call,
)
from acpc_server.errors import AcpcError, InvalidArgument
from acpc_server.models import FrozenWorldModel, ModelCard, check_proprio
from acpc_server.numerics import consistency
from acpc_server.scheduling import CallKind, Priority, RequestContext, Work


@dataclass(frozen=True)
class _Pair:
    """One request of a device call that several share."""

    sources: HistorySources
    blocks: np.ndarray  # actions, float32 (h + H - 1, block width)
    weights: Tensor  # of the horizon, float64 (H,)


class _Measured(NamedTuple):
    """One request of a device call, measured."""

    views: list[tuple[Any, ...]]  # :class:`PairResult` of each distinct view, from ``acpc`` on
    program: str | None  # of the call's context


class PairComparer:
    """Computes pairwise ACPC on the engine; encodes ``max_frames`` a request, views included."""

    def __init__(self, engine: DeviceClient, max_frames: int) -> None:
        self._engine = engine
        self._encoder = HistoryEncoder(engine, max_frames)

    def compare(
        self, checkpoint: CachedCheckpoint, request: PairRequest, context: RequestContext
    ) -> PairComparison:
        """Compare in this thread; raises as :meth:`work`, and as :meth:`DeviceClient.run`."""
        return self._engine.run(self.work(checkpoint, request, context), context)

    def work(
        self, checkpoint: CachedCheckpoint, request: PairRequest, context: RequestContext
    ) -> Work[PairComparison]:
        """Prepare ACPC_H, ACPC_1, step distances, encoder shift and, given a future, error drift.

        Raises InvalidArgument: A field does not fit the checkpoint or a limit; names the field;
        ResourceExhausted: It would be late. The work raises FailedPrecondition: The predictions are
        not finite.
        """
        model, mode = checkpoint.model, request.numeric_mode or NumericMode.FP32
        blocks = request.action_blocks
        horizon = len(blocks) - len(request.history) + 1
        weights = consistency.horizon_weights(request.weights, horizon)  # (H,)
        require_mode(mode, self._engine.device, model)
        _check_fit(model.card, request, horizon)
        if mode is NumericMode.BF16:
            self._engine.prepare(model)
        history, views, future = request.history, request.views, request.observed_future
        assert views is not None  # noqa: S101 - checked
        proprio = (request.proprio, request.future_proprio)
        sources = self._encoder.sources(model, history, views, future, mode, proprio)
        what = f"{horizon} steps of one view"
        check_latents(self._engine, model, mode, 2 * horizon, "action_blocks.shape", what)
        calls, drawing = self._encoder.work(model, sources)
        device = self._engine.device.type
        each = rollouts_per_call(device, context.priority, model.card, len(blocks))
        context.price(calls + (1 + len(sources.views)) / each)

        def finish(measured: _Measured) -> PairComparison:
            beside = ("action_blocks", "observed_future", "proprio", "future_proprio")
            arrays = [(name, getattr(request, name)) for name in beside]
            receipt = make_receipt(
                mode,
                self._engine.device,
                checkpoint=model.card,
                anchors_digest=arrays_digest(arrays, sources.digest).hexdigest(),
                perturbation_digest=sources.views_digest,
                parameters={"weights": list(request.weights)},
                weights_read=model.card.weights_read,
                program=measured.program or "",
            )
            results = (PairResult(*view, *measured.views[row]) for view, row in view_rows(views))
            return PairComparison(tuple(results), receipt)

        shapes = history.shape, blocks.shape, () if future is None else future.shape
        most, serving = self._encoder.frames_per_call(model, history), checkpoint.serving
        return Work(
            CallKind("pair", model.card.digest, mode, shapes, most, serving, merges=True),
            _Pair(sources, blocks, weights),
            partial(self._measure, model, mode),
            rows=sources.frames,
            drawing=drawing,
            finish=finish,
        )

    def warm(self, checkpoint: CachedCheckpoint) -> None:
        """Compute once, for no caller: the first call of a network prepares for its shapes.

        Raises as :meth:`compare`.
        """
        card = checkpoint.model.card
        side, width = card.image_size, card.proprio_dim
        request = PairRequest(
            checkpoint=checkpoint.pinned(),
            history=np.zeros((card.history, side, side, 3), np.uint8),
            views=PerturbationSet(specs=(GaussianNoise(0.08),)),
            proprio=np.zeros((card.history, width), np.float32) if width else None,
            action_blocks=np.zeros((card.history, card.action_block_dim), np.float32),
        )
        self.compare(checkpoint, request, RequestContext(Priority.INTERACTIVE))

    def _measure(
        self,
        model: FrozenWorldModel,
        mode: NumericMode,
        pairs: Sequence[_Pair],
        context: RequestContext,
    ) -> list[_Measured | AcpcError]:
        """Measure the distinct views of every pair, in their order; all pairs are of one shape."""
        encoded = self._encoder.encode(model, [pair.sources for pair in pairs], context, mode)
        latents = [one for one in encoded if not isinstance(one, AcpcError)]
        if not latents:
            return [one for one in encoded if isinstance(one, AcpcError)]
        whole = [
            pair for pair, one in zip(pairs, encoded, strict=True) if not isinstance(one, AcpcError)
        ]
        ends = itertools.accumulate((1 + len(one.views) for one in latents), initial=0)
        spans = list(itertools.starmap(range, itertools.pairwise(ends)))
        pair_of = torch.tensor([place for place, span in enumerate(spans) for _ in span])
        rows = _Rows(
            torch.cat([x for one in latents for x in (one.clean[None], one.views)]),
            torch.from_numpy(np.stack([pair.blocks for pair in whole]))[pair_of],
            torch.stack([pair.weights for pair in whole])[pair_of],
            torch.stack([one.extra for one in latents])[pair_of],
            torch.tensor([span.start for span in spans for _ in span]),
        )
        blocks, device = len(whole[0].blocks), self._engine.device.type
        call = rollouts_per_call(device, context.priority, model.card, blocks)
        size = max(1, held_rows(model.card, blocks) // call) * call
        pieces = [slice(start, start + size) for start in range(0, len(pair_of), size)]
        rollouts = (
            self._engine.rollout(model, rows.histories[x], rows.blocks[x], context, mode)
            for x in pieces
        )
        columns, finite = rows.measure(zip(pieces, rollouts, strict=True))
        measured = iter(
            _Measured(columns[span.start + 1 : span.stop], context.program)
            if all(finite[span.start : span.stop])
            else predictions_not_finite()
            for span in spans
        )
        return [one if isinstance(one, AcpcError) else next(measured) for one in encoded]


class _Rows(NamedTuple):
    """Pairs that are measured together; a row is a history, a pair's clean one before its views."""

    histories: Tensor  # latents, (rows, h, dim)
    blocks: Tensor  # actions of each row, (rows, h + H - 1, block width)
    weights: Tensor  # of the horizon, float64 (rows, H)
    futures: Tensor  # latents of each row's observed future, (rows, H or 0, dim)
    clean: Tensor  # each row's clean one, (rows,)

    def measure(
        self, rolled: Iterable[tuple[slice, Tensor]]
    ) -> tuple[list[tuple[Any, ...]], list[bool]]:
        """Return :class:`PairResult` of each row, from ``acpc`` on, and whether it is finite.

        ``rolled`` are rollouts (n, H, dim) of some of the rows after another.
        """
        clean, weights, futures = self.clean, self.weights, self.futures
        found: list[tuple[Tensor, ...]] = []
        before: Tensor | None = None  # the clean rollout that the next rows are compared with
        for rows, rollouts in rolled:
            known = rollouts if before is None else torch.cat([before, rollouts])
            first = rows.start - (len(known) - len(rollouts))
            own = known[(clean[rows] - first).clamp(min=0)]
            before = own[-1:].clone() if rows.stop < len(clean) else None
            errors = torch.zeros(len(rollouts), dtype=torch.float64)
            if futures.shape[1]:
                errors = consistency.prediction_error(rollouts, futures[rows], weights[rows])
            histories = self.histories[clean[rows]], self.histories[rows]
            finite = torch.isfinite(rollouts).flatten(1).all(dim=1)
            shift = consistency.encoder_shift(*histories)
            found.append((consistency.step_distances(own, rollouts), errors, shift, finite))
        steps, errors, shift, finite = (torch.cat(x) for x in zip(*found, strict=True))
        if len(found) > 1:
            # Equal rows of one pair, which may lie in different pieces, share an answer.
            same = equal_rows(self.histories, self.blocks, clean[:, None].float())
            if same is not None:
                steps, errors, finite = steps[same], errors[same], finite[same]
        acpc = consistency.acpc(steps, weights)  # (rows,)
        drifts: list[ErrorDrift | None] = [None] * len(acpc)
        if futures.shape[1]:
            own, (horizon, dim) = errors[clean], futures.shape[1:]
            drift = consistency.error_drift(own, errors)
            bound = consistency.drift_bound(acpc, own, errors, horizon=horizon, dim=dim)
            finite &= torch.isfinite(futures).flatten(1).all(dim=1)
            drifts = [*map(ErrorDrift, *(x.tolist() for x in (own, errors, drift, bound)))]
        distances = [tuple(row) for row in steps.tolist()]
        first_steps = [row[0] for row in distances]
        columns = acpc.tolist(), first_steps, distances, shift.tolist(), drifts
        return [*zip(*columns, strict=True)], finite.tolist()


def _check_fit(card: ModelCard, request: PairRequest, horizon: int) -> None:
    check_history_frames(card, request.history)
    check_block_width(card, request.action_blocks.shape[1], "action_blocks")
    future, proprio = request.observed_future, request.proprio
    check_proprio(card, None if proprio is None else proprio.shape, "proprio")
    if future is not None or request.future_proprio is not None:
        beside = request.future_proprio
        check_proprio(card, None if beside is None else beside.shape, "future_proprio")
    if future is not None and len(future) != horizon:
        raise InvalidArgument(
            "observed_future.shape",
            f"{len(future)} frames, but the action blocks give a horizon of {horizon}",
        )
