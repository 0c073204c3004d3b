"""What an operator scrapes and reads: names, labels, buckets, and one JSON object a line."""

import urllib.request
from collections.abc import Iterator
from functools import partial

import anchor_wire
import grpc
import planning_wire
import pytest
from acpc.contract import NUMBERS
from acpc.v1 import (
    anchor_service_pb2,
    anchor_service_pb2_grpc,
    diagnostic_service_pb2_grpc,
    perturbation_pb2,
)
from acpc.v1.diagnostic_service_pb2 import ComparePairsRequest
from acpc_server.observe import Metrics
from acpc_server.observe.metrics import JOB_STATES, MAX_NAMES, OTHER
from job_world import JobCaller, job, write_job_world
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from server_process import ServerProcess
from waiting import wait_until
from wire import blocks, pair, refusal, tensor

pytestmark = pytest.mark.process

# By which dashboards of others find the series: those of the ecosystem, and what jobs leave behind.
STANDARD = {
    "grpc_server_started", "grpc_server_handled", "grpc_server_handling_seconds",
    "process_resident_memory_bytes", "process_start_time_seconds", "acpc_build_info",
}  # fmt: skip
# Not in this world: what a fault, an access file or a compiler brings.
ABSENT = {
    "acpc_graphs_rejected", "acpc_programs_rejected", "acpc_not_finite",
    "acpc_access_denied",
}  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    world = write_job_world(tmp_path_factory.mktemp("observed"))
    with world.server("state") as process, grpc.insecure_channel(process.address) as channel:
        diagnostic = diagnostic_service_pb2_grpc.DiagnosticServiceStub(channel)
        good = pair(checkpoint={"name": "model"}, request_id="good-pair")
        diagnostic.ComparePair(good)
        compared = ComparePairsRequest(pair=good)
        narrow = tensor(blocks(width=9))
        assert refusal(
            lambda: diagnostic.ComparePair(
                pair(checkpoint={"name": "model"}, action_blocks=narrow, request_id="bad-pair")
            )
        )
        sets = anchor_service_pb2_grpc.AnchorServiceStub(channel)
        sets.UploadAnchors(anchor_wire.upload("twelve"))
        sets.UploadAnchors(iter([anchor_wire.header("four"), anchor_wire.shard()]))
        source = {"dataset": "rooms.h5", "task": "tworoom", "count": 5}
        sets.CreateAnchorSet(
            anchor_service_pb2.CreateAnchorSetRequest(source=source, history=3, horizon=8)
        )
        calls = JobCaller(channel)
        calls.result(job("good-job"))
        list(calls.watch(calls.submit(job("good-job")).name))
        assert len(list(diagnostic.ComparePairs(iter([compared] * 3)))) == 3
        diagnostic.CertifyPool(planning_wire.certify(checkpoint={"name": "model"}))
        diagnostic.PlanPaired(planning_wire.paired(checkpoint={"name": "model"}))
        unmoved = perturbation_pb2.PerturbationSpec(identity=perturbation_pb2.Identity())
        assert calls.finished(calls.submit(job("bad-job", perturbation=unmoved)).name).error.code
        yield process


@pytest.fixture(scope="module")
def scraped(server: ServerProcess) -> dict[str, Metric]:
    """The series once a beat has counted the queue, which the job has left."""
    url = f"http://127.0.0.1:{server.metrics_port}/metrics"
    families: dict[str, Metric] = {}

    def counted() -> bool:
        with urllib.request.urlopen(url) as answer:
            text = answer.read().decode()
        families.update((family.name, family) for family in text_string_to_metric_families(text))
        return not values(families["acpc_jobs"], "jobs", state="queued")

    wait_until(counted, "the job is counted as queued for ever", pause=0.1)
    return families


def test_every_series_has_its_type_and_labels(scraped: dict[str, Metric]) -> None:
    assert scraped.keys() >= STANDARD
    for series in Metrics().registry.listed:
        name = series.name.removesuffix("_total")
        family = scraped[name]
        assert (family.type, family.documentation) == (series.kind, series.text)
        assert f"{name}_created" not in scraped
        labels = {frozenset(sample.labels) - {"le"} for sample in family.samples}
        assert labels == (set() if name in ABSENT else {frozenset(series.labels)}), name


def values(family: Metric, suffix: str, **labels: str) -> float:
    return sum(
        sample.value
        for sample in family.samples
        if sample.name.endswith(suffix) and labels.items() <= sample.labels.items()
    )


