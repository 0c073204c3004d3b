"""The asyncio client: the methods of the blocking client, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from typing import Any, TypeVar

import grpc
import grpc.aio
from numpy.typing import NDArray

from acpc_client import channel
from acpc_client.async_resources import AsyncCheckpoints, AsyncOperations, AsyncScoreJob
from acpc_client.base import ClientBase
from acpc_client.calls import diagnostics, jobs
from acpc_client.calls.base import Call
from acpc_client.errors import from_rpc_error
from acpc_client.inputs import (
    CheckpointRef,
    CostReduction,
    DatasetAnchors,
    NumericMode,
    Pair,
    ScoreProtocol,
    Thresholds,
)
from acpc_client.perturbations import Perturbation
from acpc_client.results import PairComparison, PairOutcome, PoolCertificate
from acpc_client.streams import Feed

Answer = TypeVar("Answer")


class AsyncAcpcClient(ClientBase):
    """Asks an ACPC server without blocking the event loop; for arguments see ``AcpcClient``.

    Example:
        >>> async with AsyncAcpcClient("localhost:50051") as client:
        ...     answer = await client.compare_pair(
        ...         "lewm-pusht", history, blocks, perturbations=GaussianNoise(0.08), draws=5
        ...     )
    """

    def _open(self) -> grpc.aio.Channel:
        if self._credentials is None:
            return grpc.aio.insecure_channel(self.target, channel.OPTIONS)
        return grpc.aio.secure_channel(self.target, self._credentials, channel.OPTIONS)

    async def __aenter__(self) -> AsyncAcpcClient:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the channel; calls under way fail."""
        self._closed = True
        if self._channel is not None:
            await self._channel.close()

    @property
    def checkpoints(self) -> AsyncCheckpoints:
        """The checkpoints below the server's root."""
        return AsyncCheckpoints(self)

    @property
    def operations(self) -> AsyncOperations:
        """The scoring jobs of the server."""
        return AsyncOperations(self)

    async def compare_pair(
        self,
        checkpoint: str | CheckpointRef,
        history: NDArray[Any],
        action_blocks: NDArray[Any],
        *,
        perturbations: Perturbation | Sequence[Perturbation] = (),
        views: NDArray[Any] | None = None,
        draws: int = 1,
        seed: int = 0,
        anchor: int = 0,
        observed_future: NDArray[Any] | None = None,
        weights: Sequence[float] = (),
        numeric_mode: NumericMode = NumericMode.SERVER_DEFAULT,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> PairComparison:
        """See ``AcpcClient.compare_pair``."""
        pair = Pair(
            history, action_blocks, perturbations, views, draws, seed, anchor,
            observed_future, weights,
        )  # fmt: skip
        call = diagnostics.compare_pair(checkpoint, pair, numeric_mode, request_id)
        return await self._run(call, timeout)

    async def compare_pairs(
        self,
        checkpoint: str | CheckpointRef,
        pairs: Iterable[Pair] | AsyncIterable[Pair],
        *,
        numeric_mode: NumericMode = NumericMode.SERVER_DEFAULT,
        timeout: float | None = None,
    ) -> AsyncIterator[PairOutcome]:
        """See ``AcpcClient.compare_pairs``; ``pairs`` may be an async iterable."""
        feed = Feed(lambda pair: diagnostics.stream_item(checkpoint, pair, numeric_mode))
        attempts = self._attempts(diagnostics.COMPARE_PAIRS, timeout)
        stream = self._rpc(diagnostics.COMPARE_PAIRS)(
            feed.async_items(pairs), timeout=attempts.remaining()
        )
        try:
            async for answer in stream:
                yield PairOutcome.from_message(answer)
            feed.check()
        except grpc.RpcError as raised:
            feed.check()
            raise from_rpc_error(raised) from raised
        finally:
            stream.cancel()

    async def certify_pool(
        self,
        checkpoint: str | CheckpointRef,
        history: NDArray[Any],
        candidates: NDArray[Any],
        goal: NDArray[Any],
        *,
        past_blocks: NDArray[Any] | None = None,
        perturbations: Perturbation | Sequence[Perturbation] = (),
        views: NDArray[Any] | None = None,
        draws: int = 1,
        seed: int = 0,
        anchor: int = 0,
        elite_count: int = 0,
        cost_reduction: CostReduction = CostReduction.SERVER_DEFAULT,
        endpoint_tolerance: float = 0.0,
        weights: Sequence[float] = (),
        numeric_mode: NumericMode = NumericMode.SERVER_DEFAULT,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> PoolCertificate:
        """See ``AcpcClient.certify_pool``."""
        call = diagnostics.certify_pool(
            checkpoint,
            history,
            candidates,
            goal,
            past_blocks=past_blocks,
            perturbations=perturbations,
            views=views,
            draws=draws,
            seed=seed,
            anchor=anchor,
            elite_count=elite_count,
            cost_reduction=cost_reduction,
            endpoint_tolerance=endpoint_tolerance,
            weights=weights,
            numeric_mode=numeric_mode,
            request_id=request_id,
        )
        return await self._run(call, timeout)

    async def score_checkpoint(
        self,
        checkpoint: str | CheckpointRef,
        anchors: DatasetAnchors | str,
        shift: Perturbation,
        *,
        reference: str | CheckpointRef | None = None,
        protocol: ScoreProtocol | None = None,
        thresholds: Thresholds | None = None,
        numeric_mode: NumericMode = NumericMode.SERVER_DEFAULT,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> AsyncScoreJob:
        """See ``AcpcClient.score_checkpoint``."""
        call = jobs.score_checkpoint(
            checkpoint,
            anchors,
            shift,
            against=reference,
            protocol=protocol or ScoreProtocol(),
            thresholds=thresholds or Thresholds(),
            numeric_mode=numeric_mode,
            request_id=request_id,
        )
        return AsyncScoreJob(self.operations, await self._run(call, timeout))

    async def _run(self, call: Call[Answer], timeout: float | None) -> Answer:
        """Sends a call until it is answered, its retries are used up, or its deadline passes."""
        attempts = self._attempts(call.method, timeout)
        while True:
            rpc = self._rpc(call.method)
            try:
                return call.read(await rpc(call.request, timeout=attempts.remaining()))
            except grpc.RpcError as raised:
                error = from_rpc_error(raised, call.request_id)
                delay = attempts.after(error)
                if delay is None:
                    raise error from raised
            await asyncio.sleep(delay)
