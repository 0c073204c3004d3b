"""Good requests of every method that takes a record, and the bad ones that follow from them."""

from collections.abc import Iterator
from typing import Any

import given_wire
import planning_wire as planning
import wire
from acpc.contract import GRADED, example, parse
from acpc.v1 import diagnostic_service_pb2 as pb
from acpc.v1 import study_service_pb2
from acpc.v1.anchor_service_pb2 import CreateAnchorSetRequest
from declared import Case, Rules, broken
from rules import GIVEN, PROPOSED, RULES, floats

# One of each kind that has a number.
SHIFTS = [parse(example(cls)).to_spec() for cls in GRADED.values()]
OBJECTIVE = {"control_weights": [1.0], "terms": [{}]}
CHOICES: dict[str, Any] = {
    "evidence": {}, "thresholds": {}, "until_decided": {"batch": 2}, "protocol": {},
    "reference": wire.checkpoint(),
}  # fmt: skip
STUDIES: dict[str, dict[str, Any]] = {
    "drift": {"groups": 2},
    "planner": {"budget": {"candidates": 8, "elites": 3, "iterations": 2, "horizon": 2}},
    "geometry": {},
    "sensitivity": {"probes": 2},
}
SOURCE = {"dataset": "tworoom.h5", "task": "tworoom", "count": 4}
OFFSETS = {"offsets": floats(planning.CANDIDATES)}


def study(kind: str, fields: dict[str, Any] | None = None, **changed: object) -> Any:
    """A study of ``lewm`` on a few anchors; None leaves a field out."""
    asked = {
        "checkpoint": wire.checkpoint(),
        "dataset": {**SOURCE, "count": 3},
        kind: {**STUDIES[kind], **(fields or {})},
        **changed,
    }
    given = {name: value for name, value in asked.items() if value is not None}
    return study_service_pb2.RunStudyRequest(**given)


GOOD: dict[str, list[Any]] = {
    "ScoringService.ScoreCheckpoint": [wire.score(**CHOICES)],
    "StudyService.RunStudy": [study("sensitivity")] + [
        study(kind, {"shifts": [wire.noise()]}) for kind in STUDIES if kind != "sensitivity"
    ],
    "AnchorService.CreateAnchorSet": [CreateAnchorSetRequest(source=SOURCE, history=3, horizon=4)],
    "DiagnosticService.ComparePair": [
        wire.pair(observed_future=wire.tensor(wire.frames(4)), perturbations={"specs": SHIFTS})
    ],
    "DiagnosticService.CertifyPool": [
        planning.certify(objective=OBJECTIVE, **OFFSETS)
    ],
    "DiagnosticService.PlanPaired": [planning.paired(objective=OBJECTIVE)],
}  # fmt: skip
GIVEN_GOOD: dict[str, list[Any]] = {
    "DiagnosticService.ComparePair": [given_wire.pair()],
    "DiagnosticService.CertifyPool": [given_wire.certify()],
    "DiagnosticService.PlanPaired": [given_wire.paired()],
}
PLAN = "DiagnosticService.Plan"


def _unary(good: dict[str, list[Any]], rules: Rules, only: str, head: str) -> Iterator[Case]:
    for method, requests in good.items():
        for number, request in enumerate(requests):
            for label, path, bad, code in broken(request, rules, only):
                yield Case(f"{head}{method}-{number}-{label}", method, bad, path, code)


def _stream(message: Any, rules: Rules, only: str, head: str, *before: Any) -> Iterator[Case]:
    """A message of a session broken, after those before it."""
    for label, path, bad, code in broken(message, rules, only):
        yield Case(f"{head}-{label}", PLAN, [*before, bad], path, code)


def _sessions() -> Iterator[Case]:
    start = planning.start(objective=OBJECTIVE)
    pool = pb.PlanRequest(pool={"candidates": wire.tensor(planning.pool()), **OFFSETS})
    for message, *before in (start,), (pool, start):
        yield from _stream(message, RULES, "", "Plan", *before)
    yield from _stream(planning.proposed(), PROPOSED, "", "Plan-proposed", start)
    start, *_ = given_wire.session()
    yield from _stream(start, GIVEN, "proprio", "Plan-given")


BAD_UNARY = [*_unary(GOOD, RULES, "", ""), *_unary(GIVEN_GOOD, GIVEN, "proprio", "given-")]
BAD_SESSIONS = [*_sessions()]
