"""Requests to every method but ComparePair that can never work; shape of ``bad_pairs``."""

from __future__ import annotations

from typing import Any, NamedTuple

import wire
from acpc.v1 import checkpoint_service_pb2 as checkpoints
from acpc.v1 import dataset_service_pb2 as datasets
from acpc.v1 import scoring_service_pb2 as scoring
from bad_pairs import INVALID, UNICODE
from google.longrunning import operations_pb2 as operations
from google.protobuf import duration_pb2

NAN, INF = float("nan"), float("inf")
ABSENT = "NOT_FOUND"


class MethodCase(NamedTuple):
    """Stub attribute and method, request, status, and the field path it must name."""

    id: str
    method: str
    request: Any
    code: str = INVALID
    field: str = ""


def _dataset(**changed: object) -> dict[str, Any]:
    return {"dataset": "tworoom.h5", "task": "tworoom", "count": 4, **changed}


def _scores() -> list[MethodCase]:
    # id, fields of the request, code, field at fault
    rows: list[tuple[str, dict[str, Any], str, str]] = [
        ("no-checkpoint", {"checkpoint": None}, INVALID, "checkpoint.name"),
        ("checkpoint-unknown", {"checkpoint": wire.checkpoint("nobody")}, ABSENT, ""),
        ("reference-empty", {"reference": wire.checkpoint("")}, INVALID, "reference.name"),
        ("reference-up", {"reference": wire.checkpoint("..")}, INVALID, "reference.name"),
        ("reference-unknown", {"reference": wire.checkpoint("nobody")}, ABSENT, ""),
        ("reference-family", {"reference": wire.checkpoint("pldm")}, INVALID, "reference"),
        ("no-anchors", {"dataset": None}, INVALID, "dataset"),
        ("anchor-set-unknown", {"dataset": None, "anchor_set": "0" * 64}, ABSENT, ""),
        ("anchor-set-no-digest", {"dataset": None, "anchor_set": UNICODE}, INVALID, "anchor_set"),
        ("anchor-set-up", {"dataset": None, "anchor_set": "../" * 9}, INVALID, "anchor_set"),
        ("dataset-nameless", {"dataset": _dataset(dataset="")}, INVALID, "dataset.dataset"),
        ("dataset-long", {"dataset": _dataset(dataset="x" * 20_000)}, INVALID, "dataset.dataset"),
        ("dataset-nul", {"dataset": _dataset(dataset="a\0b")}, INVALID, "dataset.dataset"),
        ("dataset-up", {"dataset": _dataset(dataset="../x.h5")}, "PERMISSION_DENIED", ""),
        ("dataset-unknown", {"dataset": _dataset(dataset="x.h5")}, ABSENT, ""),
        ("task-nameless", {"dataset": _dataset(task="")}, INVALID, "dataset.task"),
        ("task-long", {"dataset": _dataset(task=UNICODE * 20_000)}, INVALID, "dataset.task"),
        ("task-unknown", {"dataset": _dataset(task="chess")}, ABSENT, ""),
        ("task-file-unknown", {"dataset": _dataset(task="chess.yaml")}, ABSENT, ""),
        ("task-other-columns", {"dataset": _dataset(task="pusht")}, "FAILED_PRECONDITION", ""),
        ("count-1", {"dataset": _dataset(count=1)}, INVALID, "dataset.count"),
        ("count-over", {"dataset": _dataset(count=5000)}, INVALID, "dataset.count"),
        (
            "episodes-over",
            {"dataset": _dataset(count=5, one_per_episode=True)},
            INVALID,
            "dataset.count",
        ),
        ("frameskip-4", {"dataset": _dataset(frameskip=4)}, INVALID, "dataset.frameskip"),
        ("frameskip-max", {"dataset": _dataset(frameskip=2**32 - 1)}, INVALID, "dataset.frameskip"),
        ("no-shift", {"perturbation": None}, INVALID, "perturbation"),
        (
            "kernel-57",
            {"perturbation": wire.blur(57)},
            INVALID,
            "perturbation.gaussian_blur.kernel_size",
        ),
        (
            "shift-28",
            {"perturbation": {"random_shift": {"pixels": 28}}},
            INVALID,
            "perturbation.random_shift.pixels",
        ),
        (
            "defocus-27.5",
            {"perturbation": {"defocus_blur": {"radius": 27.5}}},
            INVALID,
            "perturbation.defocus_blur.radius",
        ),
        (
            "shift-unknown",
            {"perturbation": {"registered": {"name": "fog"}}},
            INVALID,
            "perturbation.registered.name",
        ),
        (
            "draws-of-all",
            {"protocol": {"draws": 1000}, "dataset": _dataset(count=1001)},
            INVALID,
            "protocol.draws",
        ),
        (
            "horizon-of-all",
            {"protocol": {"horizon": 256}, "dataset": _dataset(count=4000)},
            INVALID,
            "protocol.horizon",
        ),
        ("horizon-no-windows", {"protocol": {"horizon": 100}}, INVALID, "dataset.count"),
        ("weights-length", {"protocol": {"weights": [1.0]}}, INVALID, "protocol.weights"),
        ("weights-sum", {"protocol": {"weights": [0.25] * 8}}, INVALID, "protocol.weights"),
        (
            "extra-horizon-over",
            {"protocol": {"extra_horizons": [9]}},
            INVALID,
            "protocol.extra_horizons",
        ),
        (
            "extras-many",
            {"protocol": {"extra_horizons": [1] * 1000}},
            INVALID,
            "protocol.extra_horizons",
        ),
        ("threshold-family", {"thresholds": {"family": "pldm"}}, INVALID, "thresholds.family"),
        (
            "threshold-digest",
            {"thresholds": {"source_digest": "e" * 63}},
            INVALID,
            "thresholds.source_digest",
        ),
        (
            "looks-over",
            {"until_decided": {"batch": 2}, "dataset": _dataset(count=202)},
            INVALID,
            "until_decided.batch",
        ),
        (
            "resamples-in-no-tail",
            {"evidence": {"confidence": 0.9995}},
            INVALID,
            "evidence.resamples",
        ),
        ("mode-unknown", {"numeric_mode": 9}, INVALID, "numeric_mode"),
        ("mode-absent-here", {"numeric_mode": 2}, INVALID, "numeric_mode"),
    ]
    return [
        MethodCase(f"score-{label}", "ScoringService.ScoreCheckpoint", wire.score(**changed), *rest)
        for label, changed, *rest in rows
    ]


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
        "empty": ("", INVALID, "name"),
        "bare": ("operations/", INVALID, "name"),
        "foreign": ("jobs/1", INVALID, "name"),
        "huge": (UNICODE * 20_000, INVALID, "name"),
        "unknown": ("operations/nobody", ABSENT, ""),
        "long": ("operations/" + "x" * 20_000, ABSENT, ""),
        "unprintable": ("operations/a\0b", ABSENT, ""),
        "quoted": ("operations/' OR 1=1 --", ABSENT, ""),
    }
    return [
        MethodCase(f"{method.split('.')[1]}-{label}", method, kind(name=name), code, field)
        for method, kind in methods.items()
        for label, (name, code, field) in names.items()
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
    cases = [
        MethodCase(f"{method.split('.')[1]}-{number}", method, kind(**{field: value}), field=field)
        for method, kind in kinds.items()
        for number, (field, value) in enumerate(rows)
    ]
    listing = "Operations.ListOperations"
    return [
        *cases,
        MethodCase("list-negative", listing, kinds[listing](page_size=-1), field="page_size"),
        MethodCase("list-parent", listing, kinds[listing](name="jobs"), field="name"),
        MethodCase("list-filter", listing, kinds[listing](filter="done"), field="filter"),
        MethodCase("list-state", listing, kinds[listing](filter="state=odd"), field="filter"),
        MethodCase("list-long", listing, kinds[listing](filter=UNICODE * 20_000), field="filter"),
        MethodCase(
            "list-pages-max", kinds_max := "CheckpointService.ListCheckpoints",
            kinds[kinds_max](page_size=2**32 - 1), field="page_size",
        ),
    ]  # fmt: skip


def _loads() -> list[MethodCase]:
    kinds = {
        "GetCheckpoint": checkpoints.GetCheckpointRequest,
        "LoadCheckpoint": checkpoints.LoadCheckpointRequest,
        "UnloadCheckpoint": checkpoints.UnloadCheckpointRequest,
    }
    rows = {
        "none": (None, INVALID, "checkpoint.name"),
        "absolute": (wire.checkpoint("/etc"), INVALID, "checkpoint.name"),
        "unknown": (wire.checkpoint("nobody"), ABSENT, ""),
        "weights": (wire.checkpoint(weights="../x.pt"), INVALID, "checkpoint.weights"),
        "huge": (wire.checkpoint(UNICODE * 20_000), INVALID, "checkpoint"),
    }
    cases = [
        MethodCase(f"{name}-{label}", f"CheckpointService.{name}", kind(checkpoint=ref), *rest)
        for name, kind in kinds.items()
        for label, (ref, *rest) in rows.items()
    ]
    long = {"request_id": "x" * 129, "checkpoint": wire.checkpoint()}
    return [
        *cases,
        *(
            MethodCase(
                f"{name}-request-id", f"CheckpointService.{name}", kinds[name](**long),
                field="request_id",
            )
            for name in ("LoadCheckpoint", "UnloadCheckpoint")
        ),
        MethodCase(
            "load-digest", "CheckpointService.LoadCheckpoint",
            kinds["LoadCheckpoint"](checkpoint=wire.checkpoint(digest="0" * 64)),
            code="FAILED_PRECONDITION",
        ),
        MethodCase(
            "wait-negative", "Operations.WaitOperation",
            operations.WaitOperationRequest(
                name="operations/x", timeout=duration_pb2.Duration(seconds=-5)
            ),
            field="timeout",
        ),
    ]  # fmt: skip


BAD_CALLS = [*_scores(), *_named(), *_lists(), *_loads()]
