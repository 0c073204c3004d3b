"""The client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Self, Unpack

from acpc.contract import NumericMode

from acpc_client import aio, calls
from acpc_client.aio.transport import AsyncTransport
from acpc_client.transport.access import ClientOptions
from acpc_client.transport.base import DEFAULT_TARGET, Feed

if TYPE_CHECKING:
    from acpc.contract import (
        AnchorPreview,
        AnchorSet,
        Array,
        CemBudget,
        CheckpointRef,
        DatasetAnchors,
        PairComparison,
        PairedPlans,
        Perturbation,
        PoolCertificate,
        Study,
    )

    from acpc_client.calls.options import (
        CallOptions,
        CertifyOptions,
        Named,
        PairedOptions,
        PairOptions,
        PoolOptions,
        ScoreOptions,
    )
    from acpc_client.results.answers import PairOutcome
    from acpc_client.retries import Absence, OnAway
    from acpc_client.transport.aio import AsyncPairs


class AsyncAcpcClient:
    """Asks an ACPC server.

    One serves a whole program: its threads, or with asyncio the tasks of one event loop. Every
    method raises ArgumentError where an argument cannot be sent as it is, other subclasses of
    AcpcError for what the server rejected or could not do, and nothing of gRPC. Every call has a
    deadline (``timeout`` in seconds, for the whole call with its retries).

    Args:
        target: ``host:port`` of the server, any gRPC target, or the IP addresses of several
            servers, with commas or as a sequence: calls go round them.
        **options: See ``ClientOptions``: TLS, token, deadlines, retries, patience.

    Raises:
        ArgumentError: An empty target, an option out of range, a file that cannot be read, or a
            token that would travel in plain text to another host.

    Example:
        >>> async with AsyncAcpcClient("localhost:50051") as client:
        ...     answer = await client.compare_pair(
        ...         "lewm-pusht", history, blocks, perturbations=GaussianNoise(0.08), draws=5
        ...     )
        ...     print(answer.results[0].acpc)
    """

    def __init__(
        self,
        target: str | Sequence[str] = DEFAULT_TARGET,
        **options: Unpack[ClientOptions],
    ) -> None:
        self._transport = AsyncTransport(target, options)

    if not TYPE_CHECKING:  # a type checker shall find names that are not there

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401
            """Names what is meant by a name that is not there."""
            raise calls.names.unknown_attribute(self, name)

    @property
    def target(self) -> str:
        """The server's address."""
        return self._transport.target

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the channel; calls under way fail."""
        await self._transport.close()

    def absence(self, patience: float | None = None, on_away: OnAway | None = None) -> Absence:
        """Makes what lets a loop of your own outlast a server that is away; see ``Absence``.

        Both arguments default to the client's.
        """
        return self._transport.loop(patience, on_away)

    @property
    def checkpoints(self) -> aio.AsyncCheckpoints:
        """The checkpoints below the server's root."""
        return aio.AsyncCheckpoints(self._transport)

    @property
    def datasets(self) -> aio.AsyncDatasets:
        """The datasets below the server's root, and the tasks."""
        return aio.AsyncDatasets(self._transport)

    @property
    def anchors(self) -> aio.AsyncAnchors:
        """The anchor sets of the server."""
        return aio.AsyncAnchors(self._transport)

    @property
    def operations(self) -> aio.AsyncOperations:
        """The jobs of the server."""
        return aio.AsyncOperations(self._transport)

    async def compare_pair(
        self,
        checkpoint: str | CheckpointRef,
        history: Array,
        action_blocks: Array,
        *,
        timeout: float | None = None,
        **options: Unpack[PairOptions],
    ) -> PairComparison:
        """Do these views of one history lead to the same predicted future?

        Args:
            checkpoint: Name below the server's root, or a ref.
            history: Clean frames, uint8 (h, height, width, 3), 1 <= h <= the model's history.
            action_blocks: Normalised blocks, float32 (h + H - 1, block width). Block k leaves
                frame k; the paper's a_0 is block h - 1.
            timeout: Seconds for the whole call; None: 30.
            **options: See ``PairOptions``; ``perturbations`` or ``views`` must be given.
        """
        rpc, own = calls.methods.COMPARE_PAIR, {"history": history, "action_blocks": action_blocks}
        return await self._transport.run(rpc, rpc.message(checkpoint, options, **own), timeout)

    def compare_pairs(
        self,
        checkpoint: str | CheckpointRef,
        pairs: AsyncPairs,
        *,
        numeric_mode: NumericMode = NumericMode.SERVER_DEFAULT,
        timeout: float | None = None,
    ) -> AsyncIterator[PairOutcome]:
        """``compare_pair`` over a stream: outcomes come in the order of the pairs.

        A pair that the server rejects is answered in place; the stream goes on. It starts at the
        first read, and is not sent again when it breaks. ``pairs`` is read in another thread;
        what it raises, and an ArgumentError in one of its pairs, is raised here.

        Args:
            checkpoint: Name below the server's root, or a ref.
            pairs: The pairs; read as the server takes them.
            numeric_mode: Arithmetic of the network.
            timeout: Seconds for the whole stream; None: 600.
        """
        feed = Feed(lambda pair: calls.methods.pair_message(checkpoint, pair, numeric_mode))
        return self._transport.stream(calls.methods.COMPARE_PAIRS, feed, pairs, timeout)

    async def certify_pool(
        self,
        checkpoint: str | CheckpointRef,
        history: Array,
        candidates: Array,
        goal: Array,
        *,
        timeout: float | None = None,
        **options: Unpack[PoolOptions],
    ) -> PoolCertificate:
        """Can this visual change alter the planner's choice among these candidates?

        Args:
            checkpoint: Name below the server's root, or a ref.
            history: Clean frames, uint8 (h, height, width, 3).
            candidates: Action sequences, float32 (candidates, H, block width).
            goal: uint8 (height, width, 3), or float32 (latent width,) in the projected space.
            timeout: Seconds for the whole call; None: 30.
            **options: See ``PoolOptions``; ``perturbations`` or ``views`` must be given.
        """
        rpc, scene = calls.methods.CERTIFY_POOL, {"history": history, "goal": goal}
        request = rpc.message(checkpoint, options, candidates=candidates, **scene)
        return await self._transport.run(rpc, request, timeout)

    def plan(
        self,
        checkpoint: str | CheckpointRef,
        history: Array,
        goal: Array,
        *,
        timeout: float | None = None,
        message_timeout: float | None = None,
        **options: Unpack[CertifyOptions],
    ) -> aio.AsyncPlanSession:
        """A session that certifies one pool after another, as a planner makes them.

        History, goal and views travel once, when the session is entered, and are encoded once.
        Without an answer to that the call is tried again; a session that breaks later is not.

        Args:
            checkpoint: Name below the server's root, or a ref.
            history: Clean frames, uint8 (h, height, width, 3).
            goal: uint8 (height, width, 3), or float32 (latent width,) in the projected space.
            timeout: Seconds for the whole session; None: 600.
            message_timeout: Seconds for each answer; None: the client's timeout, or 30.
            **options: See ``CertifyOptions``; ``perturbations`` or ``views`` must be given.

        Example:
            >>> async with client.plan("lewm-pusht", frame, goal, perturbations=noise) as session:
            ...     for _ in range(iterations):
            ...         pool = await session.certify_proposal(mean, std, seed=next(seeds))
            ...         if not pool.certificate.views[0].top1.certified:
            ...             break
        """
        start = calls.methods.PLAN.message(checkpoint, options, history=history, goal=goal)
        return aio.AsyncPlanSession(self._transport, start, timeout, message_timeout)

    async def plan_paired(
        self,
        checkpoint: str | CheckpointRef,
        history: Array,
        goal: Array,
        budget: CemBudget,
        *,
        timeout: float | None = None,
        **options: Unpack[PairedOptions],
    ) -> PairedPlans:
        """Would the planner have made the same plan from another view of its history?

        The server runs CEM from the clean history and from every view, with common random
        numbers, and certifies every iteration of the clean run.

        Args:
            checkpoint: Name below the server's root, or a ref.
            history: Clean frames, uint8 (h, height, width, 3).
            goal: uint8 (height, width, 3), or float32 (latent width,) in the projected space.
            budget: Size of both runs.
            timeout: Seconds for the whole call; None: 300.
            **options: See ``PairedOptions``; ``perturbations`` or ``views`` must be given.
        """
        rpc, scene = calls.methods.PLAN_PAIRED, {"history": history, "goal": goal}
        request = rpc.message(checkpoint, options, budget=budget, **scene)
        return await self._transport.run(rpc, request, timeout)

    async def score_checkpoint(
        self,
        checkpoint: str | CheckpointRef,
        anchors: DatasetAnchors | AnchorSet | str,
        shift: Perturbation,
        *,
        timeout: float | None = None,
        patience: float | None = None,
        **options: Unpack[ScoreOptions],
    ) -> aio.AsyncScoreJob:
        """Submits a job: is this checkpoint fit to ship under this visual shift?

        Args:
            checkpoint: Name below the server's root, or a ref.
            anchors: Where the anchors come from: a dataset, an anchor set, or its digest.
            shift: The visual change.
            timeout: Seconds for the submission, not for the job; None: 30, and none while the
                server is away.
            patience: Seconds that the submission waits for a server that is away; None: the
                client's. It is repeated with its request id, which makes one job.
            **options: See ``ScoreOptions``; without ``reference`` the screen cannot pass.
        """
        rpc = calls.methods.SCORE
        request = rpc.message(checkpoint, options, anchors=anchors, shift=shift)
        absence = self._transport.absence(patience, timeout=timeout)
        submitted = await self._transport.run(rpc, request, timeout, absence)
        return aio.AsyncScoreJob(self.operations, submitted)

    async def preview_anchors(
        self,
        job: str | Named,
        anchors: Sequence[int],
        *,
        draw: int = 0,
        timeout: float | None = None,
    ) -> tuple[AnchorPreview, ...]:
        """Fetches what the model saw at some anchors of a scoring job that succeeded, as pictures.

        Args:
            job: ``operations/<id>``, or a job or operation.
            anchors: Indices of the anchors, in the order of ``AnchorValues``; at most 32.
            draw: Which draw of the shift.
            timeout: Seconds for the whole call; None: 60.

        Raises:
            FailedPrecondition: The job has not succeeded, or its anchors are gone or have changed.
        """
        rpc = calls.methods.PREVIEW
        request = rpc.request(
            name=job if isinstance(job, str) else job.name,
            anchors=[calls.options.unsigned(index, "anchors") for index in anchors],
            draw=calls.options.unsigned(draw, "draw"),
        )
        return await self._transport.run(rpc, request, timeout)

    async def run_study(
        self,
        checkpoint: str | CheckpointRef,
        anchors: DatasetAnchors | AnchorSet | str,
        study: Study,
        *,
        timeout: float | None = None,
        patience: float | None = None,
        **options: Unpack[CallOptions],
    ) -> aio.AsyncStudyJob:
        """Submits a job: the rows of one of the paper's studies on one checkpoint.

        Args:
            checkpoint: Name below the server's root, or a ref.
            anchors: Where the anchors come from: a dataset, an anchor set, or its digest.
            study: A DriftStudy, PlannerStudy, GeometryStudy or SensitivityStudy.
            timeout: Seconds for the submission, not for the job; None: 30, and none while the
                server is away.
            patience: Seconds that the submission waits for a server that is away; None: the
                client's. It is repeated with its request id, which makes one job.
            **options: See ``CallOptions``.
        """
        rpc = calls.methods.STUDY
        request = rpc.message(checkpoint, options, anchors=anchors, study=study)
        absence = self._transport.absence(patience, timeout=timeout)
        submitted = await self._transport.run(rpc, request, timeout, absence)
        return aio.AsyncStudyJob(self.operations, submitted)
