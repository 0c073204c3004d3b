"""Every Prometheus series the server exports, in one place.

The ``grpc_server_*`` names and labels are those of the gRPC ecosystem's Prometheus middleware, so
that existing dashboards work unchanged.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.exposition import start_http_server

# From a quarter of a millisecond, the floor of a local call, to a minute.
LATENCY_BUCKETS = (
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
)
RPC_LABELS = ("grpc_type", "grpc_service", "grpc_method")
JOB_STATES = ("queued", "running", "succeeded", "failed", "cancelled")


class Metrics:
    """The server's series on a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.rpc_started = Counter(
            "grpc_server_started",
            "RPCs started on the server.",
            RPC_LABELS,
            registry=self.registry,
        )
        self.rpc_handled = Counter(
            "grpc_server_handled",
            "RPCs completed on the server, by status code.",
            (*RPC_LABELS, "grpc_code"),
            registry=self.registry,
        )
        self.rpc_handling = Histogram(
            "grpc_server_handling_seconds",
            "Time from the start of an RPC to its completion.",
            RPC_LABELS,
            buckets=LATENCY_BUCKETS,
            registry=self.registry,
        )
        self.queue_wait = Histogram(
            "acpc_queue_wait_seconds",
            "Time a chunk of device work waited for the device.",
            ("priority",),
            buckets=LATENCY_BUCKETS,
            registry=self.registry,
        )
        self.compute = Histogram(
            "acpc_compute_seconds",
            "Time a chunk of work held the device.",
            ("primitive", "priority"),
            buckets=LATENCY_BUCKETS,
            registry=self.registry,
        )
        self.queue_depth = Gauge(
            "acpc_queue_depth",
            "Chunks of work waiting for the device.",
            ("priority",),
            registry=self.registry,
        )
        self.latent_lookups = Counter(
            "acpc_latent_lookups",
            "Look-ups of a frame or view in the latent cache.",
            ("result",),
            registry=self.registry,
        )
        self.fast_pools = Gauge(
            "acpc_compiled_pools",
            "Shapes of candidate pools whose rollout is served compiled or as a CUDA graph.",
            registry=self.registry,
        )
        self.jobs = Gauge(
            "acpc_jobs",
            "Checkpoint jobs by state; finished ones since the server started.",
            ("state",),
            registry=self.registry,
        )
        self.checkpoint_load = Histogram(
            "acpc_checkpoint_load_seconds",
            "Time to read, check and place a checkpoint on the device.",
            buckets=LATENCY_BUCKETS,
            registry=self.registry,
        )
        self.checkpoints_loaded = Gauge(
            "acpc_checkpoints_loaded",
            "Checkpoints on the device.",
            registry=self.registry,
        )
        self.anchor_sets = Gauge(
            "acpc_anchor_sets",
            "Anchor sets in the store.",
            registry=self.registry,
        )
        self.anchor_bytes = Gauge(
            "acpc_anchor_store_bytes",
            "Bytes of the anchor sets and of unfinished uploads.",
            registry=self.registry,
        )
        self.anchor_uploads = Gauge(
            "acpc_anchor_uploads",
            "Uploads of anchors under way, sets made from datasets included.",
            registry=self.registry,
        )
        self.anchors_stored = Counter(
            "acpc_anchors_stored",
            "Anchors written to the store, by where they came from.",
            ("origin",),
            registry=self.registry,
        )
        self.build = Info("acpc_build", "Version of the running server.", registry=self.registry)
        for state in JOB_STATES:
            self.jobs.labels(state).set(0)

    def set_build(self, *, version: str, torch: str, device: str) -> None:
        """Fill the labels of ``acpc_build_info``."""
        self.build.info({"version": version, "torch": torch, "device": device})

    def serve(self, host: str, port: int) -> tuple[int, object]:
        """Serve ``/metrics`` over HTTP; returns the bound port and the server to shut down."""
        server, _thread = start_http_server(port, addr=host, registry=self.registry)
        return server.server_port, server
