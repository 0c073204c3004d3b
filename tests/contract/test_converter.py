"""The converter between dataclasses and messages: what it reads, writes, counts and rejects."""

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np
import pytest
from acpc.arrays import NDArray
from acpc.contract import (
    ArgumentError,
    DriftStudy,
    GaussianNoise,
    Identity,
    NumericMode,
    PairRequest,
    PerturbationSet,
    Record,
    Registered,
    ScoreProtocol,
    Wire,
)
from acpc.v1 import (
    anchor_service_pb2,
    diagnostic_service_pb2,
    perturbation_pb2,
    scoring_service_pb2,
    study_service_pb2,
)


class Source(Wire[anchor_service_pb2.DatasetAnchors]):
    """Optional scalars, some with a default of their own."""

    dataset: str
    task: str = "preset"
    count: int = 100
    seed: int | None = None


class Job(Wire[scoring_service_pb2.ScoreCheckpointRequest]):
    """A oneof of a message and a text, an enum, and a field under another name."""

    anchors: Source | str
    numeric_mode: NumericMode
    identity: str = field(default="", metadata={"wire": "request_id"})
    local: int = field(default=7, metadata={"wire": None})


class Arrays(Record, Wire[study_service_pb2.NamedTensor]):
    name: str
    values: NDArray[np.float64]


class Table(Record, Wire[study_service_pb2.RunStudyResponse]):
    columns: tuple[Arrays, ...]


def test_absent_and_zero_fields_take_the_default() -> None:
    assert Source.from_message(anchor_service_pb2.DatasetAnchors()) == Source("")
    given_zero = anchor_service_pb2.DatasetAnchors(dataset="d", count=0, seed=0)
    assert Source.from_message(given_zero) == Source("d", "preset", 0, 0)


def test_an_optional_zero_is_sent_and_none_is_not() -> None:
    message = Source("d", count=0).to_message()
    assert message.HasField("count") and not message.HasField("seed")


def test_an_empty_oneof_is_named() -> None:
    with pytest.raises(ArgumentError, match="anchors: give one of dataset, anchor_set"):
        Job.from_message(scoring_service_pb2.ScoreCheckpointRequest())


def test_a_newer_peers_enum_value_reads_as_unspecified_unless_strict() -> None:
    message = scoring_service_pb2.ScoreCheckpointRequest(anchor_set="a", numeric_mode=99)
    assert Job.from_message(message).numeric_mode is NumericMode.SERVER_DEFAULT
    with pytest.raises(ArgumentError, match=r"^numeric_mode: unknown value 99"):
        Job.from_message(message, strict=True)


def test_errors_name_the_path_of_the_field() -> None:
    good = Arrays("a", np.zeros(2))
    message = Table((good, good)).to_message()
    message.columns[1].values.data = b"short"
    with pytest.raises(ArgumentError) as raised:
        Table.from_message(message)
    assert raised.value.field == "columns[1].values.data"
    wrong = Arrays("b", np.array(["text"]))
    with pytest.raises(ArgumentError) as raised:
        Table((good, wrong)).to_message()
    assert raised.value.field == "columns[1].values"


def test_a_hint_without_a_conversion_is_rejected() -> None:
    class Wrong(Wire[diagnostic_service_pb2.ViewCertificate]):
        top1: int

    with pytest.raises(TypeError, match="top1: no conversion"):
        Wrong.from_message(diagnostic_service_pb2.ViewCertificate())


# --- lengths: an entry too many is found by counting, before any entry is built or converted ------

MILLION = 1_000_000
SPECS = [perturbation_pb2.PerturbationSpec(identity=perturbation_pb2.Identity())] * 257
EMPTY = {"dtype": 1, "shape": [0]}
PAIR = {
    "history": EMPTY, "action_blocks": EMPTY, "perturbations": {"specs": SPECS[:1]},
    "weights": [1.0] * MILLION,
}  # fmt: skip
PARAMETERS = dict.fromkeys(map(str, range(65)), 1.0)
# A record, fields of its message, the one with an entry too many, and what must not be built.
LONG: list[tuple[type[Wire[Any]], dict[str, Any], str, type]] = [
    (PerturbationSet, {"specs": SPECS}, "specs", Identity),
    (DriftStudy, {"shifts": SPECS}, "shifts", Identity),
    (PairRequest, PAIR, "weights", PairRequest),  # whose arrays are read first
    (ScoreProtocol, {"extra_horizons": [1] * MILLION}, "extra_horizons", ScoreProtocol),
    (ScoreProtocol, {"extra_quantiles": [0.5] * MILLION}, "extra_quantiles", ScoreProtocol),
    (Registered, {"name": "n", "parameters": PARAMETERS}, "parameters", Registered),
]


@pytest.mark.parametrize(("record", "fields", "field", "unbuilt"), LONG)
def test_entries_are_counted_on_reading(
    record: type[Wire[Any]], fields: dict[str, Any], field: str, unbuilt: type,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def built(self: object) -> None:
        raise AssertionError("it was built")

    message = record.message_type(**fields)
    monkeypatch.setattr(unbuilt, "__post_init__", built)
    with pytest.raises(ArgumentError, match=r"found \d+ entries, wanted [01] to \d+ e") as caught:
        record.from_message(message, strict=True)
    assert caught.value.field == field


class Counted(Sequence[float]):
    """A million entries, of which nobody may ask for one."""

    def __len__(self) -> int:
        return MILLION

    def __getitem__(self, index: Any) -> Any:
        raise AssertionError("an entry was converted")

    __iter__ = __getitem__  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("record", "name"),
    [*((ScoreProtocol, name) for name in ("weights", "extra_horizons", "extra_quantiles")),
     (DriftStudy, "shifts")],
)  # fmt: skip
def test_entries_are_counted_before_they_are_converted(record: type[Any], name: str) -> None:
    with pytest.raises(ArgumentError, match=rf"^{name}: found {MILLION} entries"):
        record(**{name: Counted()})


def test_the_longest_are_read() -> None:
    longest = PerturbationSet((GaussianNoise(0.1),) * 256)
    assert PerturbationSet.from_message(longest.to_message(), strict=True) == longest
    protocol = ScoreProtocol(weights=(0.0,) * 1024, extra_quantiles=(0.5,) * 64)
    assert ScoreProtocol.from_message(protocol.to_message(), strict=True) == protocol
