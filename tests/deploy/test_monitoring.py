"""Rules, dashboard and guide speak of series the server exports, and of all of them."""

import re
import shutil

import grpc
import processes
import pytest
from acpc.v1 import diagnostic_service_pb2
from acpc_server.observe.metrics import JOB_STATES, OUTCOMES
from acpc_server.scheduling import Priority
from deployment_files import (
    DEPLOY,
    GUIDE,
    alerts,
    dashboard_queries,
    exported,
    grouped_labels,
    read_yaml,
    recorded,
    rules,
    selectors,
)
from programs import missing

SCRAPED = {"job", "instance"}
# Series Prometheus makes itself.
BUILT_IN = {"up": SCRAPED, "ALERTS": {"alertname", "alertstate", "severity", "job"}}
VALUES = {
    "state": set(JOB_STATES),
    "priority": {priority.name.lower() for priority in Priority},
    "grpc_code": {code.name for code in grpc.StatusCode},
    "grpc_type": {"unary", "server_stream", "client_stream", "bidi_stream"},
    "alertstate": {"firing", "pending"},
    "job": {"acpc"},
    "kind": {"score_checkpoint", "run_study"},
    "outcome": {*OUTCOMES.values(), "late", "expired", "rejected", "certified", "passed"},
}
QUERIES = [rule["expr"] for rule in rules()] + dashboard_queries()


def _labels(name: str) -> frozenset[str] | None:
    """Labels a series may be matched by; None when there is no such series."""
    if name in exported():
        return exported()[name] | SCRAPED
    if name in BUILT_IN:
        return frozenset(BUILT_IN[name])
    if name in recorded():
        rule = next(rule for rule in rules() if rule.get("record") == name)
        return frozenset(grouped_labels(rule["expr"]))
    return None


def test_every_query_selects_series_the_server_exports() -> None:
    for query in QUERIES:
        found = selectors(query)
        assert found or query == "vector(0)"
        available: set[str] = set()
        for name, matchers in found:
            labels = _labels(name)
            assert labels is not None, f"{name} is no series"
            assert set(matchers) <= labels, f"{name} has no label {set(matchers) - labels}"
            available |= labels
        assert grouped_labels(query) <= available, query


def test_every_label_value_in_a_query_can_occur() -> None:
    services = diagnostic_service_pb2.DESCRIPTOR.services_by_name.values()
    for _, matchers in (selected for query in QUERIES for selected in selectors(query)):
        for label, pattern in matchers.items():
            if label in VALUES and "$" not in pattern:
                assert set(pattern.split("|")) <= VALUES[label]
            if label == "grpc_service" and pattern.startswith("acpc"):
                assert pattern in {service.full_name for service in services}


def test_every_series_of_the_server_is_on_a_dashboard() -> None:
    """Nothing is exported that no operator looks at; the library's own series are a few."""
    shown = {_family(name) for query in dashboard_queries() for name, _ in selectors(query)}
    assert {_family(name) for name in exported() if _ours(name)} <= shown


def test_rates_are_of_counters() -> None:
    """Of a gauge that falls they show a growth that never was."""
    for name in re.findall(r"\b(?:rate|increase)\((\w+)", "\n".join(QUERIES)):
        assert name.endswith(("_total", "_bucket", "_sum", "_count")), name


def test_latencies_are_of_calls_that_do_not_wait_on_purpose() -> None:
    for query in dashboard_queries():
        if "grpc_server_handling_seconds_bucket" in query:
            (_, matchers), *_ = selectors(query)
            assert matchers["grpc_type"] == "unary"  # no watches, no life of a stream
            diagnostic = matchers["grpc_service"] == "acpc.v1.DiagnosticService"
            assert diagnostic or matchers["grpc_method"] == "WaitOperation"
            assert diagnostic or 'grpc_service!~"grpc[.].*"' in query  # nor probes


def test_every_query_names_the_job() -> None:
    """Another service has series of the same names, which must not count."""
    for query in QUERIES:
        jobs = {matchers.get("job") for _, matchers in selectors(query)}
        assert jobs <= {"acpc", "$job"}, query
        assert len(jobs) == 1 or query == "vector(0)", query


def _ours(name: str) -> bool:
    return not name.startswith(("process_", "python_"))


def _family(name: str) -> str:
    return re.sub(r"_(bucket|sum|count)$", "", name)


def test_every_alert_has_a_runbook_in_the_guide() -> None:
    """The anchor is the one that a heading of the alert's name has."""
    headings = re.findall(r"^### (Acpc\w+)$", GUIDE["recover.md"], re.MULTILINE)
    found = {f"docs/operate/recover.md#{name.lower()}" for name in headings}
    assert {rule["annotations"]["runbook_url"] for rule in rules() if "alert" in rule} == found
    assert set(headings) == alerts()


def test_every_alert_has_a_unit_test_for_promtool() -> None:
    cases = read_yaml(DEPLOY / "prometheus" / "rules_test.yml")["tests"]
    tested = [check for case in cases for check in case.get("alert_rule_test", [])]
    assert {check["alertname"] for check in tested if check["exp_alerts"]} == alerts()


@pytest.mark.nightly
@pytest.mark.parametrize(
    "command",
    [
        ["promtool", "check", "config", "prometheus.yml"],
        ["promtool", "test", "rules", "rules_test.yml"],
        ["amtool", "check-config", "alertmanager.yml"],
    ],
    ids=" ".join,
)
def test_the_tools_accept_the_files_and_the_rules_fire_as_written(command: list[str]) -> None:
    if shutil.which(command[0]) is None:
        missing("prometheus", "prometheus prometheus-alertmanager")
    processes.run(command, cwd=DEPLOY / "prometheus")
