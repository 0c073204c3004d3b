"""The dashboard is whole: Grafana loads it as it stands, and an operator can read it."""

import re
from typing import Any

import pytest
from deployment_files import DEPLOY, dashboards, panels, read_yaml

EACH = pytest.mark.parametrize("dashboard", dashboards(), ids=lambda shown: shown["uid"])


@EACH
def test_every_variable_in_a_query_is_defined(dashboard: dict[str, Any]) -> None:
    names = {variable["name"] for variable in dashboard["templating"]["list"]}
    assert {"datasource", "job", "instance"} <= names
    text = str(panels(dashboard))
    assert set(re.findall(r"\$\{?([a-z]\w*)", text)) == names


@EACH
def test_the_job_is_the_one_of_the_rules_until_another_is_chosen(dashboard: dict[str, Any]) -> None:
    by_name = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    scrape = read_yaml(DEPLOY / "prometheus" / "prometheus.yml")["scrape_configs"][0]
    assert by_name.pop("job")["current"]["value"] == scrape["job_name"]
    asked = [variable["definition"] for variable in by_name.values() if "definition" in variable]
    assert all('job="$job"' in query for query in asked)


def test_grafana_finds_the_dashboard_and_the_datasource() -> None:
    provisioning = DEPLOY / "grafana" / "provisioning"
    (provider,) = read_yaml(provisioning / "dashboards" / "acpc.yml")["providers"]
    (source,) = read_yaml(provisioning / "datasources" / "prometheus.yml")["datasources"]
    scrape = read_yaml(DEPLOY / "prometheus" / "prometheus.yml")["global"]["scrape_interval"]
    grafana = read_yaml(DEPLOY.parent / "docker-compose.yml")["services"]["grafana"]
    mounts = dict(volume.split(":")[:2] for volume in grafana["volumes"])
    assert provider["options"]["path"] == mounts["./deploy/grafana/dashboards"]
    assert mounts["./deploy/grafana/provisioning"] == "/etc/grafana/provisioning"
    assert source["type"] == "prometheus"
    assert source["jsonData"]["timeInterval"] == scrape
