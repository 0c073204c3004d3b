"""The messages of requests, from what methods of the client are given.

A function raises ArgumentError where an argument cannot be sent as it is, and TypeError for an
option that the method does not have.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Any, TypeVar, Unpack, cast

import numpy as np
from acpc import contract
from acpc.contract import (
    AnchorSet,
    ArgumentError,
    Array,
    CemBudget,
    CheckpointRef,
    DatasetAnchors,
    NumericMode,
    Perturbation,
    Study,
)
from acpc.v1 import diagnostic_service_pb2, receipt_pb2, scoring_service_pb2, study_service_pb2
from google.protobuf.message import Message

from acpc_client.calls.options import (
    CallOptions,
    CertifyOptions,
    PairedOptions,
    PairOptions,
    PoolOptions,
    ScoreOptions,
    check_options,
)

M = TypeVar("M", bound=Message)
# Of one severity: each time its checkpoint is overwritten takes one.
MAX_ATTEMPTS = 1000
# Options that are no field of the request by their name.
_APART = {
    "request_id", "perturbations", "views", "draws", "seed", "anchor", "offsets", "infeasible",
    "reference",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Pair:
    """One question of ``compare_pairs``; the fields mean what they mean in ``compare_pair``."""

    history: Array
    action_blocks: Array
    perturbations: Perturbation | Sequence[Perturbation] = ()
    views: Array | None = None
    draws: int = 1
    seed: int = 0
    anchor: int = 0
    observed_future: Array | None = None
    proprio: Array | None = None
    future_proprio: Array | None = None
    weights: Sequence[float] = ()
    pair_id: str = ""


def identity(request_id: str | None) -> str:
    """The caller's request id, or a fresh one."""
    return request_id or str(uuid.uuid4())


def reference(checkpoint: str | CheckpointRef) -> receipt_pb2.CheckpointRef:
    """The message for a checkpoint named either way."""
    return CheckpointRef.of(checkpoint).to_message()


def message(request: contract.Wire[M]) -> M:
    """The message of a request whose fields are all in range.

    What has the contract's default is left out: the server fills it in, a newer one with its own.
    """
    contract.check(request)
    sent = request.to_message()
    _drop_defaults(request, sent)
    return sent


def _drop_defaults(record: object, sent: Message) -> None:
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
            if field.has_presence or isinstance(f.default, tuple | contract.WireEnum):
                found.append((f.name, wire, f.default, False))
    return found


_droppable: Callable[[type], list[tuple[str, str, object, bool]]] = cache(_find_droppable)


def _common(
    checkpoint: str | CheckpointRef, options: Mapping[str, Any], known: type
) -> dict[str, Any]:
    """What every computing request has, and the options of ``known`` that are fields of it.

    What is not given is None, for which a record takes its default.
    """
    check_options(options, known)
    names: frozenset[str] = known.__optional_keys__  # type: ignore[attr-defined]
    return {
        "request_id": identity(options.get("request_id")),
        "checkpoint": CheckpointRef.of(checkpoint),
        **{name: options.get(name) for name in names - _APART},
    }


def _views(options: Mapping[str, Any]) -> contract.Views:
    """The other views of a history: perturbations or views of the caller's own, never both."""
    given, own = options.get("perturbations"), options.get("views")
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        given = () if given is None else (given,)
    specs = tuple(_perturbation(spec, "perturbations") for spec in given)
    if bool(specs) == (own is not None):
        found = "both" if specs else "neither"
        raise ArgumentError("perturbations", f"found {found}, wanted perturbations or views")
    if own is not None:
        views: Array = own
        return views
    numbers: list[Any] = [options.get(name) for name in ("draws", "seed", "anchor")]
    return contract.PerturbationSet(specs, *numbers)


def _perturbation(given: object, name: str) -> Any:  # noqa: ANN401 - a Perturbation
    """``given`` itself, once it is known to be a perturbation."""
    if not isinstance(given, contract.VisualChange):
        raise ArgumentError(
            name, f"found {given!r:.80}, wanted a perturbation, for example GaussianNoise(0.08)"
        )
    return given


def compare_pair(
    checkpoint: str | CheckpointRef,
    history: Array,
    action_blocks: Array,
    **options: Unpack[PairOptions],
) -> diagnostic_service_pb2.ComparePairRequest:
    """The message that compares one pair."""
    own = _common(checkpoint, options, PairOptions)
    views = _views(options)
    return message(
        contract.PairRequest(**own, history=history, action_blocks=action_blocks, views=views)
    )


def compare_pairs(
    checkpoint: str | CheckpointRef, pair: Pair, numeric_mode: NumericMode
) -> diagnostic_service_pb2.ComparePairsRequest:
    """The message that carries one pair of a stream."""
    asked = {name: value for name, value in vars(pair).items() if name != "pair_id"}
    return diagnostic_service_pb2.ComparePairsRequest(
        pair_id=pair.pair_id, pair=compare_pair(checkpoint, numeric_mode=numeric_mode, **asked)
    )


