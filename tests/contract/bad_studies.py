"""Studies that can never work; shape of ``bad_jobs``."""

from __future__ import annotations

from typing import Any

import wire
from acpc.v1 import study_service_pb2 as pb
from bad_jobs import ABSENT, MethodCase
from bad_pairs import INVALID

METHOD = "StudyService.RunStudy"
STUDIES = ("drift", "planner", "geometry", "sensitivity")
SHIFTED = STUDIES[:3]


def request(study: str, fields: dict[str, Any] | None = None, **changed: object) -> Any:  # noqa: ANN401
    """A study of ``lewm`` on a few anchors; None leaves a field out."""
    small: dict[str, dict[str, Any]] = {
        "drift": {"groups": 2},
        "planner": {"budget": {"candidates": 8, "elites": 3, "iterations": 2, "horizon": 2}},
        "geometry": {},
        "sensitivity": {"probes": 2},
    }
    asked = {
        "checkpoint": wire.checkpoint(),
        "dataset": {"dataset": "tworoom.h5", "task": "tworoom", "count": 3},
        study: {**small[study], **(fields or {})},
        **changed,
    }
    return pb.RunStudyRequest(**{k: v for k, v in asked.items() if v is not None})


def _case(label: str, message: Any, field: str = "", code: str = INVALID) -> MethodCase:  # noqa: ANN401
    return MethodCase(f"study-{label}", METHOD, message, field, code)


def _of_every_study() -> list[MethodCase]:
    return [
        case
        for study in STUDIES
        for case in (
            _case(f"{study}-no-checkpoint", request(study, checkpoint=None), "checkpoint.name"),
            _case(f"{study}-unknown", request(study, checkpoint={"name": "nobody"}), "", ABSENT),
            _case(f"{study}-no-anchors", request(study, dataset=None), "dataset"),
            _case(
                f"{study}-set-absent",
                request(study, dataset=None, anchor_set="0" * 64),
                "",
                ABSENT,
            ),
            _case(f"{study}-count-1", request(study, dataset=_dataset(count=1)), "dataset.count"),
            _case(f"{study}-mode", request(study, numeric_mode=9), "numeric_mode"),
            _case(f"{study}-tf32", request(study, numeric_mode=2), "numeric_mode"),
        )
    ]


def _of_shifted_studies() -> list[MethodCase]:
    rows: Rows = [
        ("views-over", {"draws": 501, "shifts": [wire.noise()] * 2}, "draws"),
        ("shifts-many", {"shifts": [wire.noise()] * 257}, "shifts"),
        ("kernel-57", {"shifts": [wire.blur(57)]}, "shifts[0].gaussian_blur.kernel_size"),
        ("no-kind", {"shifts": [{}]}, "shifts[0]"),
        (
            "shift-unknown",
            {"shifts": [{"registered": {"name": "fog"}}]},
            "shifts[0].registered.name",
        ),
    ]
    return [
        _case(f"{study}-{label}", request(study, fields), f"{study}.{field}")
        for study in SHIFTED
        for label, fields, field in rows
    ]


def _of_one_study() -> list[MethodCase]:
    rows: list[tuple[str, str, dict[str, Any], str]] = [
        ("drift", "groups-of-3-anchors", {"groups": 4}, "groups"),
        ("planner", "elites-all", {"budget": {"candidates": 8, "elites": 8}}, "budget.elites"),
        ("planner", "history-4", {"history": 4}, "history"),
        ("planner", "reduction", {"cost_reduction": 9}, "cost_reduction"),
        ("planner", "returns", {"returns": 9}, "returns"),
        ("sensitivity", "directions-name", {"directions": "a b"}, "directions"),
        ("sensitivity", "directions-of-a-dataset", {"directions": "light"}, "directions"),
    ]
    return [
        _case(f"{study}-{label}", request(study, fields), f"{study}.{field}")
        for study, label, fields, field in rows
    ]


def _dataset(**changed: object) -> dict[str, Any]:
    return {"dataset": "tworoom.h5", "task": "tworoom", "count": 3, **changed}


BAD_STUDIES = [
    *_of_every_study(),
    *_of_shifted_studies(),
    *_of_one_study(),
    _case("none", pb.RunStudyRequest(checkpoint=wire.checkpoint()), "drift"),
    _case("no-windows", request("geometry", {"horizon": 100}), "dataset.count"),
    _case("episodes", request("drift", dataset=_dataset(count=5)), "dataset.count"),
    _case("frameskip", request("drift", dataset=_dataset(frameskip=4)), "dataset.frameskip"),
    _case("bf16", request("sensitivity", numeric_mode=3), "numeric_mode"),
    _case("fp64", request("sensitivity", numeric_mode=4), "numeric_mode"),
    _case(
        "large",
        request("geometry", {"draws": 1000, "shifts": [wire.noise()]}, dataset=_dataset(count=500)),
        field="geometry.draws",
    ),
    _case(
        "many-probes",
        request("sensitivity", {"probes": 1000}, dataset=_dataset(count=1000)),
        field="sensitivity.probes",
    ),
]
