"""Every Prometheus series the server exports, in one place.

The ``grpc_server_*`` names and labels are those of the gRPC ecosystem's Prometheus middleware, so
that existing dashboards work unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.exposition import start_http_server

# From a quarter of a millisecond, the floor of a local call, to a minute.
LATENCY_BUCKETS = (
    *(0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
RPC_LABELS = ("grpc_type", "grpc_service", "grpc_method")
JOB_STATES = ("queued", "running", "succeeded", "failed", "cancelled")


class _Registry(CollectorRegistry):
    """Makes the series that it holds."""

    def counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        return Counter(name, text, labels, registry=self)

    def gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
        return Gauge(name, text, labels, registry=self)

    def seconds(self, name: str, text: str, labels: Sequence[str] = ()) -> Histogram:
        return Histogram(name, text, labels, buckets=LATENCY_BUCKETS, registry=self)


class Metrics:
    """The server's series on a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = _Registry()
        self.rpc_started = registry.counter(
            "grpc_server_started", "RPCs started on the server.", RPC_LABELS
        )
        self.rpc_handled = registry.counter(
            "grpc_server_handled",
            "RPCs completed on the server, by status code.",
            (*RPC_LABELS, "grpc_code"),
        )
        self.rpc_handling = registry.seconds(
            "grpc_server_handling_seconds",
            "Time from the start of an RPC to its completion.",
            RPC_LABELS,
        )
        self.queue_wait = registry.seconds(
            "acpc_queue_wait_seconds",
            "Time a chunk of device work waited for the device.",
            ("priority",),
        )
        self.compute = registry.seconds(
            "acpc_compute_seconds",
            "Time a chunk of work held the device.",
            ("primitive", "priority"),
        )
        self.queue_depth = registry.gauge(
            "acpc_queue_depth", "Chunks of work waiting for the device.", ("priority",)
        )
        self.latent_lookups = registry.counter(
            "acpc_latent_lookups", "Look-ups of a frame or view in the latent cache.", ("result",)
        )
        self.fast_pools = registry.gauge(
            "acpc_compiled_pools",
            "Shapes of candidate pools whose rollout is served compiled or as a CUDA graph.",
        )
        self.build = Info("acpc_build", "Version of the running server.", registry=registry)
        self._add_jobs_and_stores(registry)

    def _add_jobs_and_stores(self, registry: _Registry) -> None:
        self.jobs = registry.gauge(
            "acpc_jobs",
            "Checkpoint jobs by state; finished ones since the server started.",
            ("state",),
        )
        self.checkpoint_load = registry.seconds(
            "acpc_checkpoint_load_seconds",
            "Time to read, check and place a checkpoint on the device.",
        )
        self.checkpoints_loaded = registry.gauge(
            "acpc_checkpoints_loaded", "Checkpoints on the device."
        )
        self.anchor_sets = registry.gauge("acpc_anchor_sets", "Anchor sets in the store.")
        self.anchor_bytes = registry.gauge(
            "acpc_anchor_store_bytes", "Bytes of the anchor sets and of unfinished uploads."
        )
        self.anchor_uploads = registry.gauge(
            "acpc_anchor_uploads", "Uploads of anchors under way, sets made from datasets included."
        )
        self.anchors_stored = registry.counter(
            "acpc_anchors_stored",
            "Anchors written to the store, by where they came from.",
            ("origin",),
        )
        for state in JOB_STATES:
            self.jobs.labels(state).set(0)

    def set_build(self, *, version: str, torch: str, device: str) -> None:
        """Fill the labels of ``acpc_build_info``."""
        self.build.info({"version": version, "torch": torch, "device": device})

    def serve(self, host: str, port: int) -> tuple[int, object]:
        """Serve ``/metrics`` over HTTP; returns the bound port and the server to shut down."""
        server, _thread = start_http_server(port, addr=host, registry=self.registry)
        return server.server_port, server
