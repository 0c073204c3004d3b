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
        counter, gauge, seconds = registry.counter, registry.gauge, registry.seconds
        self.build = Info("acpc_build", "Version of the running server.", registry=registry)
        self.rpc_started = counter("grpc_server_started", "RPCs started on the server.", RPC_LABELS)
        text = "RPCs completed on the server, by status code."
        self.rpc_handled = counter("grpc_server_handled", text, (*RPC_LABELS, "grpc_code"))
        text = "Time from the start of an RPC to its completion."
        self.rpc_handling = seconds("grpc_server_handling_seconds", text, RPC_LABELS)
        text = "Time a chunk of device work waited for the device."
        self.queue_wait = seconds("acpc_queue_wait_seconds", text, ("priority",))
        text = "Time a chunk of work held the device."
        self.compute = seconds("acpc_compute_seconds", text, ("primitive", "priority"))
        text = "Chunks of work waiting for the device."
        self.queue_depth = gauge("acpc_queue_depth", text, ("priority",))
        text = "Look-ups of a frame or view in the latent cache."
        self.latent_lookups = counter("acpc_latent_lookups", text, ("result",))
        text = "Shapes of candidate pools whose rollout is served compiled or as a CUDA graph."
        self.fast_pools = gauge("acpc_compiled_pools", text)
        text = "Checkpoint jobs by state; finished ones since the server started."
        self.jobs = gauge("acpc_jobs", text, ("state",))
        text = "Time to read, check and place a checkpoint on the device."
        self.checkpoint_load = seconds("acpc_checkpoint_load_seconds", text)
        self.checkpoints_loaded = gauge("acpc_checkpoints_loaded", "Checkpoints on the device.")
        self.anchor_sets = gauge("acpc_anchor_sets", "Anchor sets in the store.")
        text = "Bytes of the anchor sets and of unfinished uploads."
        self.anchor_bytes = gauge("acpc_anchor_store_bytes", text)
        text = "Uploads of anchors under way, sets made from datasets included."
        self.anchor_uploads = gauge("acpc_anchor_uploads", text)
        text = "Anchors written to the store, by where they came from."
        self.anchors_stored = counter("acpc_anchors_stored", text, ("origin",))
        for state in JOB_STATES:
            self.jobs.labels(state).set(0)

    def set_build(self, *, version: str, torch: str, device: str) -> None:
        """Fill the labels of ``acpc_build_info``."""
        self.build.info({"version": version, "torch": torch, "device": device})

    def serve(self, host: str, port: int) -> tuple[int, object]:
        """Serve ``/metrics`` over HTTP; returns the bound port and the server to shut down."""
        server, _thread = start_http_server(port, addr=host, registry=self.registry)
        return server.server_port, server
