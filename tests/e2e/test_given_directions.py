"""Probe directions that an anchor set brings, in the sensitivity study, against float64 NumPy."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import study_reference
from acpc.contract import SensitivityStudy
from acpc_client import AnchorArrays, AnchorSet
from acpc_client.errors import FailedPrecondition
from acpc_client.sync.client import AcpcClient
from acpc_command import acpc_command
from anchor_wire import anchor_arrays
from served_world import FRAME_SIDE, ServedWorld
from server_process import ServerProcess
from study_reference import StudyAnchors

HISTORY, HORIZON, COUNT, PROBES = 3, 2, 11, 3
EARLY = 1  # frames before those that the checkpoint sees
STUDY = SensitivityStudy(probes=2, horizon=HORIZON, step=0.02, directions="light:1")


@pytest.fixture(scope="module")
def anchors() -> AnchorArrays:
    rng = np.random.default_rng(8)
    image = (FRAME_SIDE, FRAME_SIDE, 3)
    lengths = 10.0 ** rng.uniform(-30, 30, (COUNT, PROBES, 1, 1, 1, 1))
    light = rng.standard_normal((COUNT, PROBES, EARLY + HISTORY, *image)) + 0.5
    early = np.zeros((COUNT, 1, EARLY + HISTORY, *image), np.float32)
    early[:, :, :EARLY] = 1
    return AnchorArrays(
        history=EARLY + HISTORY,
        **anchor_arrays(COUNT, 8, steps=EARLY + HISTORY + HORIZON, size=image[:2], block=10),
        directions={"light:1": (lengths * light).astype(np.float32), "early": early},
    )


@pytest.fixture(scope="module")
def stored(client: AcpcClient, anchors: AnchorArrays) -> AnchorSet:
    return client.anchors.upload(anchors)


def test_both_methods_take_the_directions_of_the_set(
    client: AcpcClient, world: ServedWorld, anchors: AnchorArrays, stored: AnchorSet
) -> None:
    assert stored.directions == {"early": 1, "light:1": PROBES}
    assert stored.groups == {}
    result = client.run_study("lewm", stored, STUDY).result()
    seen = SimpleNamespace(
        ids=anchors.anchor_ids.tolist(),
        frames=anchors.frames[:, EARLY:],
        blocks=anchors.action_blocks[:, EARLY:].astype(np.float64),
    )
    model, given = world.reference("lewm"), StudyAnchors(seen, [], HISTORY)
    along = [x[:, EARLY:].astype(np.float64) for x in anchors.directions["light:1"]]
    rows = study_reference.sensitivity_rows(
        model, given, probes=2, seed=0, step=0.02, directions=along
    )
    for name in ("anchor", "method", "probe"):
        assert result.columns[name].tolist() == [row[name] for row in rows]
    wanted = np.array([row["squared_norm"] for row in rows])
    np.testing.assert_allclose(result.columns["squared_norm"], wanted, rtol=1e-4)
    (digest,) = (x.digest for x in stored.extras if x.name == "directions/light:1")
    assert result.receipt.parameters["given_directions"] == {"light:1": digest}
    random = client.run_study("lewm", stored, dataclasses.replace(STUDY, directions="")).result()
    assert random.receipt.perturbation_digest != result.receipt.perturbation_digest
    assert "given_directions" not in random.receipt.parameters


def test_a_direction_that_the_checkpoint_does_not_see_is_told(
    client: AcpcClient, stored: AnchorSet
) -> None:
    early = SensitivityStudy(probes=1, directions="early", horizon=1)
    blind = client.run_study("lewm", stored, early)
    with pytest.raises(FailedPrecondition, match="direction 0 of anchor 0 in the group 'early'"):
        blind.result()


def test_from_the_command_line(server: ServerProcess, stored: AnchorSet) -> None:
    shown = acpc_command("show", "anchor-set", stored.digest)("--target", server.address)
    assert "directions          early (1), light:1 (3)" in shown.stdout
