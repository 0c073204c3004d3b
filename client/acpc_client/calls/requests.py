"""The messages of requests, from what methods of the client are given.

A function raises ArgumentError where an argument cannot be sent as it is, and TypeError for an
option that the method does not have.
"""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np
from acpc import contract
from acpc.contract import ArgumentError, Array, CheckpointRef, Perturbation
from acpc.v1 import diagnostic_service_pb2, receipt_pb2
from google.protobuf.message import Message

from acpc_client.calls.options import check_options

M = TypeVar("M", bound=Message)
_ACTIONS = {"action_blocks", "past_blocks", "candidates"}
# In standard deviations of the dataset.
_FARTHEST = 30.0


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
    return request.to_message(sparse=True)


def make(
    record: type[contract.Wire[Any]],
    known: type,
    checkpoint: str | CheckpointRef,
    options: Mapping[str, Any],
    own: dict[str, Any],
) -> Any:  # noqa: ANN401 - the record's message
    """The message of a request of class ``record``, from the options that a method has ``known``.

    ``own`` are its other arguments, by the names of the record's fields, which have the defaults of
    what is not given.
    """
    check_options(options, known)
    names = {f.name for f in fields(record)}
    keys: frozenset[str] = known.__optional_keys__  # type: ignore[attr-defined]
    given = {**{name: options.get(name) for name in keys & names}, **own}
    given["request_id"] = identity(options.get("request_id"))
    given["checkpoint"] = CheckpointRef.of(checkpoint)
    if "views" in names:
        given["views"] = _views(options)
    if "infeasible" in names:
        given["infeasible"] = _indices(given["infeasible"], given["candidates"])
    if given.get("reference") is not None:
        given["reference"] = CheckpointRef.of(given["reference"])
    if "shift" in own:
        _check_perturbation(own["shift"], "shift")
    for name in _ACTIONS & given.keys():
        warn_if_raw(name, given[name])
    if isinstance(anchors := own.get("anchors"), contract.AnchorSet):
        given["anchors"] = anchors.digest
    return message(record(**given))


def warn_if_raw(name: str, actions: Array | None) -> None:
    """Warns where actions lie so far out that they cannot have been normalised.

    Raw ones look right and mean nothing: the model takes them for extreme actions.
    """
    values = np.asarray([] if actions is None else actions)  # a tensor too
    if not values.size:
        return
    furthest = float(np.abs(values).max())
    if furthest > _FARTHEST:
        warnings.warn(
            f"{name} reach {furthest:.4g}: actions are normalised by the mean and deviation of the "
            "dataset, and then hardly exceed 10; acpc_lab.datasets.action_scale normalises them",
            stacklevel=2,
        )


def _views(options: Mapping[str, Any]) -> contract.Views:
    """The other views of a history: perturbations or views of the caller's own, never both."""
    given, own = options.get("perturbations"), options.get("views")
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        given = () if given is None else (given,)
    specs = tuple(given)
    for spec in specs:
        _check_perturbation(spec, "perturbations")
    if bool(specs) == (own is not None):
        found = "both" if specs else "neither"
        raise ArgumentError("perturbations", f"found {found}, wanted perturbations or views")
    if own is not None:
        history = contract.ApplyTo.HISTORY
        if (applied := options.get("apply_to") or history) != history:
            said = f"found {applied}, but views of your own are of the history; give perturbations"
            raise ArgumentError("apply_to", said)
        views: Array = own
        return views
    numbers: list[Any] = [options.get(name) for name in ("draws", "seed", "anchor", "apply_to")]
    return contract.PerturbationSet(specs, *numbers)


def _check_perturbation(given: object, name: str) -> None:
    if not isinstance(given, contract.VisualChange):
        raise ArgumentError(
            name, f"found {given!r:.80}, wanted a perturbation, for example GaussianNoise(0.08)"
        )


def _indices(infeasible: Array | None, candidates: Array) -> tuple[int, ...]:
    """The candidates that a mask names."""
    if infeasible is None:
        return ()
    mask = np.asarray(infeasible)
    if mask.dtype != bool or mask.shape != np.shape(candidates)[:1]:
        found = f"found {mask.dtype} {list(mask.shape)}"
        raise ArgumentError("infeasible", f"{found}, wanted bool, one for each candidate")
    return tuple(np.flatnonzero(mask).tolist())


def plan_pool(
    candidates: Array, offsets: Array | None, infeasible: Array | None
) -> diagnostic_service_pb2.PlanPool:
    """The message that carries a pool of the caller's own; the session sets its iteration."""
    warn_if_raw("candidates", candidates)
    indices = _indices(infeasible, candidates)
    pool = contract.OwnPool(candidates=candidates, offsets=offsets, infeasible=indices)
    return message(pool)


def plan_proposal(
    mean: Array, std: Array, candidates: int, seed: int
) -> diagnostic_service_pb2.PlanPool:
    """The message that has the server sample a pool."""
    drawn = contract.Proposal(mean=mean, std=std, candidates=candidates, seed=seed)
    return diagnostic_service_pb2.PlanPool(proposal=message(drawn))
