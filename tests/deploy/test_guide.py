"""What the operations guide, docs/operate, says can be typed as it stands."""

import json
import re
import shlex
from typing import Any

import pytest
from acpc.contract import ScoreProtocol, read_spec
from acpc_server.settings import Settings
from deployment_files import GUIDE
from google.protobuf import json_format
from grpc_health.v1 import health_pb2
from methods import METHODS, methods_of, request_of

TEXT = "\n".join(GUIDE.values())
BLOCKS = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
SERVED = METHODS | methods_of(health_pb2.DESCRIPTOR)


def _grpcurl() -> list[list[str]]:
    calls = []
    for block in BLOCKS:
        words = shlex.split(block.replace("\\\n", " "), comments=True)
        starts = [i for i, word in enumerate(words) if word == "grpcurl"]
        ends = [*starts[1:], len(words)] if starts else []
        calls += [words[start + 1 : end] for start, end in zip(starts, ends, strict=True)]
    return calls


CALLS = [call for call in _grpcurl() if "/" in call[-1]]


def _message(call: list[str]) -> Any:
    data = json.loads(call[call.index("-d") + 1]) if "-d" in call else {}
    return json_format.ParseDict(data, request_of(SERVED[f"/{call[-1]}"]))


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[-1])
def test_a_grpcurl_call_fits_the_wire(call: list[str]) -> None:
    """json_format refuses unknown fields and values of the wrong type."""
    assert call[-2] == f"localhost:{Settings.model_fields['port'].default}"
    message = _message(call)
    assert message.ByteSize() > 0 or "-d" not in call


def test_the_server_accepts_the_scoring_request_and_its_defaults_are_the_ones_stated() -> None:
    (call,) = [call for call in CALLS if call[-1].endswith("/ScoreCheckpoint")]
    request = _message(call)
    spec = read_spec(request.perturbation)
    given, silent = ScoreProtocol.from_message(request.protocol), ScoreProtocol()
    assert spec.kind == "gaussian_noise"
    assert (given.draws, given.horizon) == (silent.draws, silent.horizon) == (5, 8)
    assert (silent.quantile, silent.margin) == (0.90, 0.10)


def test_every_default_in_the_guide_is_that_of_the_setting() -> None:
    rows = re.findall(r"^\| `ACPC_(\w+)` \| ([\d.]+) \|", TEXT, re.MULTILINE)
    stated = {name.lower(): float(value) for name, value in rows}
    assert stated.keys() >= {"max_message_mib", "job_lease_seconds"}
    assert stated == {name: float(Settings.model_fields[name].default) for name in stated}