def certify_pool(
    checkpoint: str | CheckpointRef,
    history: Array,
    candidates: Array,
    goal: Array,
    **options: Unpack[PoolOptions],
) -> diagnostic_service_pb2.CertifyPoolRequest:
    """The message that certifies one pool."""
    own = _common(checkpoint, options, PoolOptions)
    own |= _candidates(candidates, options.get("offsets"), options.get("infeasible"))
    request = contract.PoolRequest(**own, history=history, goal=goal, views=_views(options))
    sent = message(request)
    return cast("diagnostic_service_pb2.CertifyPoolRequest", sent)  # to mypy, that of its base


def plan_start(
    checkpoint: str | CheckpointRef, history: Array, goal: Array, **options: Unpack[CertifyOptions]
) -> diagnostic_service_pb2.PlanStart:
    """The message that begins a moment of a session."""
    own = _common(checkpoint, options, CertifyOptions)
    return message(contract.PlanStart(**own, history=history, goal=goal, views=_views(options)))


def plan_pool(
    candidates: Array, offsets: Array | None, infeasible: Array | None
) -> diagnostic_service_pb2.PlanPool:
    """The message that carries a pool of the caller's own; the session sets its iteration."""
    return message(contract.OwnPool(**_candidates(candidates, offsets, infeasible)))


def plan_proposal(
    mean: Array, std: Array, candidates: int, seed: int
) -> diagnostic_service_pb2.PlanPool:
    """The message that has the server sample a pool."""
    drawn = contract.Proposal(mean=mean, std=std, candidates=candidates, seed=seed)
    return diagnostic_service_pb2.PlanPool(proposal=message(drawn))


def plan_paired(
    checkpoint: str | CheckpointRef,
    history: Array,
    goal: Array,
    budget: CemBudget,
    **options: Unpack[PairedOptions],
) -> diagnostic_service_pb2.PlanPairedRequest:
    """The message that plans twice with common random numbers."""
    own = {**_common(checkpoint, options, PairedOptions), "history": history, "goal": goal}
    return message(contract.PairedRequest(**own, budget=budget, views=_views(options)))


def _candidates(
    candidates: Array, offsets: Array | None, infeasible: Array | None
) -> dict[str, Any]:
    """A pool with what is known of each candidate."""
    mask = None if infeasible is None else np.asarray(infeasible)
    if mask is not None and (mask.dtype != bool or mask.shape != np.shape(candidates)[:1]):
        found = f"found {mask.dtype} {list(mask.shape)}"
        raise ArgumentError("infeasible", f"{found}, wanted bool, one for each candidate")
    indices = () if mask is None else tuple(np.flatnonzero(mask).tolist())
    return {"candidates": candidates, "offsets": offsets, "infeasible": indices}


def score_checkpoint(
    checkpoint: str | CheckpointRef,
    anchors: DatasetAnchors | AnchorSet | str,
    shift: Perturbation,
    **options: Unpack[ScoreOptions],
) -> scoring_service_pb2.ScoreCheckpointRequest:
    """The message that submits a scoring job."""
    against = options.get("reference")
    asked = contract.ScoreRequest(
        **_common(checkpoint, options, ScoreOptions),
        anchors=_source(anchors),
        shift=_perturbation(shift, "shift"),
        reference=None if against is None else CheckpointRef.of(against),
    )
    return message(asked)


def run_study(
    checkpoint: str | CheckpointRef,
    anchors: DatasetAnchors | AnchorSet | str,
    study: Study,
    **options: Unpack[CallOptions],
) -> study_service_pb2.RunStudyRequest:
    """The message that submits a study."""
    own = _common(checkpoint, options, CallOptions)
    return message(contract.StudyRequest(**own, anchors=_source(anchors), study=study))


def _source(anchors: DatasetAnchors | AnchorSet | str) -> DatasetAnchors | str:
    """The source of a job's anchors; a text is the digest of a set."""
    return anchors.digest if isinstance(anchors, AnchorSet) else anchors


def limit_names(
    checkpoint: str | CheckpointRef,
    anchors: DatasetAnchors | AnchorSet | str,
    shift: Perturbation,
    options: ScoreOptions,
) -> Iterator[str]:
    """Request ids of one severity of a limit, to be tried in this order: equal for equal requests.

    Raises ArgumentError: There is no reference.
    """
    if options.get("reference") is None:
        raise ArgumentError("reference", "name one: without it no severity passes")
    asked: ScoreOptions = {**options, "request_id": options.get("request_id") or "limit"}
    request = score_checkpoint(checkpoint, anchors, shift, **asked)
    content = request.SerializeToString(deterministic=True)
    prefix = f"limit-{hashlib.sha256(content).hexdigest()[:24]}"
    return (f"{prefix}-{attempt}" for attempt in range(1, MAX_ATTEMPTS + 1))


def limit_severities(
    strongest: Perturbation | Sequence[Perturbation], steps: int
) -> list[Perturbation]:
    """The severities of a limit: even steps up to the strongest, or the grid itself.

    Raises ArgumentError: There are none, one changes nothing, or they differ by more than severity.
    """
    if not isinstance(strongest, Sequence):
        return contract.severities_up_to(strongest, steps)
    curves = {contract.curve_of(shift) for shift in strongest}
    if len(curves) != 1 or None in curves:
        wanted = "wanted changes that differ by their severity alone, none of which changes nothing"
        raise ArgumentError("strongest", f"found {', '.join(map(str, strongest))}, {wanted}")
    return list(dict.fromkeys(strongest))