def test_calls_are_counted_once_by_method_and_code(scraped: dict[str, Metric]) -> None:
    handled, started = scraped["grpc_server_handled"], scraped["grpc_server_started"]
    pairs = {"grpc_method": "ComparePair", "grpc_service": "acpc.v1.DiagnosticService"}
    assert values(handled, "_total", grpc_code="OK", **pairs) == 1
    assert values(handled, "_total", grpc_code="INVALID_ARGUMENT", **pairs) == 1
    assert values(started, "_total", **pairs) == 2
    assert values(scraped["grpc_server_handling_seconds"], "_count", **pairs) == 2
    # Of a stream every message is timed: nobody learns from how long it stays open.
    answers = scraped["acpc_stream_message_seconds"]
    assert values(answers, "_count", grpc_method="ComparePairs", grpc_type="bidi_stream") == 3
    assert values(answers, "_count", grpc_method="Plan", grpc_type="bidi_stream") == 0
    assert values(handled, "_total", grpc_method="ScoreCheckpoint", grpc_type="unary") == 3
    watch = {"grpc_method": "WatchOperation", "grpc_type": "server_stream"}
    assert values(handled, "_total", grpc_code="OK", **watch) == 1


def test_callers_are_counted_by_name_library_and_outcome(
    scraped: dict[str, Metric], server: ServerProcess
) -> None:
    calls = scraped["acpc_caller_calls"]
    ours = {"caller": "local", "agent": "grpc-python"}
    assert values(calls, "_total", outcome="rejected", **ours) == 1
    handled = values(scraped["grpc_server_handled"], "_total", grpc_code="OK")
    assert values(calls, "_total", outcome="ok", **ours) == handled
    rpcs = [line for line in server.log() if line["event"] == "rpc"]
    assert {line["principal"] for line in rpcs} == {"local"}
    assert all(line["user_agent"].startswith("grpc-python/") for line in rpcs)


@pytest.mark.parametrize(
    ("code", "kind", "budget", "outcome"),
    [
        ("DEADLINE_EXCEEDED", "unary", 0.3, "expired"),
        ("DEADLINE_EXCEEDED", "unary", None, "expired"),
        ("DEADLINE_EXCEEDED", "bidi_stream", 600.0, "expired"),
        ("DEADLINE_EXCEEDED", "unary", 30.0, "late"),
        ("RESOURCE_EXHAUSTED", "unary", 30.0, "limited"),
        ("NOT_FOUND", "unary", 30.0, "rejected"),
        ("UNAVAILABLE", "unary", 30.0, "fault"),
    ],
)
def test_a_deadline_is_the_servers_to_meet_when_it_left_time_enough(
    code: str, kind: str, budget: float | None, outcome: str
) -> None:
    metrics = Metrics()
    metrics.count_call("me", "grpc-go/1.64 (linux)", code, kind=kind, budget=budget)
    labels = {"caller": "me", "agent": "grpc-go", "outcome": outcome}
    assert metrics.registry.get_sample_value("acpc_caller_calls_total", labels) == 1


def test_device_work_is_told_apart_by_priority(scraped: dict[str, Metric]) -> None:
    calls = {"interactive": ("pair", "pool"), "job": ("encode", "rollout")}
    for priority, primitives in calls.items():
        for primitive in primitives:
            labels = {"priority": priority, "primitive": primitive}
            assert values(scraped["acpc_compute_seconds"], "_count", **labels) > 0
        assert values(scraped["acpc_queue_wait_seconds"], "_count", priority=priority) > 0
        assert values(scraped["acpc_queue_depth"], "", priority=priority) == 0


def test_jobs_and_checkpoints_are_what_happened(scraped: dict[str, Metric]) -> None:
    counts = {s.labels["state"]: s.value for s in scraped["acpc_jobs"].samples}
    assert counts == {**dict.fromkeys(JOB_STATES, 0), "succeeded": 1, "failed": 1}
    assert values(scraped["acpc_job_seconds"], "_count", end="succeeded") == 1
    assert values(scraped["acpc_job_first_step_seconds"], "_count") == 2
    assert values(scraped["acpc_job_shards"], "_total", kind="score_checkpoint") == 24
    spent = {s.labels["phase"] for s in scraped["acpc_job_phase_seconds"].samples if s.value}
    assert spent >= {"queue", "read", "draw", "encode", "rollout", "intervals", "record", "other"}
    failures = {"kind": "score_checkpoint", "grpc_code": "FAILED_PRECONDITION"}
    assert values(scraped["acpc_job_failures"], "_total", **failures) == 1
    assert values(scraped["acpc_checkpoints_loaded"], "loaded") == 2
    assert values(scraped["acpc_checkpoint_load_seconds"], "_count") == 2
    (build,) = scraped["acpc_build_info"].samples
    assert build.labels["device"] == "cpu"
    assert build.value == 1


