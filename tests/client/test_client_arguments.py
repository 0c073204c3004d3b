"""Nothing given means the contract's default, and a wrong type an error that names the argument."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from acpc.contract import (
    ArgumentError,
    CemBudget,
    CheckpointRef,
    DatasetAnchors,
    DriftStudy,
    EvidenceOptions,
    GaussianNoise,
    GeometryStudy,
    MotionBlur,
    NumericMode,
    PerturbationSet,
    PlannerStudy,
    Registered,
    ScoreProtocol,
    SensitivityStudy,
    Thresholds,
    bounds_of,
    check,
)
from acpc_client.calls import checkpoints, diagnostics, jobs
from acpc_client.inputs import Pair

RECORDS: list[type[Any]] = [
    DriftStudy, PlannerStudy, GeometryStudy, SensitivityStudy, ScoreProtocol, Thresholds, CemBudget,
]  # fmt: skip
ANCHORS = DatasetAnchors("d.h5", "t")
NOISE = GaussianNoise(0.1)
HISTORY, BLOCKS = np.zeros((1, 4, 5, 3), np.uint8), np.zeros((2, 6), np.float32)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_none_is_the_default(record: type[Any]) -> None:
    for name in (field.name for field in dataclasses.fields(record)):
        assert record(**{name: None}) == record()


@pytest.mark.parametrize("record", [DriftStudy, PlannerStudy, GeometryStudy])
@pytest.mark.parametrize("empty", [(), []], ids=["tuple", "list"])
def test_no_shifts_are_the_default(record: type[Any], empty: Any) -> None:  # noqa: ANN401
    assert record(shifts=empty) == record()


def test_none_is_the_default_elsewhere() -> None:
    assert MotionBlur(3.0, None) == MotionBlur(3.0)
    assert Registered("n", None) == Registered("n")
    assert CheckpointRef("a", None, None) == CheckpointRef("a")
    assert PerturbationSet((NOISE,), None) == PerturbationSet((NOISE,))


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
@pytest.mark.parametrize(
    "wrong",
    ["text", {"a": 1}, object(), NOISE, np.array(3.5), True],
    ids=lambda wrong: type(wrong).__name__,
)
def test_a_wrong_type_names_its_field(record: type[Any], wrong: Any) -> None:  # noqa: ANN401
    texts = {field.name for field in dataclasses.fields(record) if field.type == "str"}
    for name in bounds_of(record):
        if isinstance(wrong, str) and name in texts:
            continue
        with pytest.raises(ArgumentError, match=r"found .*, wanted ") as caught:
            check(record(**{name: wrong}))
        assert caught.value.field.startswith(name)


@pytest.mark.parametrize(("confidence", "least"), [(0.95, 200), (0.999, 2000), (0.9995, 4000)])
def test_resamples_reach_the_tails(confidence: float, least: int) -> None:
    check(EvidenceOptions(confidence, least))
    with pytest.raises(ArgumentError, match=f"wanted .*{least}"):
        check(EvidenceOptions(confidence, least - 1))


def _score(**options: Any) -> object:  # noqa: ANN401
    return jobs.score_checkpoint("a", ANCHORS, **{"shift": NOISE, **options})


def _pair(**options: Any) -> object:  # noqa: ANN401
    given = {"history": HISTORY, "action_blocks": BLOCKS, "perturbations": NOISE, **options}
    return diagnostics.compare_pair("a", **given)


def _pool(**options: Any) -> object:  # noqa: ANN401
    goal, pool = np.zeros(6, np.float32), np.zeros((4, 2, 6), np.float32)
    return diagnostics.certify_pool("a", HISTORY, pool, goal, perturbations=NOISE, **options)


def _study(study: Any) -> object:  # noqa: ANN401
    return jobs.run_study("a", ANCHORS, study)


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: _score(shift=42), "shift"),
        (lambda: _score(shift=None), "shift"),
        (lambda: _score(shift="gaussian_noise:0.1"), "shift"),
        (lambda: _score(protocol=42), "protocol"),
        (lambda: _score(thresholds="strict"), "thresholds"),
        (lambda: _score(numeric_mode="fp32"), "numeric_mode"),
        (lambda: _score(request_id=5), "request_id"),
        (lambda: _pair(perturbations="gaussian_noise:0.1"), "perturbations"),
        (lambda: _pair(perturbations=["gaussian_noise:0.1"]), "perturbations"),
        (lambda: _pair(perturbations=42), "perturbations"),
        (lambda: _pair(draws="2"), "perturbations.draws"),
        (lambda: _pair(weights="half"), "weights"),
        (lambda: _pair(weights=["a", "b"]), "weights[0]"),
        (lambda: _pair(weights=0.5), "weights"),
        (lambda: _pair(history=None), "history"),
        (lambda: _pair(action_blocks=None), "action_blocks"),
        (lambda: _study(42), "study"),
        (lambda: _study(NOISE), "study"),
        (lambda: _study(DriftStudy(shifts=NOISE)), "drift.shifts"),
        (lambda: _study(DriftStudy(shifts=("noise",))), "drift.shifts[0]"),
    ],
)
def test_a_wrong_argument_is_named_with_what_was_found_and_wanted(
    call: Callable[[], object], argument: str
) -> None:
    with pytest.raises(ArgumentError, match=r"found .*, wanted ") as caught:
        call()
    assert caught.value.argument == argument


@pytest.mark.parametrize(
    "number",
    [math.nan, math.inf, -math.inf, 10**400, -(10**400)],
    ids=lambda number: f"{number!r:.5}",
)
@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda number: _pair(draws=number), "perturbations.draws"),
        (lambda number: _pair(seed=number), "perturbations.seed"),
        (lambda number: _pair(weights=[number, 1.0]), "weights"),
        (lambda number: _pair(perturbations=GaussianNoise(number)), "sigma"),
        (lambda number: _pair(perturbations=Registered("n", {"a": number})), "parameters.a"),
        (lambda number: _pool(endpoint_tolerance=number), "endpoint_tolerance"),
        (lambda number: _pool(temperature=number), "temperature"),
        (lambda number: _score(thresholds=Thresholds(ir=number)), "thresholds.ir"),
        (lambda number: _score(protocol=ScoreProtocol(seed=number)), "protocol.seed"),
        (lambda number: _study(DriftStudy(seed=number)), "drift.seed"),
        (lambda number: jobs.preview_anchors("operations/1", [number], 0), "anchors"),
        (lambda number: jobs.preview_anchors("operations/1", [0], number), "draw"),
        (lambda number: jobs.list_page("", number, ""), "page_size"),
        (lambda number: checkpoints.datasets_page(number, ""), "page_size"),
    ],
)
def test_no_number_that_cannot_be_sent_reaches_a_message(
    call: Callable[[float], object], argument: str, number: float
) -> None:
    with pytest.raises(ArgumentError, match=r"found .*, wanted ") as caught:
        call(number)
    assert caught.value.argument == argument


def test_a_fraction_is_no_count() -> None:
    for count in (0.5, 3.0):
        with pytest.raises(ArgumentError, match=f"page_size: found {count}, wanted an integer"):
            jobs.list_page("", count, "")  # type: ignore[arg-type]


def test_nothing_given_to_a_call_is_the_default() -> None:
    everything = dict.fromkeys(("draws", "seed", "anchor", "weights", "numeric_mode"))
    assert _pair(request_id="r", **everything) == _pair(request_id="r")
    options = dict.fromkeys(("protocol", "thresholds", "numeric_mode", "reference"))
    sent: Any = _score(request_id="r", **options)
    assert sent.request == jobs.score_checkpoint("a", ANCHORS, NOISE, request_id="r").request


def test_everything_of_a_streamed_pair_is_sent() -> None:
    own = Pair(HISTORY, BLOCKS, NOISE, None, 2, 3, 4, weights=(0.25, 0.75), pair_id="mine")
    sent = diagnostics.stream_item("a", own, NumericMode.FP32)
    drawn = sent.pair.perturbations
    assert (sent.pair_id, drawn.draws, drawn.seed, drawn.anchor) == ("mine", 2, 3, 4)
    assert (list(sent.pair.weights), sent.pair.numeric_mode) == ([0.25, 0.75], NumericMode.FP32)
