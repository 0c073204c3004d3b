"""Builds a server from its settings, starts it and stops it: a process from start to exit."""

from __future__ import annotations

import ctypes
import gc
import logging
import math
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

import structlog
import torch
from google.protobuf import descriptor_pool

from acpc_server import options, rpc
from acpc_server.data import DatasetStore
from acpc_server.encoding import CODE_VERSION, AnchorReaders
from acpc_server.engine import (
    CheckpointCache,
    DeviceClient,
    choose_device,
    device_name,
    report_memory,
    require_device,
)
from acpc_server.errors import AcpcError, DeviceFailed, FailedPrecondition
from acpc_server.interactive import PairComparer, Planner
from acpc_server.jobs import JobOptions, JobService, LeaseTerms
from acpc_server.models import CheckpointLimits
from acpc_server.observe import (
    HttpEndpoint,
    Metrics,
    ServerHealth,
    configure_logs,
    start_traces,
    stop_traces,
)
from acpc_server.scheduling import Admission
from acpc_server.scoring import ScoreJobKind
from acpc_server.settings import MEBIBYTE, Settings
from acpc_server.studies import StudyJobKind
from acpc_server.watchdog import DEVICE_FAILED, Watchdog

log = structlog.get_logger("acpc.app")
SERVICES = (
    *(
        f"acpc.v1.{name}Service"
        for name in ("Diagnostic", "Anchor", "Scoring", "Study", "Checkpoint", "Dataset")
    ),
    "google.longrunning.Operations",
)
FAILED_DRAIN_SECONDS = 1.0
# Threads for calls that would keep the event loop; few for those that only read the record of jobs,
# of which one caller may ask for thousands.
RPC_THREADS, RECORD_THREADS = 16, 2
# What one interactive request may have encoded, views included, and predicted steps of one pool or
# paired CEM run.
MAX_FRAMES, MAX_PREDICTIONS = 1536, 2**21
# Latents of recent requests, as a share of the bytes for weights: wide ones come with large models.
LATENT_SHARE = 1 / 16
HEALTH = "grpc.health.v1.Health"
TIDY_SECONDS = 3600.0
# A thread that has the interpreter gives it up to another so soon. By default it is 5 ms, for which
# each operation of a request's device call may wait for a thread of a job.
SWITCH_SECONDS = 0.0005
# The allocator keeps what is smaller for itself, in each of its arenas, once it is freed; it gives
# larger blocks, as frames of a shard, back to the system.
RETURNED_BYTES = 2**24
_M_MMAP_THRESHOLD = -3  # of malloc.h
# A handler interrupts the main thread anywhere, also while it begins to wait: this one's put may.
Signals = queue.SimpleQueue[None]


