"""Turns settings into the limits and options of the server's parts."""

from __future__ import annotations

import resource

import structlog
import torch

from acpc_server import rpc
from acpc_server.access import AccessControl, TlsFiles, is_local, require_guarded
from acpc_server.data.anchor_sets import AnchorLimits, AnchorStore
from acpc_server.engine import StepPrograms, private_folder
from acpc_server.errors import FailedPrecondition
from acpc_server.observe import Metrics
from acpc_server.settings import MEBIBYTE, Settings

log = structlog.get_logger("acpc.app")
# Calls under way on one connection; gRPC counts some that have just ended, and rejects further ones
# without a reason, so that limits of calls are to be met first.
CONNECTION_STREAMS = 1024
# Connections open at a time, and calls: waits, watches and streams too; and uploads of anchors.
CONNECTIONS, CALLS, UPLOADS = 8192, 1024, 8
# Interactive requests under way: calls that only read or wait find room while the device is full.
# With deadlines fewer are admitted, as those that would be late are rejected.
REQUESTS = CALLS // 4
# What messages may take: those being received, at least two; those that open streams may send, at
# least eight; and those of all calls that are being worked on, before another is read.
RECEIVING_BYTES, STREAMING_BYTES, HELD_BYTES = 512 * MEBIBYTE, 1024 * MEBIBYTE, 1024 * MEBIBYTE
# Anchors of a set, and how long an upload may go without a new shard.
SET_ANCHORS, UPLOAD_SECONDS = 100_000, 86_400.0
# Files a process opens at most, where the system sets no limit of its own.
OPEN_FILES = 65_536


def channel_options(settings: Settings) -> list[tuple[str, int]]:
    """Return gRPC's options for connections; the system spreads those of a shared port."""
    message = settings.max_message_mib * MEBIBYTE
    return [
        ("grpc.max_receive_message_length", message),
        ("grpc.max_send_message_length", message),
        # A compressed message is never inflated: one MiB of it may hold a GiB.
        ("grpc.compression_enabled_algorithms_bitset", 1),
        ("grpc.per_message_decompression", 0),
        ("grpc.so_reuseport", int(settings.share_port)),
        ("grpc.max_allowed_incoming_connections", max_connections()),
        ("grpc.max_concurrent_streams", CONNECTION_STREAMS),
        ("grpc.max_connection_idle_ms", 300_000),
        # After 30 s gRPC cancels a call that the door has not taken up, which on a busy machine is
        # what a burst of calls meets. The door has limits of its own, whose errors say more.
        ("grpc.server_max_unrequested_time_in_server", 3600),
        ("grpc.server_handshake_timeout_ms", 10_000),
        ("grpc.http2.settings_timeout", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        # A caller that disappeared must not keep its stream or its upload open.
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        # gRPC stops reading from a caller that leaves the answers to its pings unread. With strikes
        # it reads on, and keeps a GiB of frames that say that there were too many.
        ("grpc.http2.max_ping_strikes", 0),
    ]


def raise_open_files() -> None:
    """Raise the limit of open files: connections that never speak hold some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft not in (resource.RLIM_INFINITY, wanted):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def max_connections() -> int:
    """Return the connections open at a time: half of a process's files stay for jobs and probes."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTIONS if files == resource.RLIM_INFINITY else min(CONNECTIONS, files // 2)


def limits(settings: Settings) -> tuple[rpc.Limits, rpc.Limits]:
    """Make the limits of health checks, which nobody else can fill, and of all other calls."""
    message = settings.max_message_mib * MEBIBYTE
    places = {"calls": CALLS, "streams": max(8, STREAMING_BYTES // message), "uploads": UPLOADS}
    others = rpc.Limits(
        places,
        slots=max(2, RECEIVING_BYTES // message),
        message_bytes=message,
        held_bytes=HELD_BYTES,
    )
    # A silent check yields at once.
    health = rpc.Limits({"calls": CALLS}, limit=rpc.ReadLimit(2.0), grace=0.02)
    return health, others


def access_control(settings: Settings, metrics: Metrics) -> AccessControl:
    """Identify callers as the settings say; FailedPrecondition when anyone could use the server."""
    tls = None
    if settings.tls_certificate and settings.tls_key:
        tls = TlsFiles(settings.tls_certificate, settings.tls_key, settings.tls_client_ca)
    access = AccessControl(metrics, keys_file=settings.keys_file, tls=tls)
    require_guarded(
        settings.host,
        authenticated=access.authenticated,
        encrypted=tls is not None,
        insecure=settings.insecure,
    )
    return access


def programs(settings: Settings, device: torch.device, metrics: Metrics) -> StepPrograms:
    """Open the folder of compiled steps; without one that is private there are none."""
    folder = None
    if settings.compile != "off" and device.type == "cpu":
        try:
            folder = private_folder(settings.state_dir / "programs")
        except OSError as error:
            log.warning("programs_off", why=str(error), hint="remove the folder, or --compile off")
    return StepPrograms(metrics, folder, **({"after": 0.0} if settings.compile == "now" else {}))


def open_anchors(settings: Settings, metrics: Metrics) -> AnchorStore:
    """Open the anchor store; FailedPrecondition when the state folder cannot be made."""
    try:
        settings.state_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FailedPrecondition(
            f"cannot make the state folder {settings.state_dir} ({error.strerror}); choose "
            "another --state-dir"
        ) from error
    limits = AnchorLimits(
        store_bytes=settings.anchor_store_mib * MEBIBYTE,
        set_anchors=SET_ANCHORS,
        keep_seconds=settings.anchor_keep_days * 86_400,
        upload_seconds=UPLOAD_SECONDS,
    )
    return AnchorStore(settings.anchor_folder, limits, metrics)


def warn_of_exposure(settings: Settings) -> None:
    """Log what anyone on the network can do, which its owner may have forgotten."""
    if settings.insecure and not is_local(settings.host):
        log.warning("insecure", host=settings.host, hint="whoever reaches the port may call it")
    if settings.metrics_port >= 0 and not is_local(settings.metrics_host):
        hint = "whoever reaches this port can read /metrics, which names callers"
        log.warning("metrics_open", host=settings.metrics_host, hint=hint)
