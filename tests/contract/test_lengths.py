"""Law: an entry too many is found by counting, before any entry is built or converted."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from acpc.contract import (
    ArgumentError,
    DriftStudy,
    GaussianNoise,
    PairRequest,
    PerturbationSet,
    Registered,
    ScoreProtocol,
    Wire,
)
from acpc.v1 import perturbation_pb2, study_service_pb2
from google.protobuf.message import Message

MILLION = 1_000_000
SPECS = [perturbation_pb2.PerturbationSpec(identity=perturbation_pb2.Identity())] * 257


class Counted(Sequence[float]):
    """A million entries, of which nobody may ask for one."""

    def __len__(self) -> int:
        return MILLION

    def __getitem__(self, index: Any) -> Any:
        raise AssertionError("an entry was converted")

    def __iter__(self) -> Iterator[float]:
        raise AssertionError("an entry was converted")


@pytest.mark.parametrize(
    ("record", "message", "field", "most"),
    [
        (PerturbationSet, perturbation_pb2.PerturbationSet(specs=SPECS), "specs", 256),
        (DriftStudy, study_service_pb2.DriftStudy(shifts=SPECS), "shifts", 256),
    ],
    ids=["specs", "shifts"],
)
def test_no_perturbation_of_too_many_is_built(
    record: type[Wire[Any]],
    message: Message,
    field: str,
    most: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def built(self: object) -> None:
        raise AssertionError("a perturbation was built")

    monkeypatch.setattr("acpc.contract.Identity.__post_init__", built)
    with pytest.raises(ArgumentError) as caught:
        record.from_message(message, strict=True)
    assert caught.value.field == field
    assert caught.value.description == f"found 257 entries, wanted 1 to {most} entries"


@pytest.mark.parametrize(
    ("record", "fields", "field"),
    [
        (PairRequest, {"weights": [1.0] * MILLION}, "weights"),
        (ScoreProtocol, {"extra_horizons": [1] * MILLION}, "extra_horizons"),
        (ScoreProtocol, {"extra_quantiles": [0.5] * MILLION}, "extra_quantiles"),
        (Registered, {"name": "n", "parameters": dict.fromkeys(map(str, range(65)), 1.0)},
         "parameters"),
    ],
    ids=["weights", "horizons", "quantiles", "parameters"],
)  # fmt: skip
def test_numbers_are_counted_on_reading(
    record: type[Wire[Any]], fields: dict[str, Any], field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def built(self: object) -> None:
        raise AssertionError("the record was built")

    message = record.message_type(**fields)
    if record is not PairRequest:  # whose arrays are read first, and are missing here
        monkeypatch.setattr(record, "__post_init__", built)
    else:
        tensor = message.history
        tensor.dtype, tensor.shape[:] = 1, [0]
        message.action_blocks.CopyFrom(tensor)
        message.perturbations.specs.add().identity.SetInParent()
    with pytest.raises(ArgumentError, match="entries, wanted 0 to") as caught:
        record.from_message(message, strict=True)
    assert caught.value.field == field


@pytest.mark.parametrize("name", ["weights", "extra_horizons", "extra_quantiles"])
def test_numbers_are_counted_before_they_are_converted(name: str) -> None:
    with pytest.raises(ArgumentError, match=rf"^{name}: found {MILLION} entries"):
        ScoreProtocol(**{name: Counted()})


def test_perturbations_are_counted_before_they_are_converted() -> None:
    with pytest.raises(ArgumentError, match=rf"^shifts: found {MILLION} entries"):
        DriftStudy(shifts=Counted())


def test_the_longest_are_read() -> None:
    noise = GaussianNoise(0.1)
    longest = PerturbationSet((noise,) * 256)
    assert PerturbationSet.from_message(longest.to_message(), strict=True) == longest
    protocol = ScoreProtocol(weights=(0.0,) * 1024, extra_quantiles=(0.5,) * 64)
    assert ScoreProtocol.from_message(protocol.to_message(), strict=True) == protocol
