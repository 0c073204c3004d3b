"""A server of the contract for the client's tests: answers are read off the request or scripted."""

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from functools import partial
from typing import Any

import grpc
import numpy as np
from acpc.v1 import checkpoint_service_pb2
from client_messages import RECEIPT, operation, status, study_operation, tensor
from google.longrunning import operations_pb2
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status
from methods import METHODS

LIMIT = 64 * 1024 * 1024


class Refused(Exception):
    """Ends a call with this status."""

    def __init__(self, ends: status_pb2.Status) -> None:
        super().__init__(ends.message)
        self.ends = ends


class Scripted(grpc.GenericRpcHandler):
    """Serves every method of the contract that a subclass has, by its name.

    A method takes the request, or the requests of a stream, and the context; it answers with a
    message or its fields, of a stream with an iterator of them, or raises ``Refused``.

    Attributes:
        requests: Every request that arrived, by method; None for a stream that is not noted.
        peers: Address each came from, by method.
        deadlines: Seconds each had left on arrival, by method; None without a deadline.
        callers: The authorization of each call, in order.
        refusals: Statuses to answer with before answering properly, by method; those of
            "PlanUnread" before the first request of a session is read.
    """

    def __init__(self) -> None:
        self.requests: dict[str, list[Any]] = defaultdict(list)
        self.peers: dict[str, list[str]] = defaultdict(list)
        self.deadlines: dict[str, list[float | None]] = defaultdict(list)
        self.callers: list[Any] = []
        self.refusals: dict[str, deque[status_pb2.Status]] = defaultdict(deque)

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """The handler of a method; None for one that is not here."""
        method = METHODS.get(details.method)
        if method is None or not hasattr(self, method.name):
            return None
        given, answer = (GetMessageClass(one) for one in (method.input_type, method.output_type))
        ways = (method.client_streaming, method.server_streaming)
        kind = "_".join("stream" if way else "unary" for way in ways)
        return getattr(grpc, f"{kind}_rpc_method_handler")(
            partial(self._many if method.server_streaming else self._one, method),
            request_deserializer=given.FromString,
            response_serializer=lambda found: (
                found if isinstance(found, Message) else answer(**found)
            ).SerializeToString(),
        )

    def note(self, name: str, request: Any, context: grpc.ServicerContext) -> None:
        """Keep what arrived, and refuse it where the test says so."""
        self.callers.append(dict(context.invocation_metadata()).get("authorization"))
        self.requests[name].append(request)
        self.peers[name].append(context.peer())
        self.deadlines[name].append(context.time_remaining())
        self.refuse(name)

    def refuse(self, name: str) -> None:
        """Refuse a call of a method while there are refusals of it."""
        if self.refusals[name]:
            raise Refused(self.refusals[name].popleft())

    def _one(self, method: MethodDescriptor, request: Any, context: grpc.ServicerContext) -> Any:
        try:
            if not method.client_streaming:
                self.note(method.name, request, context)
            return getattr(self, method.name)(request, context)
        except Refused as refused:
            context.abort_with_status(rpc_status.to_status(refused.ends))

    def _many(
        self, method: MethodDescriptor, request: Any, context: grpc.ServicerContext
    ) -> Iterator[Any]:
        try:
            if not method.client_streaming:
                self.note(method.name, request, context)
            yield from getattr(self, method.name)(request, context)
        except Refused as refused:
            context.abort_with_status(rpc_status.to_status(refused.ends))


def page(found: list[Any], request: Any, size: int = 0) -> tuple[list[Any], str]:
    """The entries that a request for a page gets, and the token of the next."""
    start, size = int(request.page_token or 0), size or request.page_size or 100
    return found[start : start + size], str(start + size) if start + size < len(found) else ""


