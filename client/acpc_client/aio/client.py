"""The asyncio client: the methods of the blocking client, awaited."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from typing import Any

import grpc
import grpc.aio
from acpc.contract import NumericMode
from numpy.typing import NDArray

from acpc_client.aio.anchors import AsyncAnchors
from acpc_client.aio.planning import AsyncPlanningMethods
from acpc_client.aio.resources import (
    AsyncCheckpoints,
    AsyncOperations,
    AsyncScoreJob,
    AsyncStudyJob,
)
from acpc_client.calls import Named, diagnostics, jobs, studies
from acpc_client.errors import from_rpc_error
from acpc_client.inputs import CheckpointRef, DatasetAnchors, Pair, ScoreProtocol, Thresholds
from acpc_client.perturbations import Perturbation
from acpc_client.results import AnchorPreview, AnchorSet, PairComparison, PairOutcome
from acpc_client.study_inputs import Study
from acpc_client.sync import Feed


class AsyncAcpcClient(AsyncPlanningMethods):
    """Asks an ACPC server without blocking the event loop; for arguments see ``AcpcClient``.

    Example:
        >>> async with AsyncAcpcClient("localhost:50051") as client:
        ...     answer = await client.compare_pair(
        ...         "lewm-pusht", history, blocks, perturbations=GaussianNoise(0.08), draws=5
        ...     )
    """

    @property
    def checkpoints(self) -> AsyncCheckpoints:
        """The checkpoints below the server's root."""
        return AsyncCheckpoints(self)

    @property
    def anchors(self) -> AsyncAnchors:
        """The anchor sets of the server."""
        return AsyncAnchors(self)

    @property
    def operations(self) -> AsyncOperations:
        """The jobs of the server."""
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

    async def score_checkpoint(
        self,
        checkpoint: str | CheckpointRef,
        anchors: DatasetAnchors | AnchorSet | str,
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

    async def preview_anchors(
        self,
        job: str | Named,
        anchors: Sequence[int],
        *,
        draw: int = 0,
        timeout: float | None = None,
    ) -> tuple[AnchorPreview, ...]:
        """What the model saw at some anchors of a scoring job that succeeded, as pictures."""
        return await self._run(jobs.preview_anchors(job, anchors, draw), timeout)

    async def run_study(
        self,
        checkpoint: str | CheckpointRef,
        anchors: DatasetAnchors | AnchorSet | str,
        study: Study,
        *,
        numeric_mode: NumericMode = NumericMode.SERVER_DEFAULT,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> AsyncStudyJob:
        """See ``AcpcClient.run_study``."""
        call = studies.run_study(
            checkpoint, anchors, study, numeric_mode=numeric_mode, request_id=request_id
        )
        return AsyncStudyJob(self.operations, await self._run(call, timeout))
