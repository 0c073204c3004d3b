"""Law: a step that comes often is compiled beside the calls, proves itself, and is named."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from acpc.contract import GaussianNoise
from acpc_client import PairComparison, PoolCertificate
from acpc_client.sync.client import AcpcClient
from server_process import ServerProcess
from waiting import wait_until

pytestmark = pytest.mark.slow
WORLD = Path(__file__).parents[2] / "examples" / "two_room"
RNG = np.random.default_rng(11)
HISTORY = RNG.integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
POOL, PAST, GOAL = (RNG.standard_normal(n, np.float32) for n in ((64, 5, 10), (2, 10), 16))
BLOCKS, NOISE = np.concatenate([PAST, POOL[0]]), GaussianNoise(0.02)
# Compiling takes half a minute of a processor at the lowest priority.
COMPILED_SECONDS = 900


@pytest.fixture
def state(tmp_path: Path) -> Path:
    if not (shutil.which("g++") or shutil.which("clang++")):
        pytest.skip("no C++ compiler")
    return tmp_path / "state"


def server(state: Path, compiles: str = "now") -> ServerProcess:
    data = state.parent / "data"
    data.mkdir(exist_ok=True)
    return ServerProcess(WORLD / "checkpoints", data, state, environment={"ACPC_COMPILE": compiles})


def ask(client: AcpcClient, name: str = "two-room-augmented") -> PoolCertificate:
    return client.certify_pool(name, HISTORY, POOL, GOAL, past_blocks=PAST, perturbations=NOISE)


def same(one: PoolCertificate, other: PoolCertificate, tolerance: float) -> None:
    np.testing.assert_allclose(one.clean_costs, other.clean_costs, rtol=tolerance)
    assert one.receipt.to_dict() | {"program": ""} == other.receipt.to_dict() | {"program": ""}


def compare(client: AcpcClient) -> PairComparison:
    return client.compare_pair("two-room-base", HISTORY, BLOCKS, perturbations=NOISE, draws=3)


def test_a_step_is_compiled_once_and_its_answers_agree(state: Path) -> None:
    programs = state / "programs"
    with server(state) as served, AcpcClient(served.address) as client:
        eager = ask(client)
        before = compare(client)
        assert eager.receipt.program == before.receipt.program == ""

        def loaded() -> bool:
            ask(client)  # each looks whether it is there
            return any(line["event"] == "program_loaded" for line in served.log())

        wait_until(loaded, pause=1.0, seconds=COMPILED_SECONDS)
    assert programs.stat().st_mode & 0o777 == 0o700

    # For how many rows it serves was measured, and differs by processor; here it does for all.
    (about,) = programs.glob("*.json")
    measured = json.loads(about.read_text())
    assert {int(rows) for rows in measured["rows"]} == {2, 16, 128, 1024}
    about.write_text(json.dumps(measured | {"rows": {"1": [1.0, 0.01]}}))
    with server(state) as served, AcpcClient(served.address) as client:
        assert [ask(client).receipt.program for _ in range(2)] == ["", "inductor"], "from the disk"
        first = ask(client)
        same(first, eager, 1e-5)
        assert all(np.array_equal(ask(client).clean_costs, first.clean_costs) for _ in range(20))

        # Another checkpoint of the architecture: the same program, checked with its weights.
        asked = [compare(client) for _ in range(3)]
        assert asked[-1].receipt.program == "inductor"
        for found, wanted in zip(asked[-1].results, before.results, strict=True):
            assert found.step_distances == pytest.approx(wanted.step_distances, rel=1e-4)
        assert "acpc_programs 2.0" in served.metrics()

        # An unperturbed view is the history, and copies of a candidate are one choice.
        copies = np.concatenate([POOL, POOL])
        still = client.certify_pool(
            "two-room-base", HISTORY, copies, GOAL, past_blocks=PAST, views=HISTORY[None]
        )
        assert still.receipt.program == "inductor"
        assert np.array_equal(still.clean_costs[:64], still.clean_costs[64:])
        assert not still.views[0].displacements.any() and still.distinct_candidates == 64

    (library,) = programs.glob("*.so")
    with library.open("r+b") as file:
        file.seek(1000)
        file.write(b"\x90" * 16)
    with server(state, "auto") as served, AcpcClient(served.address) as client:
        same(ask(client), eager, 0)
        assert ask(client).receipt.program == ""
        served.wait_for_log(lambda line: line["event"] == "program_ignored")
        assert 'acpc_programs_rejected_total{reason="corrupt"} 1.0' in served.metrics()
