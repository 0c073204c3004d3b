"""What is large in a request is on record once, and no list or answer carries it."""

from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
from acpc.v1 import perturbation_pb2, scoring_service_pb2
from acpc.v1.diagnostic_service_pb2_grpc import DiagnosticServiceStub
from acpc.v1.study_service_pb2 import RunStudyRequest
from acpc.v1.study_service_pb2_grpc import StudyServiceStub
from job_world import JobCaller, job, metadata, write_job_world
from wire import pair, refusal

pytestmark = pytest.mark.process
SIDE = 1000
DATA = {"dataset": "rooms.h5", "task": "tworoom", "count": 10}


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[tuple[Path, grpc.Channel]]:
    world = write_job_world(tmp_path)
    with world.server("state") as server, grpc.insecure_channel(server.address) as channel:
        yield tmp_path / "state" / "jobs.sqlite", channel


def plated(count: int = 4, seed: int = 0) -> perturbation_pb2.PerturbationSpec:
    rng = np.random.default_rng(seed)
    plates = [rng.integers(0, 256, SIDE * SIDE * 3, np.uint8).tobytes() for _ in range(count)]
    parts = [background(plate) for plate in plates]
    return perturbation_pb2.PerturbationSpec(composition={"parts": parts})


def background(plate: bytes) -> perturbation_pb2.PerturbationSpec:
    changed = {"strength": 0.5, "plate": plate, "plate_width": SIDE}
    return perturbation_pb2.PerturbationSpec(background=changed)


def score(
    request_id: str, shift: perturbation_pb2.PerturbationSpec | None = None
) -> scoring_service_pb2.ScoreCheckpointRequest:
    return job(request_id, dataset=DATA, reference=None, perturbation=shift or plated())


def record_bytes(file: Path) -> int:
    return sum(part.stat().st_size for part in file.parent.glob(f"{file.name}*"))


def test_plates_are_kept_once_and_named_by_their_digest(parts: tuple[Path, grpc.Channel]) -> None:
    file, calls = parts[0], JobCaller(parts[1])
    names = [calls.submit(score("0")).name]
    before = record_bytes(file)
    names += [calls.submit(score(f"{n}")).name for n in range(1, 10)]
    assert record_bytes(file) - before < 2**22, "nine more jobs of the same plates"
    listed = calls.list()
    assert [operation.name for operation in listed.operations] == names[::-1]
    assert listed.ByteSize() < 2**16

    done = calls.finished(names[0])
    shown = metadata(done).request
    assert all(len(p.background.plate) == 71 for p in shown.perturbation.composition.parts)
    again = calls.finished(calls.submit(shown).name)
    assert again.response == done.response, "what is shown means the same job"
    assert calls.submit(score("0")).name == names[0]
    assert len(calls.scoring.PreviewAnchors(previews(names[0])).previews) == 1

    for operation in calls.list().operations:
        calls.cancel(operation.name)
        calls.delete(operation.name)
    gone = refusal(lambda: calls.submit(shown))
    assert (gone.code, gone.fields) == ("INVALID_ARGUMENT", ("perturbation",))
    assert "no job on record has the plate sha256:" in gone.message


def previews(name: str) -> scoring_service_pb2.PreviewAnchorsRequest:
    return scoring_service_pb2.PreviewAnchorsRequest(name=name, anchors=[0])


def test_what_a_job_keeps_is_bounded_and_a_pair_keeps_nothing(
    parts: tuple[Path, grpc.Channel],
) -> None:
    _, channel = parts
    study = {"shifts": [plated(4), plated(2, seed=1)], "draws": 1, "horizon": 4, "groups": 2}
    every = {**DATA, "one_per_episode": False}
    request = RunStudyRequest(checkpoint={"name": "model"}, dataset=every, drift=study)
    refused = refusal(lambda: StudyServiceStub(channel).RunStudy(request))
    assert refused.code == "INVALID_ARGUMENT"
    assert "the new plates of this job hold 18000000 bytes, over" in refused.message

    for shift in (plated(4), plated(2, seed=1)):
        JobCaller(channel).submit(score("", shift))
    StudyServiceStub(channel).RunStudy(request)  # which adds nothing now

    named = background(b"sha256:" + b"0" * 64)
    asked = pair(checkpoint={"name": "model"}, perturbations={"specs": [named]})
    refused = refusal(lambda: DiagnosticServiceStub(channel).ComparePair(asked))
    assert "is named by its digest" in refused.message
