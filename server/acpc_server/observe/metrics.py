"""Every Prometheus series the server exports, in one place.

The ``grpc_server_*`` names and labels are those of the gRPC ecosystem's Prometheus middleware, so
that existing dashboards work unchanged.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from acpc.contract import NUMBERS
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

# A series more for each labelled one, which nobody asks for.
disable_created_metrics()  # type: ignore[no-untyped-call]
# From half a millisecond to a minute, so close that a quantile is a third off at most.
LATENCY_BUCKETS = tuple(float(f"{0.0005 * 1.5**step:.3g}") for step in range(30))
# From half a second to two hours.
JOB_BUCKETS = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0)
# Values of a label that callers or folders name; those seen later share one.
MAX_NAMES = 50
# Perturbations of one checkpoint, each of one severity, that have series of their own.
MAX_PERTURBATIONS = 12
OTHER = "other"
# Distances in units of the clean motion, so close that a median is a fifth off at most.
MOTION_BUCKETS = tuple(float(f"{0.01 * 1.5**step:.3g}") for step in range(24))
# A unary call that came with this many seconds and was not answered is the server's failure.
AMPLE_SECONDS = 5.0
OUTCOMES = {
    "OK": "ok",
    "CANCELLED": "cancelled",
    "RESOURCE_EXHAUSTED": "limited",
    "UNAUTHENTICATED": "denied",
    "PERMISSION_DENIED": "denied",
    **dict.fromkeys(("UNKNOWN", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"), "fault"),
}
AGENTS = (
    *("acpc-client", "grpcurl", "grpc-python", "grpc-python-asyncio"),
    *("grpc-go", "grpc-java", "grpc-node-js", "grpc-c++"),
)
RPC_LABELS = ("grpc_type", "grpc_service", "grpc_method")
SHIFT_LABELS = ("checkpoint", "perturbation")
KEPT = {name: number.gauge for name, number in NUMBERS.items() if number.gauge}
JOB_STATES = ("queued", "running", "succeeded", "failed", "cancelled")


class Series(NamedTuple):
    """A series as the pages list it; a counter's samples end in ``_total``."""

    name: str
    kind: str
    labels: Sequence[str]
    text: str


class _Registry(CollectorRegistry):
    """Makes the series that it holds, and lists them."""

    def __init__(self) -> None:
        super().__init__()
        self.listed: list[Series] = []

    def counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        self.listed.append(Series(f"{name}_total", "counter", labels, text))
        return Counter(name, text, labels, registry=self)

    def gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
        self.listed.append(Series(name, "gauge", labels, text))
        return Gauge(name, text, labels, registry=self)

    def histogram(
        self,
        name: str,
        text: str,
        labels: Sequence[str] = (),
        buckets: Sequence[float] = LATENCY_BUCKETS,
    ) -> Histogram:
        self.listed.append(Series(name, "histogram", labels, text))
        return Histogram(name, text, labels, buckets=buckets, registry=self)


class _Names:
    """Keeps a group's values of a label few: the first seen stay, all others become ``other``."""

    def __init__(self, most: int = MAX_NAMES) -> None:
        self._most = most
        self._seen = defaultdict[str, set[str]](set)
        self._lock = threading.Lock()

    def __call__(self, name: str, group: str = "") -> str:
        with self._lock:
            seen = self._seen[group]
            if name not in seen:
                if len(seen) >= self._most:
                    return OTHER
                seen.add(name)
        return name


class Shift(NamedTuple):
    """Values of the labels ``SHIFT_LABELS``; of each there are few."""

    checkpoint: str
    perturbation: str

    @property
    def shared(self) -> bool:
        """Whether it stands for several."""
        return OTHER in self


