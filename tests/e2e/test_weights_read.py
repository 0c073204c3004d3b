"""Law: a receipt says which weights of a file were read, and which others the file holds."""

import wire
from acpc_client import DatasetAnchors, GaussianNoise
from acpc_client.sync.client import AcpcClient
from job_world import JobWorld
from public_checkpoint import public_config, random_state_dict, write_checkpoint
from waiting import GENEROUS_SECONDS

READ = "state_dict, and not current_model_state"


def test_answers_name_the_weights_that_they_are_of(job_world: JobWorld) -> None:
    averaged, raw = (random_state_dict(public_config(), seed) for seed in (0, 7))
    both = {"state_dict": averaged, "current_model_state": raw}
    write_checkpoint(job_world.checkpoints / "averaged", state=both, weights="last.ckpt")
    with job_world.server("weights") as server, AcpcClient(server.address) as client:
        pair = client.compare_pair(
            "averaged", wire.frames(3), wire.blocks(), perturbations=GaussianNoise(0.08)
        )
        assert pair.receipt.weights_read == READ
        job = client.score_checkpoint(
            "base",
            DatasetAnchors("rooms.h5", "tworoom", count=40),
            GaussianNoise(0.08),
            reference="averaged",
        )
        receipt = job.result(timeout=GENEROUS_SECONDS).receipt
        assert (receipt.weights_read, receipt.reference_weights_read) == ("", READ)
        assert client.checkpoints.get("averaged").model.weights_read == READ
