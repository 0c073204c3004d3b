"""Reads the files of a deployment, for the tests that compare them with the server."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from acpc.contract import NUMBERS
from acpc_server.observe import Metrics
from prometheus_client import generate_latest
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
GUIDE = {page.name: page.read_text() for page in sorted((ROOT / "docs/operate").glob("*.md"))}
OVERRIDES = tuple(DEPLOY / f"compose.{name}.yml" for name in ("gpu", "access", "traces", "devices"))
COMPOSE = (ROOT / "docker-compose.yml", *OVERRIDES)
# Compose's mark of a list that replaces the one of the file before.
yaml.SafeLoader.add_constructor("!override", lambda loader, node: loader.construct_sequence(node))
# Names of PromQL that are no series.
WORDS = {"by", "without", "on", "ignoring", "group_left", "group_right", "and", "or", "unless"}
WORDS |= {"offset", "bool"}


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


@cache
def rules() -> list[dict[str, Any]]:
    groups = read_yaml(DEPLOY / "prometheus" / "rules.yml")["groups"]
    return [rule for group in groups for rule in group["rules"]]


def recorded() -> set[str]:
    return {rule["record"] for rule in rules() if "record" in rule}


def alerts() -> set[str]:
    return {rule["alert"] for rule in rules() if "alert" in rule}


@cache
def dashboards() -> list[dict[str, Any]]:
    folder = DEPLOY / "grafana" / "dashboards"
    return [json.loads(path.read_text()) for path in sorted(folder.iterdir())]


def panels(*shown: dict[str, Any]) -> list[dict[str, Any]]:
    """The panels of some dashboards, of all when none is named."""
    every = [panel for dashboard in shown or dashboards() for panel in dashboard["panels"]]
    return [panel for panel in every if panel["type"] != "row"]


def dashboard_queries() -> list[str]:
    queries = [target["expr"] for panel in panels() for target in panel["targets"]]
    notes = [note for dashboard in dashboards() for note in dashboard["annotations"]["list"]]
    return queries + [note["expr"] for note in notes]


@cache
def exported() -> dict[str, frozenset[str]]:
    """Every sample the server exports, and its labels, read back from the exposition."""
    metrics = Metrics()
    metrics.record_verdict("model", "blur:15", "passed", dict.fromkeys(NUMBERS, 1.0))
    for metric in vars(metrics).values():
        if isinstance(metric, MetricWrapperBase) and metric._labelnames:
            metric.labels(*metric._labelnames)
    metrics.set_build(version="1", torch="2", device="cpu")
    text = generate_latest(metrics.registry).decode()
    samples: dict[str, frozenset[str]] = {}
    for family in text_string_to_metric_families(text):
        assert family.samples, f"give {family.name} a value above"
        for sample in family.samples:
            known = samples.get(sample.name, frozenset())
            samples[sample.name] = known | frozenset(sample.labels)
    return samples


def selectors(query: str) -> list[tuple[str, dict[str, str]]]:
    """The series a PromQL query selects, each with the labels it matches and their values."""
    found = []
    rest = _without_groupings(query)
    for name, inside in re.findall(r"([a-zA-Z_:][\w:]*)?\s*\{([^}]*)\}", rest):
        matchers = dict(re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"', inside))
        pattern = matchers.pop("__name__", "")
        names = [name] if name else [each for each in exported() if re.fullmatch(pattern, each)]
        found += [(each, matchers) for each in names]
    rest = re.sub(r"([a-zA-Z_:][\w:]*)?\s*\{[^}]*\}|\[[^\]]*\]", " ", rest)
    bare = re.findall(r"\b([a-zA-Z_:][\w:]*)\b(?!\s*\()", rest)
    return found + [(name, {}) for name in bare if name not in WORDS]


def grouped_labels(query: str) -> set[str]:
    """Labels in ``by (...)``, ``ignoring (...)`` and the like."""
    lists = re.findall(_GROUPING, query)
    found = {label.strip() for _, names in lists for label in names.split(",") if label.strip()}
    return found - {"__name__"}


_GROUPING = r"\b(by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)"


def _without_groupings(query: str) -> str:
    return re.sub(_GROUPING, " ", query)
