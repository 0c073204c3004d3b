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
    DatasetAnchors,
    DriftStudy,
    GaussianNoise,
    GeometryStudy,
    PerturbationSet,
    PlannerStudy,
    Registered,
    ScoreProtocol,
    SensitivityStudy,
    Thresholds,
    bounds_of,
    check,
)
from acpc_client import AcpcClient
from acpc_client.calls import methods

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


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
@pytest.mark.parametrize(
    "wrong",
    ["text", {"a": 1}, object(), NOISE, np.array(3.5), True],
    ids=lambda wrong: type(wrong).__name__,
)
def test_a_wrong_type_names_its_field(record: type[Any], wrong: Any) -> None:
    texts = {field.name for field in dataclasses.fields(record) if field.type == "str"}
    for name in bounds_of(record):
        if isinstance(wrong, str) and name in texts:
            continue
        with pytest.raises(ArgumentError, match=r"found .*, wanted ") as caught:
            check(record(**{name: wrong}))
        assert caught.value.field.startswith(name)


CLIENT = AcpcClient("localhost:1")  # where nobody listens: nothing of this is sent


def _score(**options: Any) -> object:
    return CLIENT.score_checkpoint("a", ANCHORS, **{"shift": NOISE, **options})


def _pair(**options: Any) -> object:
    given = {"history": HISTORY, "action_blocks": BLOCKS, "perturbations": NOISE, **options}
    return CLIENT.compare_pair("a", **given)


def _pool(**options: Any) -> object:
    goal, pool = np.zeros(6, np.float32), np.zeros((4, 2, 6), np.float32)
    return CLIENT.certify_pool("a", HISTORY, pool, goal, perturbations=NOISE, **options)


def _study(study: Any) -> object:
    return CLIENT.run_study("a", ANCHORS, study)


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
        (lambda: _pair(perturbations=None), "perturbations"),
        (lambda: _pair(action_blocks=np.zeros((4, 2), int)), "action_blocks.dtype"),
        (lambda: _pair(observed_future=np.zeros(3)), "observed_future.dtype"),
        (lambda: _pair(draws=-1), "perturbations.draws"),
        (lambda: _pair(seed=2**64), "perturbations.seed"),
        (lambda: _pair(draws="2"), "perturbations.draws"),
        (lambda: _pair(weights="half"), "weights"),
        (lambda: _pair(weights=["a", "b"]), "weights[0]"),
        (lambda: _pair(weights=0.5), "weights"),
        (lambda: _pair(history=None), "history"),
        (lambda: _pair(history=np.zeros((3, 4, 5, 3))), "history.dtype"),
        (lambda: _pair(views=np.zeros((1, 1, 4, 5, 3), np.uint8)), "perturbations"),
        (lambda: _pair(timeout=0), "timeout"),
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
    assert caught.value.field == argument


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
        (lambda number: CLIENT.preview_anchors("operations/1", [number]), "anchors"),
        (lambda number: CLIENT.preview_anchors("operations/1", [0], draw=number), "draw"),
    ],
)
def test_no_number_that_cannot_be_sent_reaches_a_message(
    call: Callable[[float], object], argument: str, number: float
) -> None:
    with pytest.raises(ArgumentError, match=r"found .*, wanted ") as caught:
        call(number)
    assert caught.value.field == argument


def test_every_option_is_a_field_of_the_request_or_makes_its_views() -> None:
    asked = [rpc.asks for rpc in vars(methods).values() if isinstance(rpc, methods.Rpc)]
    computing = [pair for pair in asked if pair is not None]
    assert len(computing) == 6
    for record, options in computing:
        fields = {field.name for field in dataclasses.fields(record)}
        views = {field.name for field in dataclasses.fields(PerturbationSet)}
        assert options.__optional_keys__ - fields <= {"perturbations", *views}


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("list_checkpoints", "'checkpoints.list'"),
        ("get_job", "'operations.get'"),
        ("certify", "'certify_pool'"),
    ],
)
def test_a_name_that_is_guessed_names_the_one_that_is_meant(name: str, meant: str) -> None:
    with (
        AcpcClient("localhost:1") as client,
        pytest.raises(AttributeError, match=f"no attribute '{name}'; did you mean {meant}"),
    ):
        getattr(client, name)
