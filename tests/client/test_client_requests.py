"""What a job was asked, read back from its metadata."""

# ruff: noqa: ANN401 - a side is either client

import functools
import itertools
from typing import Any

from acpc.contract import (
    CheckpointRef,
    DatasetAnchors,
    GaussianBlur,
    GaussianNoise,
    Identity,
    NumericMode,
    Registered,
    Resize,
    ScoreProtocol,
    Thresholds,
)
from acpc.v1 import perturbation_pb2
from acpc.v1 import scoring_service_pb2 as pb
from acpc_client import Operation, ScoreRequest
from client_counterparty import Counterparty
from client_messages import operation

PROTOCOL = ScoreProtocol(5, 7, 8, 0.9, 0.1, (0.25, 0.75), (1, 4), (0.5,))
SHIFTS = [
    GaussianNoise(0.08), GaussianBlur(15), Resize(0.25), Identity(),
    Registered("fog", {"density": 0.5}),
]  # fmt: skip
ANCHORS = ["a" * 64, DatasetAnchors("d.h5", "t", 50, 3, 5, True)]
REFERENCES = [None, CheckpointRef("base", "w.pt", "d" * 64)]


def test_what_was_sent_is_what_is_read(side: Any, counterparty: Counterparty) -> None:
    """A request survives the wire and the metadata of its operation."""
    for shift, anchors, reference in itertools.product(SHIFTS, ANCHORS, REFERENCES):
        given = {"reference": reference, "protocol": PROTOCOL, "thresholds": Thresholds(0.3, 0.95)}
        given |= {"numeric_mode": NumericMode.FP32, "request_id": "r"}
        ref = CheckpointRef("trained")
        asked = functools.partial(_submit, ref, anchors, shift, given)
        side.ask(asked)
        sent = counterparty.requests["ScoreCheckpoint"][-1]
        read = Operation.from_message(operation("operations/r", request=sent)).request
        assert read == ScoreRequest(checkpoint=ref, anchors=anchors, shift=shift, **given)
        assert read is not None and read.shift == shift and read.protocol == PROTOCOL


def _submit(*given: Any) -> Any:
    *arguments, options, client = given
    return client.score_checkpoint(*arguments, **options)


def test_a_shift_of_a_newer_server_is_none_and_the_rest_is_read() -> None:
    request = pb.ScoreCheckpointRequest(perturbation=perturbation_pb2.PerturbationSpec())
    read = ScoreRequest.from_message(request)
    assert read.shift is None
    assert read.protocol == ScoreProtocol()


def _wider() -> perturbation_pb2.PerturbationSpec:
    """What a newer server may accept: this client knows sigma up to 1."""
    return perturbation_pb2.PerturbationSpec(gaussian_noise={"sigma": 2.0})


def test_a_request_out_of_the_known_ranges_is_none_and_the_operation_is_read() -> None:
    asked = {"perturbation": _wider(), "anchor_set": "a" * 64}
    read = Operation.from_message(operation("operations/r", request=asked))
    assert read.request is None
    assert (read.checkpoint, read.attempts) == (CheckpointRef("trained"), 1)