class Counterparty(Scripted):
    """All services at once, without anchor sets.

    Attributes:
        script: What the scored job goes through: operations, or statuses that break the stream.
        stalled: While set, a watch stream stays open after its script, and pools wait.
        uncertified: Spec and draw of the views whose certificates are denied.
        iteration_error: Added to the iteration of every answer to a pool.
        goodbyes: Released each time a caller ends a planning session in good order.
        on_watch_end: Called when a watch stream has come to the end of its script.
    """

    def __init__(self) -> None:
        super().__init__()
        self.script: deque[operations_pb2.Operation | status_pb2.Status] = deque()
        self.stalled = threading.Event()
        self.uncertified: set[tuple[int, int]] = set()
        self.iteration_error = 0
        self.goodbyes = threading.Semaphore(0)
        self.on_watch_end: Callable[[], None] = lambda: None

    def ComparePair(self, request: Any, context: Any) -> dict[str, Any]:
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
        return {
            "request_id": request.request_id,
            "results": results,
            "receipt": RECEIPT,
            "timing": {"compute": {"seconds": 1, "nanos": 500_000_000}},
        }

    def ComparePairs(self, requests: Any, context: Any) -> Iterator[dict[str, Any]]:
        self.note("ComparePairs", None, context)
        for request in requests:
            if request.pair.weights == [2.0]:
                wrong = {"field": "weights", "description": "sum to 2"}
                details = error_details_pb2.BadRequest(field_violations=[wrong])
                error = status(grpc.StatusCode.INVALID_ARGUMENT, "weights: sum to 2", details)
                answer = {"error": error}
            else:
                answer = {"response": self.ComparePair(request.pair, context)}
            yield {"pair_id": request.pair_id, **answer}

    def PreviewAnchors(self, request: Any, context: Any) -> dict[str, Any]:
        previews = [
            {
                "anchor": anchor,
                "clean": tensor(np.full((1, 2, 4, 3), anchor, np.uint8)),
                "perturbed": tensor(np.full((1, 2, 4, 3), request.draw, np.uint8)),
                "partner": tensor(np.zeros((1, 2, 4, 3), np.uint8)) if anchor % 2 else None,
            }
            for anchor in request.anchors
        ]
        return {"previews": previews}

    def CertifyPool(self, request: Any, context: Any) -> dict[str, Any]:
        return self._certify(request, request.candidates.shape[0])

    def _certify(self, asked: Any, candidates: int) -> dict[str, Any]:
        """The certificate of a pool whose costs are 0, 1, 2, ...; ``asked`` names the views."""
        costs = tensor(np.arange(candidates, dtype=np.float64))
        measured = ("perturbed_costs", "displacements", "bounds", "chained_bounds", "acpc_one_step")
        views = []
        for spec, _ in enumerate(asked.perturbations.specs):
            for draw in range(asked.perturbations.draws):
                certified = (spec, draw) not in self.uncertified
                certificate = {"certified": certified, "margin": 0.5 if certified else -0.25}
                views.append(
                    {
                        "spec_index": spec,
                        "draw": draw,
                        "perturbed_winner": 0 if certified else 1,
                        **dict.fromkeys((*measured, "acpc"), costs),
                        "top1": certificate,
                        "elite": certificate if asked.elite_count else None,
                    }
                )
        fraction = sum(view["top1"]["certified"] for view in views) / max(1, len(views))
        return {
            "request_id": asked.request_id,
            "clean_costs": costs,
            "clean_elites": range(asked.elite_count),
            "views": views,
            "top1_certified_fraction": fraction,
            "elite_certified_fraction": fraction if asked.elite_count else 0.0,
            "clean_gaps": {"top1": 1.0, "elite": 1.0 if asked.elite_count else None},
            "certified_severities": [{"kind": "gaussian_noise", "top1": 0.08}],
            "top1_may_change": [
                {"spec_index": spec, "draws": asked.perturbations.draws, "share": 0.5}
                for spec in range(len(asked.perturbations.specs))
            ],
            "receipt": RECEIPT,
        }

    def Plan(self, requests: Any, context: Any) -> Iterator[dict[str, Any]]:
        self.refuse("PlanUnread")
        start: Any = None
        for request in requests:
            while start is not None and self.stalled.is_set() and context.is_active():
                time.sleep(0.01)
            if request.HasField("start"):
                start = request.start
                self.note("Plan", request, context)
                yield {"started": {"request_id": start.request_id, "receipt": RECEIPT}}
                continue
            self.note("PlanPool", request, context)
            pool = request.pool
            sampled = None
            if pool.HasField("proposal"):
                mean = np.frombuffer(pool.proposal.mean.data, np.float32)
                sampled = tensor(np.stack([mean] * pool.proposal.candidates))
            count = pool.proposal.candidates or pool.candidates.shape[0]
            certificate = {
                "iteration": pool.iteration + self.iteration_error,
                "certificate": self._certify(start, count),
                "candidates": sampled,
            }
            yield {"certificate": certificate}
        self.goodbyes.release()

    def PlanPaired(self, request: Any, context: Any) -> dict[str, Any]:
        plan = tensor(np.ones((request.budget.horizon, 2), np.float32))
        certificate = {"certified": True, "margin": 0.25}
        selections = {"elite": certificate, "top1": certificate}
        iterations = [{**selections, "same_elites": True, "acpc_q90": 0.5}]
        iterations *= request.budget.iterations
        view = {"perturbed_plan": plan, "iterations": iterations}
        parted = {"draw": 1, "first_divergence": 0, "selection_regret": 0.125}
        return {
            "request_id": request.request_id,
            "clean_plan": plan,
            "views": [{**view, "certified": True}, {**view, **parted}],
            "receipt": RECEIPT,
            "clean_gaps": [{"top1": 0.5, "elite": 0.25}] * len(iterations),
        }

    def ListCheckpoints(self, request: Any, context: Any) -> dict[str, Any]:
        found, token = page([_checkpoint(name) for name in ("one", "two", "three")], request, 2)
        return {"checkpoints": found, "next_page_token": token}

    def ListDatasets(self, request: Any, context: Any) -> dict[str, Any]:
        return {"datasets": [{"name": "rooms.h5", "size_bytes": 2**20}]}

    def ListTasks(self, request: Any, context: Any) -> dict[str, Any]:
        known = {"description": "Rooms.", "state": "pose", "frameskip": 5, "history": 3}
        found, token = page([{"name": "rooms", **known}, {"name": "own.yaml"}], request, 1)
        return {"tasks": found, "next_page_token": token}

    def GetCheckpoint(self, request: Any, context: Any) -> dict[str, Any]:
        return {"checkpoint": _checkpoint(request.checkpoint.name)}

    UnloadCheckpoint = GetCheckpoint

    def LoadCheckpoint(self, request: Any, context: Any) -> dict[str, Any]:
        loaded = {
            "pinned": request.pin,
            "state": checkpoint_service_pb2.CHECKPOINT_STATE_LOADED,
            "model": {"family": "lewm", "digest": "d" * 64},
        }
        return {"checkpoint": _checkpoint(request.checkpoint.name) | loaded}

    def ScoreCheckpoint(self, request: Any, context: Any) -> Message:
        return operation(f"operations/{request.request_id}", state=1)  # queued

    def RunStudy(self, request: Any, context: Any) -> Message:
        return study_operation(f"operations/{request.request_id}", request)

    def WatchOperation(self, request: Any, context: Any) -> Iterator[dict[str, Any]]:
        while self.script:
            step = self.script.popleft()
            if isinstance(step, status_pb2.Status):
                raise Refused(step)
            yield {"operation": step}
            if step.done:  # what is scripted after it answers another call
                break
        while self.stalled.is_set() and context.is_active():
            time.sleep(0.01)
        self.on_watch_end()

    def GetOperation(self, request: Any, context: Any) -> Any:
        return self.script.popleft() if self.script else operation(request.name)

    def ListOperations(self, request: Any, context: Any) -> dict[str, Any]:
        name = request.page_token or "first"
        more = "second" if name == "first" else ""
        return {"operations": [operation(f"operations/{name}")], "next_page_token": more}

    def WaitOperation(self, request: Any, context: Any) -> Message:
        return operation(request.name, 2)

    def CancelOperation(self, request: Any, context: Any) -> dict[str, Any]:
        return {}

    DeleteOperation = CancelOperation


def _checkpoint(name: str) -> dict[str, Any]:
    available = checkpoint_service_pb2.CHECKPOINT_STATE_AVAILABLE
    return {"name": name, "weights": "weights.pt", "state": available, "size_bytes": 1 << 20}


def serve(
    party: Scripted, credentials: grpc.ServerCredentials | None = None, address: str = "127.0.0.1:0"
) -> tuple[grpc.Server, str]:
    """A started server of a scripted party, by default on a free port of this host; its target."""
    limits = [("grpc.max_receive_message_length", LIMIT), ("grpc.max_send_message_length", LIMIT)]
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4), [party], options=limits)
    if credentials is None:
        port = server.add_insecure_port(address)
    else:
        port = server.add_secure_port(address, credentials)
    server.start()
    host = "127.0.0.1" if credentials is None else "localhost"  # as its certificate says
    return server, f"{host}:{port}"


@contextmanager
def served(party: Scripted, credentials: grpc.ServerCredentials | None = None) -> Iterator[str]:
    server, target = serve(party, credentials)
    yield target
    server.stop(None).wait()