def test_a_checkpoint_is_known_by_its_requests_verdicts_and_certificates(
    scraped: dict[str, Metric],
) -> None:
    """Five pairs, of which one was wrong; three jobs, of which one was repeated; two plans."""
    model = {"checkpoint": "model"}
    assert values(scraped["acpc_checkpoint_requests"], "_total", **model) == 5 + 3 + 2
    assert values(scraped["acpc_checkpoint_requests"], "_total") == 5 + 3 + 2
    assert values(scraped["acpc_verdicts"], "_total", **model) == 1
    (judged,) = scraped["acpc_verdict_sr"].samples
    assert judged.labels["perturbation"].startswith("gaussian_noise:0.")
    assert 0 <= judged.value <= 1
    assert values(scraped["acpc_verdict_relative_ir"], "ir", **model) > 0
    views = 4
    for certificate in ("top1", "elite", "plan"):
        named = {"certificate": certificate, **model}
        milder = {"perturbation": "gaussian_noise:0.05", **named}
        assert values(scraped["acpc_certificates"], "_total", **named) == views
        assert values(scraped["acpc_certificates"], "_total", **milder) == views / 2


def test_labels_that_grow_with_the_world_are_bounded() -> None:
    """The first names stay; later ones share a series, so that a scrape stays small."""
    metrics = Metrics()
    for number in range(3 * MAX_NAMES):
        metrics.count_request(f"model-{number}")
    metrics.count_request("model-0")
    asked = {
        sample.labels["checkpoint"]: sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "acpc_checkpoint_requests_total"
    }
    assert len(asked) == MAX_NAMES + 1
    assert (asked["model-0"], asked[OTHER]) == (2, 2 * MAX_NAMES)


def test_verdicts_of_several_severities_stand_beside_each_other() -> None:
    """Where names run out, no number stands for several."""
    metrics = Metrics()
    for step in range(MAX_NAMES + 2):
        name = f"gaussian_noise:{step / 100:g}"
        metrics.record_verdict("model", name, "passed", dict.fromkeys(NUMBERS, step))
    metrics.record_verdict("model", name, "passed", {})  # unknown: the newest known ones stay
    asked = {"checkpoint": "model", "perturbation": "gaussian_noise:0.06"}
    for kept in (number.gauge for number in NUMBERS.values() if number.gauge):
        value = partial(metrics.registry.get_sample_value, kept.name)
        assert value(asked) == (6 if kept.by_shift else None)
        assert value({"checkpoint": "model"}) == (None if kept.by_shift else MAX_NAMES + 1)
        assert value({**asked, "perturbation": OTHER}) is None
    counted = {"checkpoint": "model", "outcome": "passed"}
    assert metrics.registry.get_sample_value("acpc_verdicts_total", counted) == MAX_NAMES + 3


def test_the_anchor_store_is_counted(
    scraped: dict[str, Metric], tmp_path_factory: pytest.TempPathFactory
) -> None:
    stored = scraped["acpc_anchors_stored"]
    assert values(stored, "_total", origin="upload") == 12 + 4
    assert values(stored, "_total", origin="dataset") == 5
    assert values(scraped["acpc_anchor_sets"], "sets") == 2
    assert values(scraped["acpc_anchor_uploads"], "uploads") == 0
    (root,) = tmp_path_factory.getbasetemp().glob("observed0/state/anchors")
    on_disk = sum(path.stat().st_size for path in root.rglob("*.npz"))
    assert values(scraped["acpc_anchor_store_bytes"], "bytes") == pytest.approx(on_disk, rel=0.05)


def test_a_call_is_logged_under_its_callers_id_and_a_job_under_its_own(
    server: ServerProcess,
) -> None:
    rpcs = [line for line in server.log() if line["event"] == "rpc"]
    assert all(line["request_id"] for line in rpcs)
    codes = {line["request_id"]: line["code"] for line in rpcs if line["method"] == "ComparePair"}
    assert codes == {"good-pair": "OK", "bad-pair": "INVALID_ARGUMENT"}
    submitted, other = (line for line in server.log() if line["event"] == "job_submitted")
    assert submitted["request_id"] == "good-job"
    ended = [line for line in server.log() if line["event"] == "job_ended"]
    ends = [(submitted["job"], "succeeded"), (other["job"], "failed")]
    assert [(line["job"], line["end"]) for line in ended] == ends
