"""Compares the predicted futures of a clean history and its views (pairwise ACPC)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

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
    ArraysDigest,
    EncodedHistories,
    HistoryEncoder,
    HistorySources,
    check_block_width,
    check_history_frames,
    check_latents,
    make_receipt,
    predictions_not_finite,
    views_digest,
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
from acpc_server.scheduling import Priority, RequestContext, Work


@dataclass(frozen=True)
class _Pair:
    """One request of a device call that several share."""

    sources: HistorySources
    blocks: np.ndarray  # actions, float32 (h + H - 1, block width)
    weights: Tensor  # of the horizon, float64 (H,)


class _ViewDistances(NamedTuple):
    """Distances of one view, as in :class:`PairResult`."""

    acpc: float
    acpc_one_step: float
    step_distances: tuple[float, ...]
    encoder_shift: float
    error_drift: ErrorDrift | None


class _Measured(NamedTuple):
    """One request of a device call, measured."""

    views: Sequence[_ViewDistances]
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
        horizon = len(request.action_blocks) - len(request.history) + 1
        weights = consistency.horizon_weights(request.weights, horizon)  # (H,)
        require_mode(mode, self._engine.device, model)
        _check_fit(model.card, request, horizon)
        self._engine.prepare(model, mode)
        history, views, future = request.history, request.views, request.observed_future
        assert views is not None  # noqa: S101 - checked
        proprio = (request.proprio, request.future_proprio)
        sources = self._encoder.sources(model, history, views, future, mode, proprio)
        what = f"{horizon} steps of one view"
        check_latents(self._engine, model, mode, 2 * horizon, "action_blocks.shape", what)
        calls, drawing = self._encoder.work(model, sources.all)
        context.price(
            calls
            + (1 + len(sources.views)) / self._call_rows(model, context, request.action_blocks)
        )
        arrays = ("history", "action_blocks", "observed_future", "proprio", "future_proprio")

        def finish(measured: _Measured) -> PairComparison:
            results = (
                PairResult(view.spec_index, view.draw, *measured.views[row])
                for view, row in sources.rows
            )
            receipt = make_receipt(
                mode,
                self._engine.device,
                checkpoint=model.card,
                anchors_digest=ArraysDigest((name, getattr(request, name)) for name in arrays).hex,
                perturbation_digest=views_digest(views),
                parameters={"weights": list(request.weights)},
                program=measured.program or "",
            )
            return PairComparison(tuple(results), receipt)

        return Work(
            "pair",
            (mode, id(model), history.shape, request.action_blocks.shape, future is None),
            _Pair(sources, request.action_blocks, weights),
            partial(self._measure, model, mode),
            rows=sources.frames,
            max_rows=self._encoder.frames_per_call(model, history),
            drawing=drawing,
            finish=finish,
            merges=True,
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
        whole = [
            (pair, found)
            for pair, found in zip(pairs, encoded, strict=True)
            if not isinstance(found, AcpcError)
        ]
        measured: Iterator[list[_ViewDistances] | AcpcError] = iter(())
        if whole:
            batch = _Batch.of(whole)

            def rolled(rows: slice) -> Tensor:
                given = batch.histories[rows], batch.blocks[rows]
                return self._engine.rollout(model, *given, context, mode)

            call = self._call_rows(model, context, pairs[0].blocks)
            held = held_rows(model.card, len(pairs[0].blocks))
            measured = iter(batch.measure(rolled, max(1, held // call) * call))
        found = [one if isinstance(one, AcpcError) else next(measured) for one in encoded]
        return [
            one if isinstance(one, AcpcError) else _Measured(one, context.program) for one in found
        ]

    def _call_rows(
        self, model: FrozenWorldModel, context: RequestContext, blocks: np.ndarray
    ) -> int:
        """Return how many histories one device call rolls out under so many blocks each."""
        device = self._engine.device.type
        return rollouts_per_call(device, context.priority, model.card, len(blocks))


@dataclass(frozen=True)
class _Batch:
    """Pairs that are measured together; a row is a history, a pair's clean one before its views."""

    histories: Tensor  # latents, (rows, h, dim)
    blocks: Tensor  # actions of each row, (rows, h + H - 1, block width)
    weights: Tensor  # of the horizon, float64 (rows, H)
    futures: Tensor  # latents of each row's observed future, (rows, H or 0, dim)
    spans: list[range]  # rows of each pair

    @staticmethod
    def of(pairs: Sequence[tuple[_Pair, EncodedHistories]]) -> _Batch:
        """Stack the rows of some pairs."""
        ends = list(itertools.accumulate(1 + len(latents.views) for _, latents in pairs))
        spans = [range(start, end) for start, end in itertools.pairwise([0, *ends])]
        pair_of = torch.tensor([place for place, span in enumerate(spans) for _ in span])
        return _Batch(
            torch.cat([x for _, latents in pairs for x in (latents.clean[None], latents.views)]),
            torch.from_numpy(np.stack([pair.blocks for pair, _ in pairs]))[pair_of],
            torch.stack([pair.weights for pair, _ in pairs])[pair_of],
            torch.stack([latents.extra for _, latents in pairs])[pair_of],
            spans,
        )

    def measure(
        self, rolled: Callable[[slice], Tensor], size: int
    ) -> list[list[_ViewDistances] | AcpcError]:
        """Measure each pair; FailedPrecondition in place of one that is not finite.

        ``rolled`` gives rollouts (n, H, dim) of some of the rows, of which ``size`` are held.
        """
        clean = torch.tensor([span.start for span in self.spans for _ in span])  # (rows,)
        steps, errors, finite = self._measure_rows(rolled, size, clean)
        acpc = consistency.acpc(steps, self.weights)  # (rows,)
        parts = [slice(start, start + size) for start in range(0, len(clean), size)]
        shift = torch.cat(
            [consistency.encoder_shift(self.histories[clean[x]], self.histories[x]) for x in parts]
        )  # (rows,)
        drifts: list[ErrorDrift | None] = [None] * len(acpc)
        if self.futures.shape[1]:
            drift = consistency.error_drift(errors[clean], errors)
            horizon, dim = self.futures.shape[1:]
            bound = consistency.drift_bound(acpc, errors[clean], errors, horizon=horizon, dim=dim)
            finite &= torch.isfinite(self.futures).flatten(1).all(dim=1)
            columns = (errors[clean], errors, drift, bound)
            drifts[:] = map(ErrorDrift, *(column.tolist() for column in columns))
        distances = [tuple(row) for row in steps.tolist()]
        first = [row[0] for row in distances]
        rows = list(map(_ViewDistances, acpc.tolist(), first, distances, shift.tolist(), drifts))
        good = finite.tolist()
        return [
            rows[x.start + 1 : x.stop] if all(good[x.start : x.stop]) else predictions_not_finite()
            for x in self.spans
        ]

    def _measure_rows(
        self, rolled: Callable[[slice], Tensor], size: int, clean: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute step distances (rows, H), any prediction errors (rows,), finiteness (rows,)."""
        found: list[tuple[Tensor, Tensor, Tensor]] = []
        before: Tensor | None = None  # the clean rollout that the next rows are compared with
        for start in range(0, len(clean), size):
            rows = slice(start, start + size)
            rollouts = rolled(rows)
            known = rollouts if before is None else torch.cat([before, rollouts])
            own = known[(clean[rows] - start + len(known) - len(rollouts)).clamp(min=0)]
            before = own[-1:].clone() if rows.stop < len(clean) else None
            errors = torch.empty(0, dtype=torch.float64)
            if self.futures.shape[1]:
                given = rollouts, self.futures[rows], self.weights[rows]
                errors = consistency.prediction_error(*given)
            finite = torch.isfinite(rollouts).flatten(1).all(dim=1)
            found.append((consistency.step_distances(own, rollouts), errors, finite))
        if len(found) == 1:
            return found[0]
        steps, errors, finite = (torch.cat(column) for column in zip(*found, strict=True))
        # Equal rows of one pair, which may lie in different pieces, share an answer.
        same = equal_rows(self.histories, self.blocks, clean[:, None].float())
        if same is None:
            return steps, errors, finite
        return steps[same], errors[same] if len(errors) else errors, finite[same]


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
