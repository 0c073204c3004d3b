"""A call before it is sent: its method, the options it takes by keyword, its message.

A method that ends in ``**options: Unpack[PairOptions]`` takes the keys of ``PairOptions`` as
keyword arguments (PEP 692); what is not given has the server's default.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar

import numpy as np
from acpc import contract
from acpc.v1 import receipt_pb2
from google.protobuf.message import Message

from acpc_client.errors import ArgumentError, MalformedAnswer

if TYPE_CHECKING:
    from acpc.contract import (
        AnchorSet,
        Array,
        CemReturn,
        CheckpointRef,
        CostReduction,
        DatasetAnchors,
        EvidenceOptions,
        NumericMode,
        Objective,
        Perturbation,
        ScoreProtocol,
        Thresholds,
        UntilDecided,
        Wire,
    )


Answer = TypeVar("Answer")
LONGEST_S = 1e9
"""Longest time that is asked of gRPC, 30 years; a deadline beyond 2262 has passed for it."""


@dataclass(frozen=True)
class Method:
    """One method of the contract.

    Attributes:
        stub: Generated stub class of its service.
        name: Its name there.
        timeout: Default deadline in seconds.
        idempotent: Whether sending it twice does what sending it once does.
    """

    stub: type[Any]
    name: str
    timeout: float
    idempotent: bool = True

    @property
    def service(self) -> str:
        """Full name of its service."""
        package = self.stub.__module__.rpartition(".")[0]
        return f"{package}.{self.stub.__name__.removesuffix('Stub')}"


@dataclass(frozen=True)
class PreparedCall(Generic[Answer]):
    """A request ready to be sent, as often as the retries need.

    Attributes:
        method: Where it goes.
        request: The message; it carries one request id through all attempts.
        parse: Turns the response message into the answer.
        request_id: The id, for errors; empty for methods without one.
    """

    method: Method
    request: Any
    parse: Callable[[Any], Answer]
    request_id: str = ""

    def read(self, answer: object) -> Answer:
        """The typed answer of a response message.

        Raises MalformedAnswer: The response breaks the contract.
        """
        if answer is None:  # what grpc.aio yields for bytes that are no such message
            raise MalformedAnswer(f"the answer of {self.method.name} cannot be read")
        try:
            return self.parse(answer)
        except ArgumentError as error:
            raise MalformedAnswer(str(error)) from error


@dataclass(frozen=True)
class Page(Generic[Answer]):
    """One page of a list."""

    items: tuple[Answer, ...]
    next_token: str


class CallOptions(TypedDict, total=False):
    """Options of every computing call.

    Attributes:
        numeric_mode: Arithmetic of the network.
        request_id: Kept over retries; the same id gives the same job. A fresh uuid4 when None.
    """

    numeric_mode: NumericMode
    request_id: str | None


class ViewOptions(CallOptions, total=False):
    """The other views of a history: ``perturbations`` that the server applies, or ``views``.

    Attributes:
        perturbations: The visual changes.
        views: Views of your own, uint8 (views, h, height, width, 3); of ``compare_pair`` also
            float32 in [0, 1].
        draws: Draws per perturbation; 1.
        seed: Seed of the draws; 0.
        anchor: Identity of the history among those that share the seed; 0.
        proprio: Normalised proprioception of the history's frames, float32 (h, width), for
            checkpoints whose frames come with it.
    """

    perturbations: Perturbation | Sequence[Perturbation]
    views: Array | None
    draws: int
    seed: int
    anchor: int
    proprio: Array | None


class PairOptions(ViewOptions, total=False):
    """Options of ``compare_pair``.

    Attributes:
        observed_future: uint8 (H, height, width, 3); adds prediction errors and their drift.
        future_proprio: Its frames' proprioception, as ``proprio``, (H, width).
        weights: Horizon weights, nonnegative and summing to 1; empty: 1/H.
    """

    observed_future: Array | None
    future_proprio: Array | None
    weights: Sequence[float]


class PlannerOptions(ViewOptions, total=False):
    """Options of every question about a planner.

    Attributes:
        past_blocks: Blocks that leave the earlier frames, float32 (h - 1, block width).
        goal_proprio: A goal frame's proprioception, as ``proprio``, (width,).
        cost_reduction: How the squared distance is reduced over latent coordinates.
        endpoint_tolerance: l2 distance by which every endpoint may be off; 0.
        objective: What the planner minimises; None: the squared l2 distance of the last step.
    """

    past_blocks: Array | None
    goal_proprio: Array | None
    cost_reduction: CostReduction
    endpoint_tolerance: float
    objective: Objective | None


class CertifyOptions(PlannerOptions, total=False):
    """Options of ``certify_pool`` and ``plan``.

    Attributes:
        elite_count: Size k of the elite set; 0: no elite certificate.
        weights: Horizon weights of the ACPC summaries; empty: 1/H.
        kept_elites: Elites that the next pool keeps, as iCEM does; 0.
        temperature: Of a softmax update (MPPI), whose mean is bounded; None: there is none.
    """

    elite_count: int
    weights: Sequence[float]
    kept_elites: int
    temperature: float | None


class PoolOptions(CertifyOptions, total=False):
    """Options of ``certify_pool``.

    Attributes:
        offsets: Added to the cost of each candidate, float32 (candidates,); None: nothing.
        infeasible: Those that break a constraint on their actions, bool (candidates,); None: none.
    """

    offsets: Array | None
    infeasible: Array | None


class PairedOptions(PlannerOptions, total=False):
    """Options of ``plan_paired``.

    Attributes:
        sampling_seed: Seed of the common random numbers; 0.
        returns: Which plan a run returns.
        choices: Whether the answer holds every run's costs and elites in each iteration.
    """

    sampling_seed: int
    returns: CemReturn
    choices: bool


class ScoreOptions(CallOptions, total=False):
    """Options of ``score_checkpoint``.

    Attributes:
        reference: The unaugmented checkpoint of the same task, run and family. Without it relative
            IR is unknown and the screen can fail but not pass.
        protocol: How IR and SR are measured; None: the paper's protocol.
        thresholds: None: the paper's 0.30 and 0.95.
        evidence: How sure the numbers are made to be; None: intervals at 95 %.
        until_decided: Measures more and more anchors and stops as soon as the verdict is
            certain; the anchors' count is the limit. None: measures all of them.
    """

    reference: str | CheckpointRef | None
    protocol: ScoreProtocol | None
    thresholds: Thresholds | None
    evidence: EvidenceOptions | None
    until_decided: UntilDecided | None


def check_options(given: Mapping[str, object], known: type) -> None:
    """Reject keywords that the call does not have, as Python does for named parameters.

    Raises TypeError: An option that ``known`` does not declare; lists the ones it does.
    """
    options: frozenset[str] = known.__optional_keys__  # type: ignore[attr-defined]
    for name in given:
        if name not in options:
            raise TypeError(f"unexpected option {name!r}; known: {', '.join(sorted(options))}")


M = TypeVar("M", bound=Message)


def identity(request_id: str | None) -> str:
    """The caller's request id, or a fresh one."""
    return request_id or str(uuid.uuid4())


