"""Bad requests that no good one is a part of: names, pages, sessions, and what a set has not."""

from collections.abc import Iterable
from typing import Any

import given_wire as given
import planning_wire as planning
import wire
from acpc.v1 import diagnostic_service_pb2 as pb
from acpc.v1 import study_service_pb2
from bad_cases import PLAN, study
from declared import Case, Rows, Rules, broken
from google.protobuf.duration_pb2 import Duration
from methods import METHODS, path_of, request_of
from rules import ABSENT, HUGE, LATE, LONG, UNICODE

OPERATIONS = (
    "Operations.GetOperation", "Operations.CancelOperation", "Operations.DeleteOperation",
    "Operations.WaitOperation", "ScoringService.WatchOperation", "ScoringService.PreviewAnchors",
)  # fmt: skip
LISTS = (
    "Operations.ListOperations", "CheckpointService.ListCheckpoints", "DatasetService.ListDatasets",
    "DatasetService.ListTasks", "AnchorService.ListAnchorSets",
)  # fmt: skip
LOADS = [f"CheckpointService.{verb}Checkpoint" for verb in ("Get", "Load", "Unload")]
SETS = ("AnchorService.GetAnchorSet", "AnchorService.DeleteAnchorSet")
NAMED = [
    *(({"name": name}, "name") for name in ("", "operations/", "jobs/1", UNICODE * 20_000)),
    *(
        ({"name": f"operations/{name}"}, "", ABSENT)
        for name in ("nobody", LONG, "a\0b", "' OR 1=1 --")
    ),
]
TOKENS = ("x", "-1", "1.5", "9" * 30, str(2**31 + 1), "\u0661", "1" * 100_000)
PAGED = [
    ({"page_size": 1001}, "page_size"),
    *(({"page_token": token}, "page_token") for token in TOKENS),
]
REFS = [
    ({}, "checkpoint.name"),
    ({"checkpoint": wire.checkpoint("/etc")}, "checkpoint.name"),
    ({"checkpoint": wire.checkpoint("nobody")}, "", ABSENT),
    ({"checkpoint": wire.checkpoint(weights="../x.pt")}, "checkpoint.weights"),
    ({"checkpoint": wire.checkpoint(UNICODE * 20_000)}, "checkpoint"),
]
DIGESTS = [
    *(
        ({"digest": digest}, "digest")
        for digest in ("", "../" * 21 + "a", "\0" * 64, UNICODE * 9**5)
    ),
    ({"digest": "0" * 64}, "", ABSENT),
]
LONG_ID = ({"checkpoint": wire.checkpoint(), "request_id": "x" * 129}, "request_id")


def _of(methods: Iterable[str], rows: list[tuple[Any, ...]], mark: str = "") -> list[Case]:
    """Every row as the request of every method."""
    return [
        Case(f"{name}-{number}{mark}", name, request_of(METHODS[path_of(name)], **fields), *rest)
        for name in methods
        for number, (fields, *rest) in enumerate(rows)
    ]


def _only(method: str, rows: list[tuple[Any, ...]]) -> list[Case]:
    return _of([method], rows, "-own")


BAD_CALLS = [
    *_of(OPERATIONS, NAMED),
    *_of(LISTS, PAGED),
    *_of(LOADS, REFS),
    *_of(SETS, DIGESTS),
    *_only(
        "Operations.ListOperations",
        [
            ({"page_size": -1}, "page_size"),
            ({"name": "jobs"}, "name"),
            *(({"filter": text}, "filter") for text in ("done", "state=odd", UNICODE * 20_000)),
        ],
    ),
    *_only("CheckpointService.ListCheckpoints", [({"page_size": HUGE}, "page_size")]),
    *_only(
        "CheckpointService.LoadCheckpoint",
        [LONG_ID, ({"checkpoint": wire.checkpoint(digest="0" * 64)}, "", LATE)],
    ),
    *_only("CheckpointService.UnloadCheckpoint", [LONG_ID]),
    *_only(
        "Operations.WaitOperation",
        [({"name": "operations/x", "timeout": Duration(seconds=-5)}, "timeout")],
    ),
    *_of(
        ["AnchorService.GetUpload"],
        [
            ({}, "request_id"),
            ({"request_id": "x" * 129}, "request_id"),
            ({"request_id": "nobody"}, "", ABSENT),
        ],
    ),
]


def _case(label: str, request: Any, field: str) -> Case:
    return Case(f"study-{label}", "StudyService.RunStudy", request, field)


