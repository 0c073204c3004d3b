"""The blocking client. Thread-safe: one client serves all threads of a process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import grpc
from acpc.contract import NumericMode
from numpy.typing import NDArray

from acpc_client.calls import Named, diagnostics, jobs, studies
from acpc_client.errors import from_rpc_error
from acpc_client.inputs import CheckpointRef, DatasetAnchors, Pair, ScoreProtocol, Thresholds
from acpc_client.perturbations import Perturbation
from acpc_client.results import AnchorPreview, AnchorSet, PairComparison, PairOutcome
from acpc_client.study_inputs import Study
from acpc_client.sync.anchors import Anchors
from acpc_client.sync.planning import PlanningMethods
from acpc_client.sync.resources import Checkpoints, Operations, ScoreJob, StudyJob
from acpc_client.sync.streams import Feed


class AcpcClient(PlanningMethods):
    """Asks an ACPC server, and waits for the answer.

    Every method raises ``AcpcError`` and its subclasses, nothing of gRPC. Every call has a
    deadline (``timeout`` in seconds, for the whole call with its retries).

    Example:
        >>> with AcpcClient("localhost:50051") as client:
        ...     answer = client.compare_pair(
        ...         "lewm-pusht", history, blocks, perturbations=GaussianNoise(0.08), draws=5
        ...     )
        ...     print(answer.results[0].acpc)
    """

    @property
    def checkpoints(self) -> Checkpoints:
        """The checkpoints below the server's root."""
        return Checkpoints(self)

    @property
    def anchors(self) -> Anchors:
        """The anchor sets of the server."""
        return Anchors(self)

    @property
    def operations(self) -> Operations:
        """The jobs of the server."""
        return Operations(self)

    def compare_pair(
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
        """Do these views of one history lead to the same predicted future?

        Args:
            checkpoint: Name below the server's root, or a ref.
            history: Clean frames, uint8 (h, height, width, 3), 1 <= h <= the model's history.
            action_blocks: Normalised blocks, float32 (h + H - 1, block width). Block k leaves
                frame k; the paper's a_0 is block h - 1.
            perturbations: The changes the server makes; either these or ``views``.
            views: Views of your own, uint8 (views, h, height, width, 3).
            draws: Draws per perturbation.
            seed: Seed of the draws.
            anchor: Identity of the history among those that share the seed.
            observed_future: uint8 (H, height, width, 3); adds prediction errors and their drift.
            weights: Horizon weights, nonnegative and summing to 1; empty: 1/H.
            numeric_mode: Arithmetic of the network.
            request_id: Kept over retries; a fresh uuid4 when None.
            timeout: Seconds for the whole call; None: 30.

        Raises:
            ArgumentError: An array or a number cannot be sent as it is.
            AcpcError: What the server refused, or could not do.
        """
        pair = Pair(
            history, action_blocks, perturbations, views, draws, seed, anchor,
            observed_future, weights,
        )  # fmt: skip
        call = diagnostics.compare_pair(checkpoint, pair, numeric_mode, request_id)
        return self._run(call, timeout)

    def compare_pairs(
        self,
        checkpoint: str | CheckpointRef,
        pairs: Iterable[Pair],
        *,
        numeric_mode: NumericMode = NumericMode.SERVER_DEFAULT,
        timeout: float | None = None,
    ) -> Iterator[PairOutcome]:
        """``compare_pair`` over a stream: outcomes come in the order of the pairs.

        A pair that the server refuses is answered in place; the stream goes on. It starts at the
        first read, and is not sent again when it breaks. ``pairs`` is read in another thread;
        what it raises, and an ArgumentError in one of its pairs, is raised here.

        Args:
            checkpoint: Name below the server's root, or a ref.
            pairs: The pairs; read as the server takes them.
            numeric_mode: Arithmetic of the network.
            timeout: Seconds for the whole stream; None: 600.
        """
        feed = Feed(lambda pair: diagnostics.stream_item(checkpoint, pair, numeric_mode))
        attempts = self._attempts(diagnostics.COMPARE_PAIRS, timeout)
        stream = self._rpc(diagnostics.COMPARE_PAIRS)(
            feed.items(pairs), timeout=attempts.remaining()
        )
        try:
            for answer in stream:
                yield PairOutcome.from_message(answer)
            feed.check()
        except grpc.RpcError as raised:
            feed.check()
            raise from_rpc_error(raised) from raised
        finally:
            stream.cancel()

    def score_checkpoint(
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
    ) -> ScoreJob:
        """Submits a job: is this checkpoint fit to ship under this visual shift?

        Args:
            checkpoint: Name below the server's root, or a ref.
            anchors: Where the anchors come from: a dataset, an anchor set, or its digest.
            shift: The visual change.
            reference: The unaugmented checkpoint of the same task, run and family. Without it
                relative IR is unknown and the screen can fail but not pass.
            protocol: How IR and SR are measured; None: the paper's protocol.
            thresholds: None: the paper's 0.30 and 0.95.
            numeric_mode: Arithmetic of the network.
            request_id: The same id gives the same job; a fresh uuid4 when None.
            timeout: Seconds for the submission, not for the job; None: 30.

        Raises:
            ArgumentError: An argument cannot be sent as it is.
            AcpcError: What the server refused, or could not do.
        """
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
        return ScoreJob(self.operations, self._run(call, timeout))

    def preview_anchors(
        self,
        job: str | Named,
        anchors: Sequence[int],
        *,
        draw: int = 0,
        timeout: float | None = None,
    ) -> tuple[AnchorPreview, ...]:
        """What the model saw at some anchors of a scoring job that succeeded, as pictures.

        Args:
            job: ``operations/<id>``, or a job or operation.
            anchors: Indices of the anchors, in the order of ``AnchorValues``; at most 32.
            draw: Which draw of the shift.
            timeout: Seconds for the whole call; None: 60.

        Raises:
            ArgumentError: An index or the draw cannot be sent as it is.
            FailedPrecondition: The job has not succeeded, or its anchors are gone or have changed.
            AcpcError: What the server refused, or could not do.
        """
        return self._run(jobs.preview_anchors(job, anchors, draw), timeout)

    def run_study(
        self,
        checkpoint: str | CheckpointRef,
        anchors: DatasetAnchors | AnchorSet | str,
        study: Study,
        *,
        numeric_mode: NumericMode = NumericMode.SERVER_DEFAULT,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> StudyJob:
        """Submits a job: the rows of one of the paper's studies on one checkpoint.

        Args:
            checkpoint: Name below the server's root, or a ref.
            anchors: Where the anchors come from: a dataset, an anchor set, or its digest.
            study: A DriftStudy, PlannerStudy, GeometryStudy or SensitivityStudy.
            numeric_mode: Arithmetic of the network.
            request_id: The same id gives the same job; a fresh uuid4 when None.
            timeout: Seconds for the submission, not for the job; None: 30.

        Raises:
            ArgumentError: An argument cannot be sent as it is.
            AcpcError: What the server refused, or could not do.
        """
        call = studies.run_study(
            checkpoint, anchors, study, numeric_mode=numeric_mode, request_id=request_id
        )
        return StudyJob(self.operations, self._run(call, timeout))