def reference(checkpoint: str | CheckpointRef) -> receipt_pb2.CheckpointRef:
    """The message for a checkpoint named either way."""
    return contract.CheckpointRef.of(checkpoint).to_message()


def common(checkpoint: str | CheckpointRef, options: CallOptions, *more: str) -> dict[str, Any]:
    """Collects what every computing request has, and ``more`` of the options by their names.

    What is not given is None, for which a record takes its default.
    """
    return {
        "request_id": identity(options.get("request_id")),
        "checkpoint": contract.CheckpointRef.of(checkpoint),
        **{name: options.get(name) for name in ("numeric_mode", *more)},
    }


def source(anchors: DatasetAnchors | AnchorSet | str) -> DatasetAnchors | str:
    """Returns the source of a job's anchors; a text is the digest of a set."""
    return anchors.digest if isinstance(anchors, contract.AnchorSet) else anchors


def message(request: Wire[M]) -> M:
    """The message of a request whose fields are all in range.

    Raises ArgumentError: One is not, or cannot be sent; names the field.
    """
    contract.check(request)
    sent = request.to_message()
    _drop_defaults(request, sent)
    return sent


def _drop_defaults(record: object, sent: Message) -> None:
    """Clears what has the contract's default: the server fills it in, a newer one with its own."""
    for name, wire, default, of_oneof in _droppable(type(record)):
        value = getattr(record, name)
        if isinstance(value, np.ndarray | contract.VisualChange):
            continue
        if not of_oneof and value == default and default is not MISSING:
            sent.ClearField(wire)
        elif isinstance(value, contract.Wire):
            _drop_defaults(value, getattr(sent, sent.WhichOneof(wire) if of_oneof else wire))


def _find_droppable(cls: type) -> list[tuple[str, str, object, bool]]:
    """Fields that may have their default, or hold a record: name, wire name, default, oneof."""
    known = cls.message_type.DESCRIPTOR  # type: ignore[attr-defined]
    found: list[tuple[str, str, object, bool]] = []
    for f in fields(cls):
        wire = f.metadata.get("wire", f.name)
        if wire in known.oneofs_by_name:
            found.append((f.name, wire, MISSING, True))
        elif wire in known.fields_by_name:
            field = known.fields_by_name[wire]
            cleared = field.has_presence or isinstance(f.default, tuple | contract.WireEnum)
            if cleared:
                found.append((f.name, wire, f.default, False))
    return found


_droppable: Callable[[type], list[tuple[str, str, object, bool]]] = cache(_find_droppable)


def list_call(
    method: Method, request: Message, field: str, read: Callable[[Any], Answer]
) -> PreparedCall[Page[Answer]]:
    """The call that reads one page of a list, whose records the answer's ``field`` holds."""

    def parse(answer: Any) -> Page[Answer]:  # noqa: ANN401 - a generated message
        return Page(tuple(map(read, getattr(answer, field))), answer.next_page_token)

    return PreparedCall(method, request, parse)


def send(
    method: Method, request: Wire[Any], parse: Callable[[Any], Answer]
) -> PreparedCall[Answer]:
    """The call that sends a request; raises as ``message``."""
    sent: Any = message(request)
    return PreparedCall(method, sent, parse, sent.request_id)
