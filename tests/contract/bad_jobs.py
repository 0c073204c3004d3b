"""Requests to every method but ComparePair that can never work; shape of ``bad_pairs``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import wire
from acpc.v1 import checkpoint_service_pb2 as checkpoints
from acpc.v1 import dataset_service_pb2 as datasets
from acpc.v1 import scoring_service_pb2 as scoring
from bad_pairs import INVALID, UNICODE, Case, Rows, cases
from google.longrunning import operations_pb2 as operations
from google.protobuf import duration_pb2

NAN, INF = float("nan"), float("inf")
ABSENT = "NOT_FOUND"


class MethodCase(NamedTuple):
    """A method as ``Service.Method`` and what :class:`Case` says."""

    id: str
    method: str
    request: Any
    field: str = ""
    code: str = INVALID


def of(method: str, cases: Iterable[Case]) -> list[MethodCase]:
    """Cases of one method."""
    return [MethodCase(id, method, *rest) for id, *rest in cases]


def _dataset(**changed: object) -> dict[str, Any]:
    return {"dataset": "tworoom.h5", "task": "tworoom", "count": 4, **changed}


def _scores() -> list[MethodCase]:
    rows: Rows = [
        ("no-checkpoint", {"checkpoint": None}, "checkpoint.name"),
        ("checkpoint-unknown", {"checkpoint": wire.checkpoint("nobody")}, "", ABSENT),
        ("reference-empty", {"reference": wire.checkpoint("")}, "reference.name"),
        ("reference-up", {"reference": wire.checkpoint("..")}, "reference.name"),
        ("reference-unknown", {"reference": wire.checkpoint("nobody")}, "", ABSENT),
        ("reference-family", {"reference": wire.checkpoint("pldm")}, "reference"),
        ("no-anchors", {"dataset": None}, "dataset"),
        ("anchor-set-unknown", {"dataset": None, "anchor_set": "0" * 64}, "", ABSENT),
        ("anchor-set-no-digest", {"dataset": None, "anchor_set": UNICODE}, "anchor_set"),
        ("anchor-set-up", {"dataset": None, "anchor_set": "../" * 9}, "anchor_set"),
        ("dataset-nameless", {"dataset": _dataset(dataset="")}, "dataset.dataset"),
        ("dataset-long", {"dataset": _dataset(dataset="x" * 20_000)}, "dataset.dataset"),
        ("dataset-nul", {"dataset": _dataset(dataset="a\0b")}, "dataset.dataset"),
        ("dataset-up", {"dataset": _dataset(dataset="../x.h5")}, "", "PERMISSION_DENIED"),
        ("dataset-unknown", {"dataset": _dataset(dataset="x.h5")}, "", ABSENT),
        ("task-nameless", {"dataset": _dataset(task="")}, "dataset.task"),
        ("task-long", {"dataset": _dataset(task=UNICODE * 20_000)}, "dataset.task"),
        ("task-unknown", {"dataset": _dataset(task="chess")}, "", ABSENT),
        ("task-file-unknown", {"dataset": _dataset(task="chess.yaml")}, "", ABSENT),
        ("task-other-columns", {"dataset": _dataset(task="pusht")}, "", "FAILED_PRECONDITION"),
        ("count-1", {"dataset": _dataset(count=1)}, "dataset.count"),
        ("count-over", {"dataset": _dataset(count=5000)}, "dataset.count"),
        ("episodes-over", {"dataset": _dataset(count=5, one_per_episode=True)}, "dataset.count"),
        ("frameskip-4", {"dataset": _dataset(frameskip=4)}, "dataset.frameskip"),
        ("frameskip-max", {"dataset": _dataset(frameskip=2**32 - 1)}, "dataset.frameskip"),
        ("no-shift", {"perturbation": None}, "perturbation"),
        ("kernel-57", {"perturbation": wire.blur(57)}, "perturbation.gaussian_blur.kernel_size"),
        (
            "shift-28",
            {"perturbation": {"random_shift": {"pixels": 28}}},
            "perturbation.random_shift.pixels",
        ),
        (
            "defocus-27.5",
            {"perturbation": {"defocus_blur": {"radius": 27.5}}},
            "perturbation.defocus_blur.radius",
        ),
        (
            "shift-unknown",
            {"perturbation": {"registered": {"name": "fog"}}},
            "perturbation.registered.name",
        ),
        (
            "draws-of-all",
            {"protocol": {"draws": 1000}, "dataset": _dataset(count=1001)},
            "protocol.draws",
        ),
        (
            "horizon-of-all",
            {"protocol": {"horizon": 256}, "dataset": _dataset(count=4000)},
            "protocol.horizon",
        ),
        ("horizon-no-windows", {"protocol": {"horizon": 100}}, "dataset.count"),
        ("weights-length", {"protocol": {"weights": [1.0]}}, "protocol.weights"),
        ("weights-sum", {"protocol": {"weights": [0.25] * 8}}, "protocol.weights"),
        ("extra-horizon-over", {"protocol": {"extra_horizons": [9]}}, "protocol.extra_horizons"),
        ("extras-many", {"protocol": {"extra_horizons": [1] * 1000}}, "protocol.extra_horizons"),
        ("threshold-family", {"thresholds": {"family": "pldm"}}, "thresholds.family"),
        (
            "threshold-digest",
            {"thresholds": {"source_digest": "e" * 63}},
            "thresholds.source_digest",
        ),
        ("resamples-in-no-tail", {"evidence": {"confidence": 0.9995}}, "evidence.resamples"),
        ("mode-unknown", {"numeric_mode": 9}, "numeric_mode"),
        ("mode-absent-here", {"numeric_mode": 2}, "numeric_mode"),
    ]
    return of("ScoringService.ScoreCheckpoint", cases(rows, wire.score, "score-"))


def _named() -> list[MethodCase]:
    """Every method that takes the name of an operation, with every bad name."""
    methods = {
        "Operations.GetOperation": operations.GetOperationRequest,
        "Operations.CancelOperation": operations.CancelOperationRequest,
        "Operations.DeleteOperation": operations.DeleteOperationRequest,
        "Operations.WaitOperation": operations.WaitOperationRequest,
        "ScoringService.WatchOperation": scoring.WatchOperationRequest,
        "ScoringService.PreviewAnchors": scoring.PreviewAnchorsRequest,
    }
    names = {
        "empty": ("", "name"),
        "bare": ("operations/", "name"),
        "foreign": ("jobs/1", "name"),
        "huge": (UNICODE * 20_000, "name"),
        "unknown": ("operations/nobody", "", ABSENT),
        "long": ("operations/" + "x" * 20_000, "", ABSENT),
        "unprintable": ("operations/a\0b", "", ABSENT),
        "quoted": ("operations/' OR 1=1 --", "", ABSENT),
    }
    return [
        MethodCase(f"{method.split('.')[1]}-{label}", method, kind(name=name), *rest)
        for method, kind in methods.items()
        for label, (name, *rest) in names.items()
    ]


def _lists() -> list[MethodCase]:
    kinds = {
        "Operations.ListOperations": operations.ListOperationsRequest,
        "CheckpointService.ListCheckpoints": checkpoints.ListCheckpointsRequest,
        "DatasetService.ListDatasets": datasets.ListDatasetsRequest,
        "DatasetService.ListTasks": datasets.ListTasksRequest,
    }
    tokens = ("x", "-1", "1.5", "9" * 30, str(2**31 + 1), "\u0661", "1" * 100_000)
    rows = [("page_size", 1001), *(("page_token", token) for token in tokens)]
    found = [
        MethodCase(f"{method.split('.')[1]}-{number}", method, kind(**{field: value}), field)
        for method, kind in kinds.items()
        for number, (field, value) in enumerate(rows)
    ]
    listing = "Operations.ListOperations"
    return [
        *found,
        MethodCase("list-negative", listing, kinds[listing](page_size=-1), "page_size"),
        MethodCase("list-parent", listing, kinds[listing](name="jobs"), "name"),
        MethodCase("list-filter", listing, kinds[listing](filter="done"), "filter"),
        MethodCase("list-state", listing, kinds[listing](filter="state=odd"), "filter"),
        MethodCase("list-long", listing, kinds[listing](filter=UNICODE * 20_000), "filter"),
        MethodCase(
            "list-pages-max",
            kinds_max := "CheckpointService.ListCheckpoints",
            kinds[kinds_max](page_size=2**32 - 1),
            "page_size",
        ),
    ]


def _loads() -> list[MethodCase]:
    kinds = {
        "GetCheckpoint": checkpoints.GetCheckpointRequest,
        "LoadCheckpoint": checkpoints.LoadCheckpointRequest,
        "UnloadCheckpoint": checkpoints.UnloadCheckpointRequest,
    }
    rows = {
        "none": (None, "checkpoint.name"),
        "absolute": (wire.checkpoint("/etc"), "checkpoint.name"),
        "unknown": (wire.checkpoint("nobody"), "", ABSENT),
        "weights": (wire.checkpoint(weights="../x.pt"), "checkpoint.weights"),
        "huge": (wire.checkpoint(UNICODE * 20_000), "checkpoint"),
    }
    found = [
        MethodCase(f"{name}-{label}", f"CheckpointService.{name}", kind(checkpoint=ref), *rest)
        for name, kind in kinds.items()
        for label, (ref, *rest) in rows.items()
    ]
    long = {"request_id": "x" * 129, "checkpoint": wire.checkpoint()}
    return [
        *found,
        *(
            MethodCase(
                f"{name}-request-id", f"CheckpointService.{name}", kinds[name](**long), "request_id"
            )
            for name in ("LoadCheckpoint", "UnloadCheckpoint")
        ),
        MethodCase(
            "load-digest",
            "CheckpointService.LoadCheckpoint",
            kinds["LoadCheckpoint"](checkpoint=wire.checkpoint(digest="0" * 64)),
            "",
            "FAILED_PRECONDITION",
        ),
        MethodCase(
            "wait-negative",
            "Operations.WaitOperation",
            operations.WaitOperationRequest(
                name="operations/x", timeout=duration_pb2.Duration(seconds=-5)
            ),
            "timeout",
        ),
    ]


BAD_CALLS = [*_scores(), *_named(), *_lists(), *_loads()]