def _counted(count: int, **fields: object) -> dict[str, Any]:
    return {"dataset": {"dataset": "tworoom.h5", "task": "tworoom", "count": count, **fields}}


BAD_STUDIES = [
    _case("none", study_service_pb2.RunStudyRequest(checkpoint=wire.checkpoint()), "drift"),
    _case("no-windows", study("geometry", {"horizon": 100}), "dataset.count"),
    _case("episodes", study("drift", **_counted(5)), "dataset.count"),
    _case("bf16", study("sensitivity", numeric_mode=3), "numeric_mode"),
    _case("fp64", study("sensitivity", numeric_mode=4), "numeric_mode"),
    _case(
        "large",
        study("geometry", {"draws": 1000, "shifts": [wire.noise()]}, **_counted(500)),
        "geometry.draws",
    ),
    _case("probes", study("sensitivity", {"probes": 1000}, **_counted(1000)), "sensitivity.probes"),
]  # fmt: skip


def _orders() -> list[Case]:
    """Messages that come at the wrong time, and what is learnt of a start by its first pool."""
    start, good, empty = planning.start(), planning.proposed(), pb.PlanRequest()
    steps = {"objective": {"terms": [{}, {"step_weights": [1.0, 2.0]}]}}
    rows: list[tuple[str, list[Any], str]] = [
        ("none", [], "start"),
        ("empty-first", [empty], "start"),
        ("pool-first", [good], "start"),
        ("empty-later", [start, good, empty], "pool"),
        ("empty-start-later", [start, good, pb.PlanRequest(start={})], "start.history.dtype"),
        ("late-elites", [planning.start(elite_count=12), good], "start.elite_count"),
        ("late-weights", [planning.start(weights=[0.5, 0.5]), good], "start.weights"),
        ("late-steps", [planning.start(**steps), good], "start.objective.terms[1].step_weights"),
        ("proposal-few", [start, planning.proposed(candidates=3)], "start.elite_count"),
    ]
    return [Case(f"order-{label}", PLAN, *rest) for label, *rest in rows]


BAD_ORDERS = _orders()


def jobs(stored: str) -> list[Case]:
    """Jobs on the set of ``given_wire.upload`` that ask for what it has not."""
    group, own = "given_views.group", {"dataset": None, "anchor_set": stored}
    names = ("noon", "", "*", "views/night", "light", "night\n", "n" * 101)
    dataset, dino = _counted(4), wire.checkpoint(given.CHECKPOINT)
    scores: Rows = [
        *((f"group-{name!r:.9}", {"perturbation": given.given(name)}, f"perturbation.{group}")
          for name in names),
        ("of-a-dataset", dataset, f"perturbation.{group}"),
        ("draws", {"protocol": {"draws": given.VIEWS + 1}}, "protocol.draws"),
        ("draws-default", {"protocol": {}}, "protocol.draws"),
        ("horizon", {"protocol": {"draws": 1, "horizon": wire.HORIZON + 1}}, "anchor_set"),
        ("proprio", {**dataset, "checkpoint": dino, "perturbation": wire.noise()}, "dataset.task"),
    ]  # fmt: skip
    good = wire.score(**own, perturbation=given.given(), protocol={"draws": 2})
    rules: Rules = {"ScoreCheckpointRequest": scores}
    found = [
        Case(label, "ScoringService.ScoreCheckpoint", *rest)
        for label, path, bad, code in broken(good, rules, only="nothing")
        for rest in [(bad, path, code)]
    ]
    night, noon, many, most = given.given(), given.given("noon"), given.VIEWS + 1, given.PROBES
    studies: list[tuple[str, dict[str, Any], str]] = [
        ("drift", {"shifts": [night, noon], "draws": 2, "horizon": 2}, f"shifts[1].{group}"),
        ("geometry", {"shifts": [night], "draws": many, "horizon": 2}, "draws"),
        ("planner", {"shifts": [night], "draws": many}, "draws"),
        *(
            ("sensitivity", {"directions": name, "probes": 1, "horizon": 2}, "directions")
            for name in ("dusk", "night", "*")
        ),
        ("sensitivity", {"directions": "light", "probes": most + 1, "horizon": 2}, "probes"),
    ]  # fmt: skip
    return found + [
        _case(f"{kind}-{number}", study(kind, fields, **own), f"{kind}.{field}")
        for number, (kind, fields, field) in enumerate(studies)
    ]
