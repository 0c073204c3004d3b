"""The series of several processes as one, each with the name of the process it comes from."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

import structlog
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

log = structlog.get_logger("acpc.http")
# A worker that takes longer has no series this time.
FETCH_SECONDS = 5.0
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


class WorkerSeries(Collector):
    """Asks every worker for its series when it is asked, and adds the label ``worker``.

    Args:
        ports: Ports of the workers' own ``/metrics`` on this host, by the workers' names.
        token: Gives the bearer token they ask for; None: they ask for none.
    """

    def __init__(
        self, ports: Callable[[], Mapping[str, int]], token: Callable[[], str] | None = None
    ) -> None:
        self._ports = ports
        self._token = token

    def describe(self) -> Iterable[Metric]:
        """Nothing: what there is, the workers know."""
        return []

    def collect(self) -> Iterable[Metric]:
        """The series of every worker that answers."""
        ports = self._ports()
        found: dict[str, Metric] = {}
        with ThreadPoolExecutor(max(1, len(ports)), thread_name_prefix="fetch") as pool:
            texts = dict(zip(ports, pool.map(self._fetched, ports, ports.values()), strict=True))
        for worker, text in texts.items():
            for family in _families(text):
                merged = found.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                merged.samples += [
                    sample._replace(labels={**sample.labels, "worker": worker})
                    for sample in family.samples
                ]
        return found.values()

    def _fetched(self, worker: str, port: int) -> str:
        headers = {"Accept": OPENMETRICS}
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


def _families(text: str) -> Iterable[Metric]:
    return text_string_to_metric_families(text) if text else ()  # type: ignore[no-untyped-call]
