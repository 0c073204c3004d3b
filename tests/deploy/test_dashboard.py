"""The dashboard is whole: Grafana loads it as it stands, and an operator can read it."""

import re
from itertools import combinations, pairwise
from typing import Any

import pytest
from deployment_files import DEPLOY, dashboards, panels, read_yaml

EACH = pytest.mark.parametrize("dashboard", dashboards(), ids=lambda shown: shown["uid"])
UNITS = {"none", "s", "bytes", "percentunit", "reqps", "ops"}


@EACH
def test_ids_and_titles_are_unique(dashboard: dict[str, Any]) -> None:
    everything = dashboard["panels"]
    assert len({panel["id"] for panel in everything}) == len(everything)
    assert len({panel["title"] for panel in everything}) == len(everything)


def test_a_panel_says_what_it_shows_and_in_which_unit() -> None:
    for panel in panels():
        defaults = panel["fieldConfig"]["defaults"]
        assert panel["description"].endswith("."), panel["title"]
        assert defaults["unit"] in UNITS, panel["title"]
        base, *steps = (step["value"] for step in defaults["thresholds"]["steps"])
        assert base is None, panel["title"]  # Grafana's base step
        assert all(low < high for low, high in pairwise(steps)), panel["title"]


def test_a_fault_is_called_what_is_counted_as_one() -> None:
    (panel,) = (panel for panel in panels() if panel["title"] == "Faults")
    (counted,) = re.findall(r'grpc_code=~"(.+?)"', panel["targets"][0]["expr"])
    assert set(re.findall(r"[A-Z]+(?:_[A-Z]+)+|[A-Z]{4,}", panel["description"])) == {
        *counted.split("|")
    }


def test_a_panel_asks_the_chosen_prometheus() -> None:
    for panel in panels():
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references) > 0, panel["title"]
        for asked in (panel, *panel["targets"]):
            assert asked["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


@EACH
def test_panels_do_not_overlap_and_fit_the_grid(dashboard: dict[str, Any]) -> None:
    def cells(panel: dict[str, Any]) -> set[tuple[int, int]]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        across = range(at["x"], at["x"] + at["w"])
        return {(x, y) for x in across for y in range(at["y"], at["y"] + at["h"])}

    taken = [cells(panel) for panel in dashboard["panels"]]
    assert not any(one & other for one, other in combinations(taken, 2))


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
