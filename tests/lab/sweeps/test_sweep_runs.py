"""What a run does about everything a server can do to its jobs."""

import dataclasses
import json
import threading
from collections import Counter, deque

import grpc
import pytest
from acpc_client import save_result
from acpc_client.errors import FailedPrecondition
from acpc_client.retries import RetryPolicy
from acpc_client.sync.client import AcpcClient
from acpc_lab.sweeps import (
    OutOfTime,
    ServerAway,
    Stopped,
    SweepProgress,
    SweepResults,
    TaskState,
)
from client_messages import retry_info, status
from google.rpc import status_pb2
from job_counterparty import FAILED, PASSED
from sweep_plans import POLL, Scene

BROKE = status(grpc.StatusCode.INTERNAL, "it broke")
WITHDRAWN = status(grpc.StatusCode.CANCELLED, "somebody withdrew it")
UNFIT = status(grpc.StatusCode.FAILED_PRECONDITION, "the dataset has no such column")
AWAY = status(grpc.StatusCode.UNAVAILABLE, "restarting")


def states(results: SweepResults) -> list[str]:
    return [item.state.value for item in results]


def test_every_cell_is_scored_and_the_next_run_asks_for_nothing(at: Scene) -> None:
    at.party.listing = {"a": ["weights.pt"], "b": ["w.pt"]}
    sweep = at.sweep(checkpoints=["*"], seeds=[0, 7], reference="b", protocol={"draws": 3})
    results = sweep.run(at.client, poll=POLL)
    assert len(results) == len(at.party.jobs) == 8
    assert all(item.score is not None and item.passed for item in results)
    sent = [job.request for job in at.party.jobs.values()]
    asked = [
        (r.checkpoint.name, r.perturbation.gaussian_noise.sigma, r.protocol.seed) for r in sent
    ]
    assert asked == [(n, s, d) for n in "ab" for s in (0.02, 0.08) for d in (0, 7)]
    assert {(r.checkpoint.weights, r.reference.name, r.reference.weights) for r in sent} == {
        ("weights.pt", "b", "w.pt"), ("w.pt", "b", "w.pt"),
    }  # fmt: skip
    assert {(r.protocol.draws, r.dataset.dataset) for r in sent} == {(3, "rooms.h5")}
    calls = Counter({method: len(made) for method, made in at.party.requests.items()})
    again = sweep.run(at.client, poll=POLL)
    assert [item.score for item in again] == [item.score for item in results]
    assert Counter({method: len(made) for method, made in at.party.requests.items()}) == calls


def test_no_more_jobs_than_asked_for_are_at_the_server(at: Scene) -> None:
    at.party.looks = 3
    at.sweep(seeds=list(range(6)), concurrency=5).run(at.client, poll=POLL, concurrency=2)
    assert len(at.party.jobs) == 12
    assert at.party.most == 2


@pytest.mark.parametrize("trouble", [BROKE, WITHDRAWN, AWAY], ids=["broke", "withdrawn", "away"])
def test_a_job_that_fails_by_no_fault_of_its_own_gets_another(
    trouble: status_pb2.Status, at: Scene
) -> None:
    at.party.fates["a"] = deque([PASSED, trouble, trouble])
    results = at.run(retries=2)
    assert states(results) == ["succeeded"] * 2
    assert [item.attempt for item in results] == [1, 3]
    assert len(at.party.jobs) == 4, "each attempt is a job of its own"


def test_a_cell_that_fails_for_good_does_not_stop_the_others(at: Scene) -> None:
    at.party.listing = {name: ["weights.pt"] for name in "abcd"}
    at.party.fates.update(a=deque([UNFIT]), b=deque([BROKE] * 2), c=deque([FAILED]))
    sweep = at.sweep(checkpoints=["*"], shifts=["blur:5"], retries=1)
    seen: list[SweepProgress] = []
    waited: list[str] = []

    def on_update(now: SweepProgress) -> None:
        seen.append(now)
        waited.extend(task.title for task in now.changed if task.state is TaskState.WAITING)

    results = sweep.run(at.client, poll=POLL, on_update=on_update)
    assert states(results) == ["failed", "failed", "succeeded", "succeeded"]
    unfit, broken = results.failed
    assert (unfit.code, unfit.attempt) == ("FAILED_PRECONDITION", 1)
    assert "no such column" in unfit.message
    assert (broken.code, broken.attempt) == ("INTERNAL", 2)
    assert [item.cell.checkpoint.name for item in results.rejected] == ["c"]
    assert seen[-1].counts == {TaskState.SUCCEEDED: 2, TaskState.FAILED: 2}
    assert waited == ["b gaussian_blur:5 seed 0"]
    at.party.fates.clear()
    assert states(sweep.run(at.client, poll=POLL)) == ["succeeded"] * 4


def test_a_refused_cell_keeps_the_reason_and_takes_no_attempt(at: Scene) -> None:
    refusal = status(grpc.StatusCode.INVALID_ARGUMENT, "perturbation.gaussian_noise.sigma: too big")
    at.party.refusals["ScoreCheckpoint"].append(refusal)
    results = at.run()
    assert states(results) == ["failed", "succeeded"]
    assert "too big" in results[0].message
    assert (results[0].attempt, results[0].operation) == (0, "")


def test_a_busy_server_is_asked_again_when_it_says(at: Scene) -> None:
    full = status(grpc.StatusCode.RESOURCE_EXHAUSTED, "the queue is full", retry_info(0.1))
    at.party.refusals["ScoreCheckpoint"].extend([full, full])
    assert states(at.run()) == ["succeeded"] * 2
    assert len(at.party.requests["ScoreCheckpoint"]) == 4, "one refusal holds back all cells"