class Server:
    """The service of one process.

    Its ``port`` is known after :meth:`start`; its ``metrics_port`` is None when it is off.
    """

    def __init__(
        self, settings: Settings, on_leave: Callable[[int], None] = lambda _: None
    ) -> None:
        """Build every part; nothing listens yet.

        ``on_leave`` is called with an exit code when this server must stop by itself.
        """
        self._on_leave = on_leave
        self._settings = settings
        self.port = 0
        self.metrics_port: int | None = None
        self._device = choose_device(settings.device)
        name = device_name(self._device)
        self.metrics = Metrics()
        self.access = options.access_control(settings, self.metrics)
        self.metrics.set_build(version=CODE_VERSION, torch=torch.__version__, device=name)
        self._admission = Admission(options.REQUESTS)
        budget = settings.checkpoint_budget_mib * MEBIBYTE
        self._engine = self._start_engine(int(LATENT_SHARE * budget))
        self._checkpoints = CheckpointCache(
            settings.checkpoint_root,
            self._device,
            self.metrics,
            limits=CheckpointLimits(weights_bytes=budget // 2),
            budget_bytes=budget,
        )
        self._datasets = DatasetStore(settings.dataset_root)
        self._anchors = options.open_anchors(settings, self.metrics)
        readers = AnchorReaders(self._datasets, self._anchors)
        scoring = ScoreJobKind(self._engine, self._checkpoints, readers)
        studies = StudyJobKind(self._engine, self._checkpoints, readers)
        self._stopping = threading.Event()
        self._jobs = self._open_jobs(scoring, studies)
        self.health = ServerHealth(self._checkpoints.loaded)
        writer = rpc.OperationWriter([scoring, studies])
        self._http = HttpEndpoint(
            self.metrics.registry,
            self.health,
            rpc.Overview(self._jobs, writer, self.access, f"acpc {CODE_VERSION} on {name}"),
        )
        self.metrics.ready.set_function(lambda: self.health.ready)
        self._door = self._build(scoring, studies, readers, writer)
        self._watchdog = Watchdog(
            lambda: self._engine.owner.call, settings.device_call_seconds, self.health, self._fail
        )

    def _start_engine(self, latent_bytes: int) -> DeviceClient:
        settings = self._settings
        report_memory(self._device, self.metrics)
        engine = DeviceClient(
            self._device,
            self.metrics,
            admission=self._admission,
            merge=settings.merge_requests,
            latent_bytes=latent_bytes,
            threads=torch.get_num_threads(),
            programs=options.programs(settings, self._device, self.metrics),
            on_failed=lambda why: self._watchdog.fail(why),  # noqa: PLW0108 - it is made later
        )
        # The device's thread keeps its count. Any other thread that made a team of its own would
        # have OpenMP put all teams to sleep between operations, which costs a quarter of the time.
        torch.set_num_threads(1)
        return engine

    def _open_jobs(self, scoring: ScoreJobKind, studies: StudyJobKind) -> JobService:
        settings = self._settings
        lease = settings.job_lease_seconds
        given = JobOptions(
            database_url=settings.database_url,
            state_dir=settings.state_dir,
            concurrency=settings.job_concurrency,
            terms=LeaseTerms(lease / 4, lease),
            retention_days=settings.job_retention_days,
            about={"version": CODE_VERSION, "device": device_name(self._device)},
        )
        return JobService([scoring, studies], self.metrics, given)

    def _fail(self) -> None:
        """Withdraw jobs and tell callers, before the process ends; its health is known already."""
        self._jobs.drain()
        self._followers.close()
        self._on_leave(DEVICE_FAILED)
        self._engine.owner.fail(self.health.sickness)

    def _build(
        self,
        scoring: ScoreJobKind,
        studies: StudyJobKind,
        readers: AnchorReaders,
        writer: rpc.OperationWriter,
    ) -> rpc.Door:
        settings = self._settings
        self._comparer = PairComparer(self._engine, MAX_FRAMES)
        planner = Planner(self._engine, max_frames=MAX_FRAMES, max_predictions=MAX_PREDICTIONS)
        diagnostic = rpc.DiagnosticServicer(
            self._engine, self._admission, self._checkpoints, self._comparer, planner
        )
        self._followers = rpc.JobFollowers(self._jobs)
        kinds = scoring, studies, self._checkpoints, readers
        jobs = rpc.JobServicer(self._jobs, writer, self._followers, *kinds)
        anchors = rpc.AnchorServicer(self._anchors, self._datasets, self._jobs.need)
        catalog = rpc.CatalogServicer(self._checkpoints, self._datasets)
        probes = rpc.HealthService(self.health, SERVICES)
        described = rpc.Reflection((*SERVICES, HEALTH))
        identify = self.access.identify if self.access.authenticated else None
        door = rpc.Door(self.metrics, identify, options.channel_options(settings))
        find = descriptor_pool.Default().FindServiceByName
        (health, others), workers = options.limits(settings), rpc.Workers(RPC_THREADS)
        records = rpc.Workers(RECORD_THREADS)
        check = self._admission.check
        door.add(find("acpc.v1.DiagnosticService"), diagnostic, others, workers, check)
        door.add(find("google.longrunning.Operations"), jobs, others, records)
        door.add(find(HEALTH), probes, health, workers)
        for name, servicer in {
            "acpc.v1.AnchorService": anchors,
            "acpc.v1.ScoringService": jobs,
            "acpc.v1.StudyService": jobs,
            "acpc.v1.CheckpointService": catalog,
            "acpc.v1.DatasetService": catalog,
            **dict.fromkeys(described.own, described),
        }.items():
            door.add(find(name), servicer, others, workers)
        return door

    def start(self) -> None:
        """Resume jobs, then listen.

        Raises FailedPrecondition: The job record, a port or the TLS files cannot be used;
        DeviceFailed: The device fails its self-test.
        """
        settings = self._settings
        start_traces()
        options.warn_of_exposure(settings)
        require_device(self._device)
        self._preload([name for name in settings.preload.split(",") if name])
        self._jobs.start()
        threading.Thread(target=self._tidy, name="tidy", daemon=True).start()
        if settings.metrics_port >= 0:
            try:
                self.metrics_port = self._http.start(settings.metrics_host, settings.metrics_port)
            except OSError as error:
                where = f"{settings.metrics_host}:{settings.metrics_port}"
                raise FailedPrecondition(
                    f"cannot serve /metrics on {where} ({error.strerror}); choose another "
                    "--metrics-port, 0 picks a free one"
                ) from error
        self.port = self._listen()
        self._door.start()
        self._watchdog.start()
        self.health.clear("starting")
        log.info(
            "serving",
            host=settings.host,
            port=self.port,
            metrics_port=self.metrics_port,
            device=device_name(self._device),
            version=CODE_VERSION,
        )

    def _listen(self) -> int:
        host = self._settings.host
        socket = host.startswith("unix:")
        address = host if socket else f"{host}:{self._settings.port}"
        try:
            return self._door.bind(address, self.access.port_credentials())
        except RuntimeError as error:
            other = "--host" if socket else "--port, 0 picks a free one"
            raise FailedPrecondition(
                f"cannot listen on {address} ({error}); choose another {other}"
            ) from error

    def _preload(self, names: Sequence[str]) -> None:
        """Load checkpoints and keep them, each with its first call behind it.

        Raises FailedPrecondition for one that cannot be.
        """
        for name in names:
            try:
                self._checkpoints.pin(loaded := self._checkpoints.get(name))
                self._comparer.warm(loaded)
            except AcpcError as error:
                raise FailedPrecondition(f"--preload {name}: {error.message}") from error

    def _tidy(self) -> None:
        """Remove expired anchor sets and uploads, at once and every hour."""
        while True:
            try:
                self._anchors.tidy(self._jobs.need)
            except Exception:  # the job record may be away for a while: try again in an hour
                log.exception("tidy_failed")
            if self._stopping.wait(TIDY_SECONDS):
                return

    def stop(self, hurry: Signals | None = None) -> None:
        """Leave: health says NOT_SERVING, and calls are taken until load balancers know: lame duck.

        Then the port closes, open calls finish, and running jobs stay on record. What comes into
        ``hurry`` ends the lame duck. There is none after a failure, when calls get just a moment to
        read why.
        """
        self.health.block("draining", "the server stops")
        if self.health.live:
            log.info("lame_duck", seconds=self._settings.lame_duck_seconds)
            wait_for_signal(hurry or Signals(), self._settings.lame_duck_seconds)
        seconds = self._settings.drain_seconds if self.health.live else FAILED_DRAIN_SECONDS
        log.info("draining", seconds=seconds)
        self._watchdog.stop()
        self._jobs.drain()
        self._followers.close()
        self._stopping.set()
        self._door.stop(seconds)
        self._http.stop()
        self._jobs.stop()
        self._engine.close()
        stop_traces()
        log.info("stopped")


def wait_for_signal(signals: Signals, seconds: float = math.inf) -> None:
    """Wait in the main thread until a signal's handler puts into the queue, or for ``seconds``.

    Looks every second: of two signals at once the second may reach another thread.
    """
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        with suppress(queue.Empty):
            signals.get(timeout=min(left, 1.0))
            return


def serve_until_stopped(settings: Settings) -> NoReturn:
    """Serve until a signal or a failure ends it; exits the process, with 70 for a failed device.

    Raises FailedPrecondition: The server cannot be built or started.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    options.raise_open_files()
    with suppress(OSError, AttributeError):  # of glibc; others may not
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, RETURNED_BYTES)
    configure_logs(settings.log_level, "console" if sys.stderr.isatty() else "json")
    signals = Signals()  # the first stops the server, the second hurries it
    codes: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):  # also while the server starts
        signal.signal(number, lambda *_: signals.put(None))

    def leave(code: int) -> None:
        codes.append(code)
        signals.put(None)

    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a hang-up never ends the process
    server = Server(settings, on_leave=leave)
    try:
        server.start()
    except DeviceFailed as error:
        log.error("failed", why=error.message, exit_code=DEVICE_FAILED)
        sys.exit(DEVICE_FAILED)
    # These objects stay; scanning them for garbage later would pause all calls.
    gc.collect()
    gc.freeze()
    wait_for_signal(signals)
    server.stop(signals)
    # A job's thread may be inside a device call, which cannot be interrupted. Its shards are on
    # record and it resumes at the next start, so exit without waiting for it.
    sys.stdout.flush()
    logging.shutdown()
    os._exit(codes[0] if codes else 0)
