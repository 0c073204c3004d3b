"""Stored results, judged by other thresholds and asked for again; a model saved from Python."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from acpc_client import (
    AcpcClient,
    DatasetAnchors,
    DriftStudy,
    GaussianNoise,
    Outcome,
    Result,
    Score,
    Thresholds,
    load_result,
    save_result,
)
from acpc_command import Acpc, acpc_command
from acpc_server import save_checkpoint
from paper_runs import world_model
from served_fixtures import Demo

GOOD, BASE, SHIFT = "two-room-augmented", "two-room-base", GaussianNoise(0.08)
LIMITS = [(0.3, 0.95), (0.05, 0.95), (0.3, 0.999), (0.02, 1.0), (5.0, 0.01)]


ANCHORS = DatasetAnchors("two-room.h5", "two-room.yaml", count=40)


@pytest.fixture
def client(demo: Demo) -> Iterator[AcpcClient]:
    with AcpcClient(demo.server.address) as opened:
        yield opened


@pytest.fixture
def acpc(demo: Demo) -> Acpc:
    return acpc_command(ACPC_TARGET=demo.server.address)


def test_a_stored_score_is_judged_as_the_server_would(
    client: AcpcClient, acpc: Acpc, tmp_path: Path
) -> None:
    def scored(ir: float, sr: float) -> Result:
        limits = Thresholds(ir, sr)
        job = client.score_checkpoint(GOOD, ANCHORS, SHIFT, reference=BASE, thresholds=limits)
        job.result()
        return Result.of(job.operation())

    for suffix in ("json", "npz"):
        save_result(scored(*LIMITS[0]), tmp_path / f"score.{suffix}")
    seen = set()
    for ir, sr in LIMITS:
        wanted = scored(ir, sr).answer
        for suffix in ("json", "npz"):
            name = tmp_path / f"score.{suffix}"
            code = {Outcome.PASSED: 0, Outcome.UNDECIDED: 5}.get(wanted.gated("confident"), 3)
            asked = ("judge", name, "--t-ir", ir, "--t-sr", sr, "--gate", "confident")
            acpc(*asked, code=code)
            told = json.loads(acpc(*asked, "-o", "json", code=code).stdout)
            (tmp_path / "told.json").write_text(json.dumps(told))
            found: Score = load_result(tmp_path / "told.json").answer
            assert found.verdict == wanted.verdict
            assert told["request"]["thresholds"]["ir"] == ir
            for mine, theirs in (
                (found.evidence, wanted.evidence),
                (found.evidence.other, wanted.evidence.other),
            ):
                assert (mine.confident_outcome, mine.doubt) == (
                    theirs.confident_outcome, theirs.doubt,
                )  # fmt: skip
                assert mine.score == theirs.score
            change = [found.evidence.delta_score, wanted.evidence.delta_score]
            assert change[0].lower == pytest.approx(change[1].lower)
            assert change[0].upper == pytest.approx(change[1].upper)
            for name in ("p_passed", "p_failed"):  # what is not known is not said to be sure
                assert getattr(found.evidence, name) >= getattr(wanted.evidence, name)
        seen.add(wanted.evidence.confident_outcome)
    assert seen >= {Outcome.PASSED, Outcome.FAILED}


def test_a_result_comes_out_again_until_something_changes(
    client: AcpcClient, acpc: Acpc, demo: Demo, tmp_path: Path
) -> None:
    job = client.score_checkpoint(GOOD, ANCHORS, SHIFT, reference=BASE)
    job.result()
    save_result(job.operation(), stored := tmp_path / "score.json")
    assert acpc("verify", stored).stdout.startswith("OK: ")
    document = json.loads(stored.read_text())
    held = document["answer"]["checkpoint"]
    held["ir_raw"] *= 1 + 1e-6
    held["anchor_values"]["radius"][3] += 1e-7
    (changed := tmp_path / "changed.json").write_text(json.dumps(document))
    told = acpc("verify", changed, code=1)
    assert "first difference: answer.checkpoint.ir_raw: found " in told.stderr
    assert "2 of " in told.stderr and "differ, by 1e-06 at most: see --within" in told.stderr
    assert acpc("verify", changed, "--within", "1e-5").stdout.startswith("OK: ")
    for form in ("table", "wide"):
        assert "seconds by phase" in acpc("show", "job", "latest", "-o", form).stdout
    weights = demo.root / "checkpoints" / GOOD / "weights.pt"
    kept = weights.read_bytes()
    try:
        shutil.copy(demo.root / "checkpoints" / BASE / "weights.pt", weights)
        told = acpc("verify", stored, "--within", 1, "-o", "json", code=1)
        found = json.loads(told.stdout)
        assert found["difference"].startswith("answer.checkpoint.checkpoint.digest: ")
        assert found["differ"] > 1 and found["largest_difference"] is None
    finally:
        weights.write_bytes(kept)
    save_result(job.result(), tmp_path / "bare.json")
    assert "save it with --out" in acpc("verify", tmp_path / "bare.json", code=2).stderr


def test_a_study_comes_out_again(client: AcpcClient, acpc: Acpc, tmp_path: Path) -> None:
    study = DriftStudy(groups=4, shifts=(SHIFT,))
    job = client.run_study(GOOD, replace(ANCHORS, count=24), study)
    job.result()
    save_result(job.operation(), tmp_path / "study.npz")
    assert acpc("verify", tmp_path / "study.npz").stdout.startswith("OK: ")
    wrong = acpc("judge", tmp_path / "study.npz", "--t-ir", 1, code=2).stderr
    assert "kind study, wanted a score, as acpc score and acpc show job write it" in wrong


@pytest.mark.process  # loads transformers
def test_a_saved_model_is_served(client: AcpcClient, demo: Demo) -> None:
    card = save_checkpoint(world_model(), demo.root / "checkpoints" / "saved")
    job = client.score_checkpoint("saved", ANCHORS, SHIFT, reference=BASE)
    assert job.result().receipt.checkpoint_digest == card.digest
