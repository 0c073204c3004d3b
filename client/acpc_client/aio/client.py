"""The asyncio client: the methods of the blocking client, awaited."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from typing import Any, Self, Unpack

import grpc
import grpc.aio
from acpc.contract import (
    AnchorPreview,
    AnchorSet,
    CheckpointRef,
    DatasetAnchors,
    EvidenceOptions,
    NumericMode,
    PairComparison,
    Perturbation,
    Score,
    Study,
)
from numpy.typing import NDArray

from acpc_client.aio.anchors import AsyncAnchors
from acpc_client.aio.planning import AsyncPlanningMethods
from acpc_client.aio.resources import (
    AsyncCheckpoints,
    AsyncDatasets,
    AsyncOperations,
    AsyncScoreJob,
    AsyncStudyJob,
)
from acpc_client.aio.transport import AsyncTransport
from acpc_client.calls import (
    CallOptions,
    Named,
    PairOptions,
    ScoreOptions,
    diagnostics,
    jobs,
    studies,
)
from acpc_client.inputs import Pair
from acpc_client.results import (
    PairOutcome,
    Result,
    ScoreComparison,
    WorstAnchors,
    choose_worst,
    compare_scores,
    job_to_fetch,
    operation_of,
    worst_of,
)
from acpc_client.retries import Absence, OnAway
from acpc_client.sync import Feed
from acpc_client.transport import DEFAULT_TARGET, ClientOptions, Ending


class AsyncAcpcClient(AsyncPlanningMethods):
    """Asks an ACPC server without blocking the event loop; for arguments see ``AcpcClient``.

    Example:
        >>> async with AsyncAcpcClient("localhost:50051") as client:
        ...     answer = await client.compare_pair(
        ...         "lewm-pusht", history, blocks, perturbations=GaussianNoise(0.08), draws=5
        ...     )
    """

    def __init__(
        self,
        target: str | Sequence[str] = DEFAULT_TARGET,
        **options: Unpack[ClientOptions],
    ) -> None:
        self._transport = AsyncTransport(target, options)

    @property
    def target(self) -> str:
        """Where the server is."""
        return self._transport.target

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the channel; calls under way fail."""
        await self._transport.close()

    def absence(self, patience: float | None = None, on_away: OnAway | None = None) -> Absence:
        """See ``AcpcClient.absence``."""
        return self._transport.absence(patience, on_away=on_away)

    @property
    def checkpoints(self) -> AsyncCheckpoints:
        """The checkpoints below the server's root."""
        return AsyncCheckpoints(self._transport)

    @property
    def datasets(self) -> AsyncDatasets:
        """The datasets below the server's root, and the tasks."""
        return AsyncDatasets(self._transport)

    @property
    def anchors(self) -> AsyncAnchors:
        """The anchor sets of the server."""
        return AsyncAnchors(self._transport)

    @property
    def operations(self) -> AsyncOperations:
        """The jobs of the server."""
        return AsyncOperations(self._transport)

    async def compare_pair(
        self,
        checkpoint: str | CheckpointRef,
        history: NDArray[Any],
        action_blocks: NDArray[Any],
        *,
        timeout: float | None = None,
        **options: Unpack[PairOptions],
    ) -> PairComparison:
        """See ``AcpcClient.compare_pair``."""
        call = diagnostics.compare_pair(checkpoint, history, action_blocks, **options)
        return await self._transport.run(call, timeout)

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
        attempts = self._transport.attempts(diagnostics.COMPARE_PAIRS, timeout)
        stream = self._transport.rpc(diagnostics.COMPARE_PAIRS)(
            feed.async_items(pairs), timeout=attempts.remaining()
        )
        ending = Ending(stream)
        try:
            async for answer in stream:
                self._transport.contact.made = True
                yield PairOutcome.from_message(answer)
            feed.check()
        except grpc.RpcError as raised:
            feed.check()
            error = self._transport.error(await ending.behind(raised))
            raise self._transport.policy.hinted(error) from None
        finally:
            stream.cancel()

    async def score_checkpoint(
        self,
        checkpoint: str | CheckpointRef,
        anchors: DatasetAnchors | AnchorSet | str,
        shift: Perturbation,
        *,
        timeout: float | None = None,
        patience: float | None = None,
        **options: Unpack[ScoreOptions],
    ) -> AsyncScoreJob:
        """See ``AcpcClient.score_checkpoint``."""
        call = jobs.score_checkpoint(checkpoint, anchors, shift, **options)
        return AsyncScoreJob(self.operations, await self._transport.submit(call, timeout, patience))

    async def preview_anchors(
        self,
        job: str | Named,
        anchors: Sequence[int],
        *,
        draw: int = 0,
        timeout: float | None = None,
    ) -> tuple[AnchorPreview, ...]:
        """What the model saw at some anchors of a scoring job that succeeded, as pictures."""
        return await self._transport.run(jobs.preview_anchors(job, anchors, draw), timeout)

    async def compare_scores(
        self,
        a: str | Named | Score | Result,
        b: str | Named | Score | Result,
        evidence: EvidenceOptions | None = None,
        *,
        timeout: float | None = None,
    ) -> ScoreComparison:
        """See ``AcpcClient.compare_scores``."""
        held = [await self._fetched(answer, name, timeout) for name, answer in (("a", a), ("b", b))]
        return compare_scores(held[0], held[1], evidence)

    async def worst_anchors(
        self,
        job: str | Named | Result,
        count: int = 5,
        *,
        by: str = "radius",
        draw: int = 0,
        timeout: float | None = None,
    ) -> WorstAnchors:
        """See ``AcpcClient.worst_anchors``."""
        held = await self._fetched(job, "job", timeout)
        chosen = choose_worst(held, count, by)
        previews = await self.preview_anchors(
            operation_of(held), chosen, draw=draw, timeout=timeout
        )
        return worst_of(held, by, draw, previews)

    async def _fetched(self, answer: Any, field: str, timeout: float | None) -> Any:  # noqa: ANN401
        name = job_to_fetch(answer, field)
        return await self.operations.get(name, timeout=timeout) if name else answer

    async def run_study(
        self,
        checkpoint: str | CheckpointRef,
        anchors: DatasetAnchors | AnchorSet | str,
        study: Study,
        *,
        timeout: float | None = None,
        patience: float | None = None,
        **options: Unpack[CallOptions],
    ) -> AsyncStudyJob:
        """See ``AcpcClient.run_study``."""
        call = studies.run_study(checkpoint, anchors, study, **options)
        return AsyncStudyJob(self.operations, await self._transport.submit(call, timeout, patience))
