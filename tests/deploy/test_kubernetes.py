"""The Kubernetes manifests are valid and agree with the server."""

from typing import Any

import kubernetes_validate
import pytest
import yaml
from acpc_server.settings import Settings
from deployment_files import DEPLOY, exported, read_yaml, selectors

FOLDER = DEPLOY / "kubernetes"
MONITORING = FOLDER / "monitoring"
CERTIFICATES = FOLDER / "certificates"
KUSTOMIZATION = read_yaml(FOLDER / "kustomization.yaml")
MANIFESTS = [
    manifest
    for name in KUSTOMIZATION["resources"]
    for manifest in yaml.safe_load_all((FOLDER / name).read_text())
]
BY_KIND: dict[str, dict[str, Any]] = {manifest["kind"]: manifest for manifest in MANIFESTS}
POD: dict[str, Any] = BY_KIND["Deployment"]["spec"]["template"]
CONTAINER: dict[str, Any] = POD["spec"]["containers"][0]
# Seconds between a stop and the end of the process, beyond the drain: jobs step aside, files close.
LEAVING = 20


def test_the_operator_scrapes_the_pods_under_the_job_that_the_rules_name() -> None:
    monitor = read_yaml(MONITORING / "monitor.yaml")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] in {port["name"] for port in CONTAINER["ports"]}
    assert monitor["spec"]["selector"]["matchLabels"].items() <= POD["metadata"]["labels"].items()
    labels = {rule["targetLabel"]: rule.get("replacement") for rule in endpoint["relabelings"]}
    scrape = read_yaml(DEPLOY / "prometheus" / "prometheus.yml")["scrape_configs"][0]
    assert labels["job"] == scrape["job_name"]
    assert "annotations" not in POD["metadata"]  # scraped twice, once under another job


def test_the_operator_loads_the_rules_that_prometheus_does() -> None:
    rule = read_yaml(MONITORING / "rules.yaml")
    assert rule["kind"] == "PrometheusRule"
    assert rule["spec"] == read_yaml(DEPLOY / "prometheus" / "rules.yml"), "make monitoring-rules"


@pytest.mark.parametrize(
    "manifest", MANIFESTS, ids=lambda m: f"{m['kind']}-{m['metadata']['name']}"
)
@pytest.mark.parametrize("version", ["1.27", "1.33"])
def test_manifests_are_valid(manifest: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(manifest, version, strict=True)


def test_ports_are_those_of_the_settings() -> None:
    ports = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}
    assert ports == {
        "grpc": Settings.model_fields["port"].default,
        "metrics": Settings.model_fields["metrics_port"].default,
    }
    probes = {"startupProbe": "/readyz", "readinessProbe": "/readyz", "livenessProbe": "/livez"}
    for probe, path in probes.items():
        assert CONTAINER[probe]["httpGet"] == {"path": path, "port": "metrics"}
    served = {port["name"]: port["targetPort"] for port in BY_KIND["Service"]["spec"]["ports"]}
    assert served == {name: name for name in ports}


def mounted(variable: str) -> tuple[dict[str, Any], str]:
    """The volume that a variable of the container points into, and the name of the file there."""
    path = next(entry["value"] for entry in CONTAINER["env"] if entry["name"] == variable)
    folder, name = path.rsplit("/", 1)
    mount = next(mount for mount in CONTAINER["volumeMounts"] if mount["mountPath"] == folder)
    return next(v for v in POD["spec"]["volumes"] if v["name"] == mount["name"]), name


def test_the_certificate_is_the_one_that_cert_manager_makes() -> None:
    certificates = {
        manifest["metadata"]["name"]: manifest["spec"]
        for path in CERTIFICATES.glob("*.yaml")
        for manifest in yaml.safe_load_all(path.read_text())
        if manifest["kind"] == "Certificate"
    }
    files = {"ACPC_TLS_CERTIFICATE": "tls.crt", "ACPC_TLS_KEY": "tls.key"}
    for variable, wanted in {**files, "ACPC_TLS_CLIENT_CA": "ca.crt"}.items():
        volume, name = mounted(variable)
        assert name == wanted
        assert volume["secret"]["secretName"] == certificates["acpc-server"]["secretName"]
        # The kubelet adds the group of fsGroup; a key that others can read is rejected.
        assert volume["secret"]["defaultMode"] == 0o400
    assert POD["spec"]["securityContext"]["fsGroup"] == 10001


def test_a_pod_has_time_to_drain() -> None:
    drain = next(e["value"] for e in CONTAINER["env"] if e["name"] == "ACPC_DRAIN_SECONDS")
    assert POD["spec"]["terminationGracePeriodSeconds"] >= int(drain) + LEAVING


def test_the_autoscaler_asks_for_the_queue_that_the_server_reports() -> None:
    (metric,) = BY_KIND["HorizontalPodAutoscaler"]["spec"]["metrics"]
    (rule,) = read_yaml(DEPLOY / "prometheus" / "adapter.yml")["rules"]["external"]
    assert metric["external"]["metric"]["name"] == rule["name"]["as"]
    query = rule["metricsQuery"].replace(", <<.LabelMatchers>>", "")
    assert query == f"max({rule['seriesQuery']})"
    ((name, matched),) = selectors(rule["seriesQuery"])
    assert set(matched) - {"job"} <= exported()[name]
    assert matched == {"job": "acpc", "state": "queued"}
