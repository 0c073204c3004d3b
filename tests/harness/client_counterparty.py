"""A server of the contract for the client's tests: answers are read off the request or scripted."""

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np
from acpc.v1 import (
    anchor_service_pb2_grpc,
    checkpoint_service_pb2_grpc,
    dataset_service_pb2_grpc,
    diagnostic_service_pb2_grpc,
    scoring_service_pb2,
    scoring_service_pb2_grpc,
    study_service_pb2_grpc,
)
from acpc.v1 import checkpoint_service_pb2 as checkpoints
from acpc.v1 import dataset_service_pb2 as datasets
from acpc.v1 import diagnostic_service_pb2 as diagnostics
from client_messages import RECEIPT, operation, status, study_operation, tensor
from google.longrunning import operations_pb2, operations_pb2_grpc
from google.protobuf import empty_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

LIMIT = 64 * 1024 * 1024


class Counterparty(
    diagnostic_service_pb2_grpc.DiagnosticServiceServicer,
    checkpoint_service_pb2_grpc.CheckpointServiceServicer,
    dataset_service_pb2_grpc.DatasetServiceServicer,
    scoring_service_pb2_grpc.ScoringServiceServicer,
    study_service_pb2_grpc.StudyServiceServicer,
    operations_pb2_grpc.OperationsServicer,
):
    """All services at once.

    Attributes:
        requests: Every request that arrived, by method.
        peers: Address each came from, by method.
        callers: Header ``authorization`` of each, in order.
        deadlines: Seconds each had left on arrival, by method; None without a deadline.
        refusals: Statuses to answer with before answering properly, by method; those of
            "PlanUnread" before the first request of a session is read.
        script: What the scored job goes through: operations, or statuses that break the stream.
        stalled: While set, a watch stream stays open after its script, and pools wait.
        uncertified: Spec and draw of the views whose certificates are denied.
        iteration_error: Added to the iteration of every answer to a pool.
        goodbyes: Released each time a caller ends a planning session in good order.
        on_watch_end: Called when a watch stream has come to the end of its script.
    """

    def __init__(self) -> None:
        self.requests: dict[str, list[Any]] = defaultdict(list)
        self.peers: dict[str, list[str]] = defaultdict(list)
        self.callers: list[str | bytes | None] = []
        self.deadlines: dict[str, list[float | None]] = defaultdict(list)
        self.refusals: dict[str, deque[status_pb2.Status]] = defaultdict(deque)
        self.script: deque[operations_pb2.Operation | status_pb2.Status] = deque()
        self.stalled = threading.Event()
        self.uncertified: set[tuple[int, int]] = set()
        self.iteration_error = 0
        self.goodbyes = threading.Semaphore(0)
        self.on_watch_end: Callable[[], None] = lambda: None

    def _begin(self, method: str, request: Any, context: grpc.ServicerContext) -> None:
        self.requests[method].append(request)
        self.peers[method].append(context.peer())
        self.callers.append(dict(context.invocation_metadata()).get("authorization"))
        self.deadlines[method].append(context.time_remaining())
        self._refuse(method, context)

    def _refuse(self, method: str, context: grpc.ServicerContext) -> None:
        if self.refusals[method]:
            context.abort_with_status(rpc_status.to_status(self.refusals[method].popleft()))

    def ComparePair(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._begin("ComparePair", request, context)
        return self._compare(request)

    def _compare(self, request: Any) -> Any:
        measured = {"acpc": 1.5, "acpc_one_step": 1.25, "step_distances": [1.25, 1.75]}
        if request.HasField("observed_future"):
            measured["error_drift"] = {"drift": 0.5, "bound": 1.5}
        results = [
            {"spec_index": index, "draw": draw, "encoder_shift": 4.0, **measured}
            for index, _ in enumerate(request.perturbations.specs)
            for draw in range(request.perturbations.draws)
        ]
        for view in range(request.explicit_views.shape[0] if request.explicit_views.shape else 0):
            results.append({"draw": view, "acpc": 2.5})
        return diagnostics.ComparePairResponse(
            request_id=request.request_id,
            results=results,
            receipt=RECEIPT,
            timing={"compute": {"seconds": 1, "nanos": 500_000_000}},
        )

    def ComparePairs(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
        self._begin("ComparePairs", None, context)
        for request in requests:
            if request.pair.weights == [2.0]:
                wrong = {"field": "weights", "description": "sum to 2"}
                details = error_details_pb2.BadRequest(field_violations=[wrong])
                error = status(grpc.StatusCode.INVALID_ARGUMENT, "weights: sum to 2", details)
                answer = {"error": error}
            else:
                answer = {"response": self._compare(request.pair)}
            yield diagnostics.ComparePairsResponse(pair_id=request.pair_id, **answer)

    def PreviewAnchors(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._begin("PreviewAnchors", request, context)
        return scoring_service_pb2.PreviewAnchorsResponse(
            previews=[
                scoring_service_pb2.AnchorPreview(
                    anchor=anchor,
                    clean=tensor(np.full((1, 2, 4, 3), anchor, np.uint8)),
                    perturbed=tensor(np.full((1, 2, 4, 3), request.draw, np.uint8)),
                    partner=tensor(np.zeros((1, 2, 4, 3), np.uint8)) if anchor % 2 else None,
                )
                for anchor in request.anchors
            ]
        )

    def CertifyPool(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._begin("CertifyPool", request, context)
        return self._certify(request, request.candidates.shape[0])

    def _certify(self, asked: Any, candidates: int) -> Any:
        """The certificate of a pool whose costs are 0, 1, 2, ...; ``asked`` names the views."""
        costs = tensor(np.arange(candidates, dtype=np.float64))
        views = []
        for spec, _ in enumerate(asked.perturbations.specs):
            for draw in range(asked.perturbations.draws):
                certified = (spec, draw) not in self.uncertified
                certificate = {"certified": certified, "margin": 0.5 if certified else -0.25}
                views.append(
                    diagnostics.ViewCertificate(
                        spec_index=spec,
                        draw=draw,
                        perturbed_winner=0 if certified else 1,
                        perturbed_costs=costs,
                        displacements=costs,
                        bounds=costs,
                        chained_bounds=costs,
                        acpc_one_step=costs,
                        acpc=costs,
                        top1=certificate,
                        elite=certificate if asked.elite_count else None,
                    )
                )
        fraction = sum(view.top1.certified for view in views) / max(1, len(views))
        return diagnostics.CertifyPoolResponse(
            request_id=asked.request_id,
            clean_costs=costs,
            clean_elites=range(asked.elite_count),
            views=views,
            top1_certified_fraction=fraction,
            elite_certified_fraction=fraction if asked.elite_count else 0.0,
            clean_gaps={"top1": 1.0, "elite": 1.0 if asked.elite_count else None},
            certified_severities=[{"kind": "gaussian_noise", "top1": 0.08}],
            top1_may_change=[
                {"spec_index": spec, "draws": asked.perturbations.draws, "share": 0.5}
                for spec in range(len(asked.perturbations.specs))
            ],
            receipt=RECEIPT,
        )

    def Plan(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
        self._refuse("PlanUnread", context)
        first = next(requests)
        self._begin("Plan", first, context)
        started = {"request_id": first.start.request_id, "receipt": RECEIPT}
        yield diagnostics.PlanResponse(started=started)
        for request in requests:
            while self.stalled.is_set() and context.is_active():
                time.sleep(0.01)
            if request.HasField("start"):
                first = request
                self._begin("Plan", first, context)
                yield diagnostics.PlanResponse(started=started)
                continue
            self._begin("PlanPool", request, context)
            pool = request.pool
            sampled = None
            if pool.HasField("proposal"):
                mean = np.frombuffer(pool.proposal.mean.data, np.float32)
                sampled = tensor(np.stack([mean] * pool.proposal.candidates))
            count = pool.proposal.candidates or pool.candidates.shape[0]
            yield diagnostics.PlanResponse(
                certificate={
                    "iteration": pool.iteration + self.iteration_error,
                    "certificate": self._certify(first.start, count),
                    "candidates": sampled,
                }
            )
        self.goodbyes.release()

    def PlanPaired(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._begin("PlanPaired", request, context)
        plan = tensor(np.ones((request.budget.horizon, 2), np.float32))
        certificate = {"certified": True, "margin": 0.25}
        selections = {"elite": certificate, "top1": certificate}
        iterations = [{**selections, "same_elites": True, "acpc_q90": 0.5}]
        iterations *= request.budget.iterations
        view = {"perturbed_plan": plan, "iterations": iterations}
        parted = {"draw": 1, "first_divergence": 0, "selection_regret": 0.125}
        return diagnostics.PlanPairedResponse(
            request_id=request.request_id,
            clean_plan=plan,
            views=[{**view, "certified": True}, {**view, **parted}],
            receipt=RECEIPT,
            clean_gaps=[{"top1": 0.5, "elite": 0.25}] * len(iterations),
        )

    def ListCheckpoints(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._begin("ListCheckpoints", request, context)
        start = int(request.page_token or 0)
        names = ["one", "two", "three"][start : start + 2]
        return checkpoints.ListCheckpointsResponse(
            checkpoints=[self._checkpoint(name) for name in names],
            next_page_token="2" if start == 0 else "",
        )

    def ListDatasets(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._begin("ListDatasets", request, context)
        return datasets.ListDatasetsResponse(datasets=[{"name": "rooms.h5", "size_bytes": 2**20}])

    def ListTasks(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._begin("ListTasks", request, context)
        known = {"description": "Rooms.", "state": "pose", "frameskip": 5, "history": 3}
        rooms, own = {"name": "rooms", **known}, {"name": "own.yaml"}
        tasks, token = ([own], "") if request.page_token else ([rooms], "1")
        return datasets.ListTasksResponse(tasks=tasks, next_page_token=token)

    def GetCheckpoint(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._begin("GetCheckpoint", request, context)
        found = self._checkpoint(request.checkpoint.name)
        return checkpoints.GetCheckpointResponse(checkpoint=found)

    def LoadCheckpoint(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._begin("LoadCheckpoint", request, context)
        loaded = self._checkpoint(request.checkpoint.name, pinned=request.pin)
        loaded.state = checkpoints.CHECKPOINT_STATE_LOADED
        loaded.model.family = "lewm"
        loaded.model.digest = "d" * 64
        return checkpoints.LoadCheckpointResponse(checkpoint=loaded)

    def UnloadCheckpoint(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._begin("UnloadCheckpoint", request, context)
        found = self._checkpoint(request.checkpoint.name)
        return checkpoints.UnloadCheckpointResponse(checkpoint=found)

    @staticmethod
    def _checkpoint(name: str, *, pinned: bool = False) -> Any:
        return checkpoints.Checkpoint(
            name=name,
            weights="weights.pt",
            state=checkpoints.CHECKPOINT_STATE_AVAILABLE,
            size_bytes=1 << 20,
            pinned=pinned,
        )

    def ScoreCheckpoint(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._begin("ScoreCheckpoint", request, context)
        queued = scoring_service_pb2.JOB_STATE_QUEUED
        return operation(f"operations/{request.request_id}", state=queued)

    def RunStudy(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._begin("RunStudy", request, context)
        return study_operation(f"operations/{request.request_id}", request)

    def WatchOperation(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._begin("WatchOperation", request, context)
        while self.script:
            step = self.script.popleft()
            if isinstance(step, status_pb2.Status):
                context.abort_with_status(rpc_status.to_status(step))
            yield scoring_service_pb2.WatchOperationResponse(operation=step)
            if step.done:  # what is scripted after it answers another call
                break
        while self.stalled.is_set() and context.is_active():
            time.sleep(0.01)
        self.on_watch_end()

    def GetOperation(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._begin("GetOperation", request, context)
        return self.script.popleft() if self.script else operation(request.name)

    def ListOperations(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._begin("ListOperations", request, context)
        page = request.page_token or "first"
        return operations_pb2.ListOperationsResponse(
            operations=[operation(f"operations/{page}")],
            next_page_token="second" if page == "first" else "",
        )

    def WaitOperation(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._begin("WaitOperation", request, context)
        return operation(request.name, 2)

    def CancelOperation(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._begin("CancelOperation", request, context)
        return empty_pb2.Empty()

    def DeleteOperation(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._begin("DeleteOperation", request, context)
        return empty_pb2.Empty()


SERVICES = {
    anchor_service_pb2_grpc.AnchorServiceServicer:
        anchor_service_pb2_grpc.add_AnchorServiceServicer_to_server,
    diagnostic_service_pb2_grpc.DiagnosticServiceServicer:
        diagnostic_service_pb2_grpc.add_DiagnosticServiceServicer_to_server,
    dataset_service_pb2_grpc.DatasetServiceServicer:
        dataset_service_pb2_grpc.add_DatasetServiceServicer_to_server,
    checkpoint_service_pb2_grpc.CheckpointServiceServicer:
        checkpoint_service_pb2_grpc.add_CheckpointServiceServicer_to_server,
    scoring_service_pb2_grpc.ScoringServiceServicer:
        scoring_service_pb2_grpc.add_ScoringServiceServicer_to_server,
    study_service_pb2_grpc.StudyServiceServicer:
        study_service_pb2_grpc.add_StudyServiceServicer_to_server,
    operations_pb2_grpc.OperationsServicer: operations_pb2_grpc.add_OperationsServicer_to_server,
}  # fmt: skip


def serve(
    servicer: object,
    credentials: grpc.ServerCredentials | None = None,
    address: str = "127.0.0.1:0",
) -> tuple[grpc.Server, str]:
    """A started server of every service that ``servicer`` is of, and its target.

    By default on a free port of this host.
    """
    limits = [("grpc.max_receive_message_length", LIMIT), ("grpc.max_send_message_length", LIMIT)]
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4), options=limits)
    for kind, add in SERVICES.items():
        if isinstance(servicer, kind):
            add(servicer, server)
    if credentials is None:
        port = server.add_insecure_port(address)
    else:
        port = server.add_secure_port(address, credentials)
    server.start()
    host = "127.0.0.1" if credentials is None else "localhost"  # as its certificate says
    return server, f"{host}:{port}"


@contextmanager
def served(servicer: object, credentials: grpc.ServerCredentials | None = None) -> Iterator[str]:
    """The target of a counterparty that listens."""
    server, target = serve(servicer, credentials)
    yield target
    server.stop(None).wait()
