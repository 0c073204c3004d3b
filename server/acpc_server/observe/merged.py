"""The series of several processes as one, each with the name of the process it comes from."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

log = structlog.get_logger("acpc.http")
# A worker that takes longer has no series this time.
FETCH_SECONDS = 5.0


class ObservedWorker(Protocol):
    """A worker whose series are read on ``metrics_port`` of this host; None while it has none."""

    name: str
    ready: bool
    starts: int
    metrics_port: int | None


class WorkerSeries(Collector):
    """Reads every worker's series whenever it is collected, and adds the label ``worker``.

    ``token`` gives the bearer token of their ``/metrics``; None: they need none.
    """

    def __init__(
        self, workers: Sequence[ObservedWorker], token: Callable[[], str] | None = None
    ) -> None:
        self._workers = workers
        self._token = token

    def describe(self) -> Iterable[Metric]:
        """Return the series about workers that they cannot count themselves."""
        text = "1 while a worker takes calls, 0 otherwise."
        up = GaugeMetricFamily("acpc_worker_up", text, labels=["worker"])
        text = "Processes started for a worker, the first one included."
        starts = CounterMetricFamily("acpc_worker_starts", text, labels=["worker"])
        for worker in self._workers:
            up.add_metric([worker.name], float(worker.ready))
            starts.add_metric([worker.name], worker.starts)
        return [up, starts]

    def collect(self) -> Iterable[Metric]:
        """These, and the series of every worker that answers."""
        ports = {one.name: one.metrics_port for one in self._workers if one.metrics_port}
        found: dict[str, Metric] = {}
        with ThreadPoolExecutor(max(1, len(ports)), thread_name_prefix="fetch") as pool:
            texts = dict(zip(ports, pool.map(self._fetched, ports, ports.values()), strict=True))
        for worker, text in texts.items():
            for family in text_string_to_metric_families(text):
                merged = found.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                merged.samples += [
                    sample._replace(labels={**sample.labels, "worker": worker})
                    for sample in family.samples
                ]
        return [*self.describe(), *found.values()]

    def _fetched(self, worker: str, port: int) -> str:
        headers: dict[str, str] = {}
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=FETCH_SECONDS)
        try:
            if self._token is not None:
                headers["Authorization"] = f"Bearer {self._token()}"
            connection.request("GET", "/metrics", headers=headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        except (OSError, http.client.HTTPException) as error:  # it may have died a moment ago
            log.warning("worker_metrics_missing", of=worker, cause=str(error))
            return ""
        finally:
            connection.close()
        return text if answer.status == http.HTTPStatus.OK else ""