def test_patience_with_an_absent_server_ends(at: Scene, unused_target: str) -> None:
    once = RetryPolicy(attempts=1)
    with (
        AcpcClient(unused_target, retry=once, patience=0.1) as nobody,
        pytest.raises(ServerAway, match=r"no server answered at .* within \d.* s"),
    ):
        at.sweep().run(nobody)
    with (
        AcpcClient(unused_target, retry=once) as nobody,
        pytest.raises(OutOfTime, match=r"not done after 0\.2 s; jobs that the server has go on"),
    ):
        at.sweep().run(nobody, timeout=0.2)


def test_a_job_that_was_deleted_is_submitted_again_under_its_id(at: Scene) -> None:
    sweep = at.sweep()
    sweep.run(at.client, follow=False)
    before = list(at.party.jobs)
    at.party.jobs.clear()
    assert states(sweep.run(at.client, poll=POLL)) == ["succeeded"] * 2
    assert list(at.party.jobs) == before


def test_submitting_alone_sends_everything_and_watching_sends_nothing(at: Scene) -> None:
    sweep = at.sweep(seeds=list(range(10)), concurrency=1)
    with pytest.raises(FailedPrecondition, match="not submitted yet"):
        sweep.run(at.client, submit=False)
    results = sweep.run(at.client, follow=False)
    assert len(at.party.jobs) == 20
    assert not at.party.requests["GetOperation"]
    assert set(states(results)) <= {"queued", "running"}
    at.party.jobs[next(iter(at.party.jobs))].fate = BROKE
    watched = sweep.run(at.client, poll=POLL, submit=False)
    assert Counter(states(watched)) == {"succeeded": 19, "failed": 1}
    assert len(at.party.requests["ScoreCheckpoint"]) == 20


def test_a_checkpoint_that_changed_under_the_same_name_is_not_passed_off(at: Scene) -> None:
    sweep = at.sweep()
    sweep.run(at.client, poll=POLL)
    for job in at.party.jobs.values():  # a real server pins digests, and compares
        job.request.checkpoint.digest = "d" * 64
    sweep.folder.rename(sweep.folder.with_name("lost"))
    results = at.run()
    assert states(results) == ["failed"] * 2
    assert "give the sweep another name" in results[0].message


def test_a_file_that_grows_goes_on_and_one_that_shrinks_says_what_changed(at: Scene) -> None:
    at.run()
    more = at.sweep(seeds=[0, 1], concurrency=9, checkpoints=[{"name": "a", "labels": {"run": 1}}])
    results = more.run(at.client, poll=POLL)
    assert len(at.party.jobs) == len(results) == 4
    assert {item.cell.labels["run"] for item in results} == {1}
    fewer = at.sweep(seeds=[0, 1], protocol={"draws": 9})
    with pytest.raises(FailedPrecondition) as refused:
        fewer.run(at.client, poll=POLL)
    assert "4 cells that were submitted are no longer in the sweep" in refused.value.message
    assert "protocol: nothing -> {'draws': 9}" in refused.value.message
    assert "--drop" in refused.value.message
    assert len(at.party.jobs) == 4
    assert len(fewer.run(at.client, poll=POLL, drop=True)) == 4
    assert len(at.party.jobs) == 8


def test_new_checkpoints_join_when_asked_to(at: Scene) -> None:
    sweep = at.sweep(checkpoints=["*"])
    assert len(sweep.run(at.client, poll=POLL)) == 2
    at.party.listing["b"] = ["weights.pt"]
    assert len(sweep.run(at.client, poll=POLL)) == 2
    assert len(sweep.run(at.client, poll=POLL, rescan=True)) == 4
    del at.party.listing["a"]
    with pytest.raises(FailedPrecondition, match="what changed: the checkpoints at the server"):
        sweep.run(at.client, poll=POLL, rescan=True)


def test_two_processes_cannot_run_one_sweep(at: Scene) -> None:
    at.party.looks = 10**6
    sweep, stop = at.sweep(), threading.Event()
    refusals = []

    def intrude(now: SweepProgress) -> None:
        if now.tasks and not refusals:
            with pytest.raises(FailedPrecondition, match="another process runs the sweep") as told:
                at.sweep().run(at.client)
            refusals.append(told.value)
            stop.set()

    with pytest.raises(Stopped):
        sweep.run(at.client, poll=POLL, on_update=intrude, stop=stop)
    assert refusals[0].reason == "SWEEP_RUNNING"


def test_what_changed_at_the_server_meanwhile_is_told(at: Scene) -> None:
    at.party.listing["b"] = ["weights.pt"]
    sweep = at.sweep(checkpoints=["a", "b"])
    results = sweep.run(at.client, poll=POLL)
    assert not results.inconsistencies
    score = results[0].score
    assert score is not None
    plan = json.loads((sweep.folder / "plan.json").read_text())
    assert [item["id"] for item in plan["cells"]] == [item.cell.id for item in results]
    other = dataclasses.replace(score.receipt, anchors_digest="e" * 64)
    save_result(
        dataclasses.replace(score, receipt=other),
        sweep.folder / "results" / f"{results[0].cell.id}.npz",
    )
    (sentence,) = sweep.results().inconsistencies
    assert "the anchors of" in sentence
    assert "saw 2 different ones" in sentence