class Metrics:
    """The server's series on a registry of their own.

    ``docs/reference/metrics.md`` is made of their names, labels and texts.
    """

    def __init__(self) -> None:
        self.registry = registry = _Registry()
        counter, gauge, seconds = registry.counter, registry.gauge, registry.histogram
        self.ready = gauge("acpc_ready", "1 while the server takes calls, 0 otherwise.")
        self.build = Info("acpc_build", "Version of the running server.", registry=registry)
        self._add_calls(registry)
        text = "Time a chunk of device work waited for the device."
        self.queue_wait = seconds("acpc_queue_wait_seconds", text, ("priority",))
        text = "Time a chunk of work held the device."
        self.compute = seconds("acpc_compute_seconds", text, ("primitive", "priority"))
        text = "Chunks of work waiting for the device."
        self.queue_depth = gauge("acpc_queue_depth", text, ("priority",))
        text = "Requests looked up in the latent cache."
        self.latent_lookups = counter("acpc_latent_lookups", text, ("result",))
        self.graphs = gauge("acpc_graphs", "Shapes that a captured graph encodes or rolls out.")
        text = "Captured graphs that are not used, since they differed from eager or raised."
        self.graphs_rejected = counter("acpc_graphs_rejected", text, ("reason",))
        self.programs = gauge("acpc_programs", "Checkpoints that a compiled step serves.")
        text = "Compiled steps that are not used: no compiler, or corrupt, differing, raising ones."
        self.programs_rejected = counter("acpc_programs_rejected", text, ("reason",))
        text = "Device calls whose answer was not finite; computed again it repeated, or changed."
        self.not_finite = counter("acpc_not_finite", text, ("primitive", "outcome"))
        text = "Time to read, check and place a checkpoint on the device."
        self.checkpoint_load = seconds("acpc_checkpoint_load_seconds", text)
        self.checkpoints_loaded = gauge("acpc_checkpoints_loaded", "Checkpoints on the device.")
        self.anchor_sets = gauge("acpc_anchor_sets", "Anchor sets in the store.")
        text = "Bytes of anchor sets and unfinished uploads; the limit is --anchor-store-mib."
        self.anchor_bytes = gauge("acpc_anchor_store_bytes", text)
        text = "Uploads of anchors under way, sets made from datasets included."
        self.anchor_uploads = gauge("acpc_anchor_uploads", text)
        text = "Anchors written to the store, from an upload or a dataset."
        self.anchors_stored = counter("acpc_anchors_stored", text, ("origin",))
        self._add_checkpoints(registry)
        self._add_planning(registry)
        self._add_jobs(registry)
        text = "Memory that the service holds: allocated and reserved on a GPU, resident on a CPU."
        self.device_memory = gauge("acpc_device_memory_bytes", text, ("kind",))
        text = "Calls rejected by access control, by reason."
        self.access_denied = counter("acpc_access_denied", text, ("reason",))
        self._checkpoint, self._caller = _Names(), _Names()
        self._perturbation, self._judged = _Names(MAX_PERTURBATIONS), _Names()  # by checkpoint
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)

    def _add_calls(self, registry: _Registry) -> None:
        text = "RPCs started on the server."
        self.rpc_started = registry.counter("grpc_server_started", text, RPC_LABELS)
        text = "RPCs completed on the server; those started and not handled are in flight."
        self.rpc_handled = registry.counter("grpc_server_handled", text, (*RPC_LABELS, "grpc_code"))
        text = "Time from the start of an RPC to its completion."
        self.rpc_handling = registry.histogram("grpc_server_handling_seconds", text, RPC_LABELS)
        text = "Time from a message of a caller's stream to its answer."
        self.stream_message = registry.histogram("acpc_stream_message_seconds", text, RPC_LABELS)
        text = "Calls by principal, family of the user agent, and outcome; probes are left out."
        self._calls = registry.counter("acpc_caller_calls", text, ("caller", "agent", "outcome"))

    def _add_checkpoints(self, registry: _Registry) -> None:
        text = "Requests that named a checkpoint which loaded, jobs included."
        self._asked = registry.counter("acpc_checkpoint_requests", text, ("checkpoint",))
        text = "Verdicts of scoring jobs: passed, failed, inconclusive, does_not_fit."
        self._verdicts = registry.counter("acpc_verdicts", text, ("checkpoint", "outcome"))
        self._numbers = {
            name: registry.gauge(kept.name, kept.text, SHIFT_LABELS[: 1 + kept.by_shift])
            for name, kept in KEPT.items()
        }

    def _add_planning(self, registry: _Registry) -> None:
        text = (
            "Certificates of the winner (top1), elite set (elite) or paired CEM run (plan), one a "
            "view: certified, choice_changes or bound_too_wide."
        )
        names: tuple[str, ...] = (*SHIFT_LABELS, "certificate", "outcome")
        self.certificates = registry.counter("acpc_certificates", text, names)
        text = (
            "Distance of a view's latents from those of the history, over the median distance of "
            "consecutive latents of the history, by planning session; not where it has one frame."
        )
        self.relative_shift = registry.histogram(
            "acpc_planning_relative_shift", text, SHIFT_LABELS, MOTION_BUCKETS
        )
        text = "Pools and paired plans: certified, where no view can change the choice, or denied."
        self.planning_calls = registry.counter(
            "acpc_planning_calls", text, ("checkpoint", "outcome")
        )

    def _add_jobs(self, registry: _Registry) -> None:
        text = "Jobs: queued in the record, running here, ended here since the server started."
        self.jobs = registry.gauge("acpc_jobs", text, ("state",))
        for state in JOB_STATES:
            self.jobs.labels(state).set(0)
        text = "1 while the job record cannot be reached or written, 0 otherwise."
        self.record_away = registry.gauge("acpc_job_record_away", text)
        text = "Time since the submission of the oldest job that is queued."
        self._oldest = registry.gauge("acpc_jobs_oldest_seconds", text)
        text = "Time of a run of a job here: succeeded, failed, or withdrawn to be resumed."
        self.job_seconds = registry.histogram(
            "acpc_job_seconds", text, ("kind", "end"), JOB_BUCKETS
        )
        text = (
            "Seconds of the runs of jobs by phase: queue, read, draw, a primitive of the device, "
            "intervals, record, other. Jobs read and draw while the device computes."
        )
        self.job_phases = registry.counter("acpc_job_phase_seconds", text, ("kind", "phase"))
        text = "Time from a job's submission to the begin of its first step."
        self.first_step = registry.histogram("acpc_job_first_step_seconds", text, (), JOB_BUCKETS)
        text = "Shards of jobs that were measured on this server."
        self.job_shards = registry.counter("acpc_job_shards", text, ("kind",))
        text = "Jobs that failed, by the status code of their operation."
        self.job_failures = registry.counter("acpc_job_failures", text, ("kind", "grpc_code"))

    def set_build(self, *, version: str, torch: str, device: str) -> None:
        """Fill the labels of ``acpc_build_info``."""
        self.build.info({"version": version, "torch": torch, "device": device})

    def count_call(
        self, caller: str, user_agent: str, code: str, *, kind: str, budget: float | None
    ) -> None:
        """Count a call that has ended, by who made it.

        Of the user agent the first word counts, if it is known; ``kind`` is ``unary`` or a kind of
        stream, ``budget`` the seconds left on arrival, None without a deadline.
        """
        outcome = OUTCOMES.get(code, "rejected")
        if code == "DEADLINE_EXCEEDED":
            ample = kind == "unary" and budget is not None and budget >= AMPLE_SECONDS
            outcome = "late" if ample else "expired"
        agent = user_agent.partition(" ")[0].partition("/")[0].lower()
        agent = agent if agent in AGENTS else OTHER
        self._calls.labels(self._caller(caller), agent, outcome).inc()

    def count_request(self, checkpoint: str) -> None:
        """Count a request that named a checkpoint which loaded."""
        self._asked.labels(self._checkpoint(checkpoint)).inc()

    def shift(self, checkpoint: str, perturbation: str) -> Shift:
        """The labels of a checkpoint under a perturbation, whose text has its severity."""
        name = self._checkpoint(checkpoint)
        return Shift(name, self._perturbation(perturbation, name))

    def record_verdict(
        self,
        checkpoint: str,
        perturbation: str,
        outcome: str,
        numbers: Mapping[str, float | None],
    ) -> None:
        """Count a verdict, and keep those of its numbers that are known as the newest ones.

        ``perturbation`` has its severity, of which a sweep asks for more than live planning meets.
        """
        name = self._checkpoint(checkpoint)
        shift = Shift(name, self._judged(perturbation, name))
        self._verdicts.labels(name, outcome).inc()
        for number, kept in KEPT.items():
            value = numbers.get(number)
            # Where names are shared each would write over another's number.
            if value is not None and not (kept.by_shift and shift.shared):
                self._numbers[number].labels(*shift[: 1 + kept.by_shift]).set(value)

    def set_queued(self, count: int, oldest: float) -> None:
        """Set how many jobs are queued, and for how many seconds the oldest has waited."""
        self.jobs.labels("queued").set(count)
        self._oldest.set(oldest)
