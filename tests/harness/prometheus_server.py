"""A real Prometheus and a real Alertmanager on the files that the project ships."""

from __future__ import annotations

import json
import re
import shutil
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import processes
import yaml
from server_process import free_port
from waiting import wait_until

SHIPPED = Path(__file__).parents[2] / "deploy" / "prometheus"
# Debian's names first.
NAMES = (("prometheus",), ("prometheus-alertmanager", "alertmanager"))
MINUTE = 2


def find_programs() -> list[str]:
    """Prometheus and Alertmanager; empty when one is missing."""
    found = [next(filter(None, map(shutil.which, names)), "") for names in NAMES]
    return found if all(found) else []


def faster(rules: str) -> str:
    """The rules on a clock that goes thirty times as fast: a minute becomes two seconds.

    Windows, offsets and ``for`` shrink alike; thresholds stay, so an alert means what it means.
    """
    pattern = r"(?<=\[)(\d+)m(?=\])|(?<=offset )(\d+)m\b|(?<=for: )(\d+)m\b"
    return re.sub(pattern, lambda found: f"{MINUTE * int(found[0][:-1])}s", rules)


class Monitoring:
    """Prometheus and Alertmanager, asked over HTTP.

    Attributes:
        rules: The rules as they were given to Prometheus.
    """

    def __init__(self, folder: Path, targets: dict[str, str]) -> None:
        self._ports = free_port(), free_port()
        self.rules = faster((SHIPPED / "rules.yml").read_text())
        config = yaml.safe_load((SHIPPED / "prometheus.yml").read_text())
        (scrape,) = config["scrape_configs"]
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["scrape_configs"] = [
            {**scrape, "job_name": job, "static_configs": [{"targets": [target]}]}
            for job, target in targets.items()
        ]
        (told,) = config["alerting"]["alertmanagers"]
        told["static_configs"] = [{"targets": [f"127.0.0.1:{self._ports[1]}"]}]
        folder.mkdir()
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        (folder / "rules.yml").write_text(self.rules)
        self._folder = folder

    @contextmanager
    def running(self) -> Iterator[Monitoring]:
        """Both programs, once they are ready."""
        prometheus, alertmanager = find_programs()
        address, told = (f"--web.listen-address=127.0.0.1:{port}" for port in self._ports)
        data = f"--storage.tsdb.path={self._folder / 'data'}"
        given = [prometheus, f"--config.file={self._folder / 'prometheus.yml'}", data, address]
        manager = [alertmanager, f"--config.file={SHIPPED / 'alertmanager.yml'}", told]
        manager += [f"--storage.path={self._folder / 'told'}", "--cluster.listen-address="]
        with (self._folder / "log").open("wb") as log:
            quiet = {"stdout": log, "stderr": log, "cwd": self._folder}
            with processes.running(manager, **quiet), processes.running(given, **quiet):
                for port in self._ports:
                    wait_until(lambda port=port: _answers(port), "it never got ready", pause=0.1)
                yield self

    def ask(self, path: str, **parameters: object) -> Any:  # noqa: ANN401
        """What Prometheus answers."""
        query = urllib.parse.urlencode(parameters)
        url = f"http://127.0.0.1:{self._ports[0]}/api/v1/{path}?{query}"
        with urllib.request.urlopen(url) as page:
            return json.load(page)["data"]

    def value(self, query: str) -> float | None:
        """The value of a query with one result; None without any."""
        found = self.ask("query", query=query)["result"]
        return float(found[0]["value"][1]) if found else None

    def firing(self) -> set[str]:
        """Names of the alerts that fire."""
        alerts = self.ask("alerts")["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    def told(self) -> set[str]:
        """Names of the alerts that Alertmanager shows."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._ports[1]}/api/v2/alerts") as page:
            return {alert["labels"]["alertname"] for alert in json.load(page)}


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready") as page:
            return page.status == 200
    except OSError:
        return False
