"""Compose file, Prometheus target and systemd unit agree with the server and with each other."""

import importlib.util
import json
import re
import shutil
import tomllib
from typing import Any

import processes
import pytest
from acpc_server.settings import Settings
from deployment_files import COMPOSE, DEPLOY, GUIDE, ROOT, read_yaml

STACK = read_yaml(COMPOSE[0])
SERVICES: dict[str, dict[str, Any]] = STACK["services"]
NAMED = pytest.mark.parametrize("name", SERVICES)
UNIT, TEMPLATE = (
    (DEPLOY / "systemd" / f"acpc-server{name}.service").read_text() for name in ("", "@")
)


STARTS = (
    *COMPOSE,
    ROOT / "Dockerfile",
    *DEPLOY.rglob("*.service"),
    DEPLOY / "kubernetes/server.yaml",
)
FILES = [str(path.relative_to(ROOT)) for path in STARTS]


def _default(field: str) -> Any:
    return Settings.model_fields[field].default


@pytest.mark.parametrize("name", [*FILES, *GUIDE])
def test_every_variable_of_the_server_is_a_setting(name: str) -> None:
    """And who starts a server gives it what it cannot be without."""
    text = GUIDE[name] if name in GUIDE else (ROOT / name).read_text()
    names = {found.lower() for found in re.findall(r"ACPC_([A-Z][A-Z_]*[A-Z])", text)}
    assert names <= {*Settings.model_fields, "target", "token_file"}
    if name.endswith((".service", "Dockerfile")) and "watch" not in name:
        required = {key for key, field in Settings.model_fields.items() if field.is_required()}
        assert required <= names


@NAMED
def test_ports_are_published_on_loopback_only(name: str) -> None:
    for port in SERVICES[name].get("ports", []):
        host, outside, inside = port.split(":")
        assert host == "127.0.0.1"
        assert outside == inside


def test_the_server_publishes_the_ports_of_its_settings() -> None:
    inside = {int(port.rsplit(":", 1)[1]) for port in SERVICES["server"]["ports"]}
    assert inside == {_default("port"), _default("metrics_port")}


@NAMED
def test_every_service_has_a_probe_and_dependencies_wait_for_it(name: str) -> None:
    """The server's own probe is in its image; the demo ends by itself."""
    if name not in ("server", "demo"):
        assert SERVICES[name]["healthcheck"]["test"][0] == "CMD"
    for other, wait in SERVICES[name].get("depends_on", {}).items():
        assert other in SERVICES
        assert wait == {"condition": "service_healthy"}


@NAMED
def test_mounted_files_exist_and_volumes_are_declared(name: str) -> None:
    for volume in SERVICES[name].get("volumes", []):
        source = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", volume).split(":")[0]
        if source.startswith(("./deploy", "./examples")):
            assert (ROOT / source).is_dir()
            assert volume.endswith(":ro")
        elif not source.startswith("./"):
            assert source in STACK["volumes"]


def test_the_server_may_drain_before_it_is_killed() -> None:
    drain = _default("drain_seconds")
    assert float(SERVICES["server"]["stop_grace_period"].removesuffix("s")) > drain
    (stop,) = re.findall(r"TimeoutStopSec=(\d+)", UNIT)
    assert float(stop) > drain


@pytest.mark.process
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
@pytest.mark.parametrize("name", ["acpc-server", "acpc-server@", "acpc-watch"])
def test_a_unit_leaves_a_service_few_rights(name: str) -> None:
    """Of the exposure that systemd finds, 0 to 10, at most 2; 9 is a service without limits."""
    unit = DEPLOY / "systemd" / f"{name}.service"
    check = ("systemd-analyze", "security", "--offline=true", "--threshold=20", str(unit))
    processes.run([*check, "--no-pager"])


def test_the_image_starts_and_probes_the_server() -> None:
    """Exec form: no shell stands between the container's signals and the server."""
    recipe = (ROOT / "Dockerfile").read_text()
    (command,) = json.loads(re.findall(r"^ENTRYPOINT (.*)", recipe, re.MULTILINE)[-1])
    assert command in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    python, flag, module = json.loads(re.findall(r"HEALTHCHECK[^[]*(\[.*\])", recipe)[-1])
    assert (python, flag) == ("python", "-m") and importlib.util.find_spec(module)
    uid, gid = re.findall(r"^USER (\d+):(\d+)$", recipe, re.MULTILINE)[-1]
    assert min(int(uid), int(gid)) > 1000, "nobody in particular"
    folders = set(re.findall(r"ACPC_\w+_(?:ROOT|DIR)=(\S+)", recipe))
    assert folders == set(json.loads(re.findall(r"^VOLUME (.*)", recipe, re.MULTILINE)[-1]))


def test_the_server_is_confined() -> None:
    server = SERVICES["server"]
    assert server["read_only"] is True and server["cap_drop"] == ["ALL"]
    data = [volume for volume in server["volumes"] if not volume.startswith("state:")]
    assert data and all(volume.endswith(":ro") for volume in data)


def test_prometheus_tells_alertmanager_and_alertmanager_has_a_receiver() -> None:
    config = read_yaml(DEPLOY / "prometheus" / "prometheus.yml")
    (told,) = config["alerting"]["alertmanagers"]
    (target,) = told["static_configs"][0]["targets"]
    service, port = target.split(":")
    assert any(each.endswith(f":{port}") for each in SERVICES[service]["ports"])
    file = SERVICES[service]["command"][0].rpartition("/")[2]
    receivers = read_yaml(DEPLOY / "prometheus" / file)["receivers"]
    assert [each["name"] for each in receivers] == ["nobody"]


def test_prometheus_scrapes_the_server_and_loads_the_rules() -> None:
    config = read_yaml(DEPLOY / "prometheus" / "prometheus.yml")
    (scrape,) = config["scrape_configs"]
    assert scrape["job_name"] == "acpc"
    assert scrape["static_configs"] == [{"targets": [f"server:{_default('metrics_port')}"]}]
    assert all((DEPLOY / "prometheus" / name).is_file() for name in config["rule_files"])


def test_instances_of_the_unit_share_what_servers_behind_one_port_must() -> None:
    own = {name for name, value in re.findall(r"=ACPC_(\w+)=(.*)", TEMPLATE) if "%i" in value}
    shared = {name for name, value in re.findall(r"=ACPC_(\w+)=(.*)", TEMPLATE)} - own
    assert own == {"DEVICE", "METRICS_PORT", "STATE_DIR"}
    assert {"SHARE_PORT", "JOBS_URL", "ANCHOR_DIR"} <= shared
    assert "\nUser=" in TEMPLATE, "the system shares a port among one user's servers alone"


def test_the_servers_of_two_devices_share_a_port_and_a_job_record() -> None:
    services = read_yaml(DEPLOY / "compose.devices.yml")["services"]
    first, second = services["server"], services["server-2"]
    for name in ("ACPC_SHARE_PORT", "ACPC_JOBS_URL", "ACPC_ANCHOR_DIR"):
        assert first["environment"][name] == second["environment"][name]
    assert first["network_mode"] == second["network_mode"] == "service:port"
    base = SERVICES["server"]
    assert first["environment"]["ACPC_JOBS_URL"] == base["environment"]["ACPC_JOBS_URL"]
    for key in ("image", "volumes", "read_only", "tmpfs", "cap_drop", "stop_grace_period"):
        assert second[key] == base[key]
    inside = {port.rsplit(":", 1)[1] for port in services["port"]["ports"]}
    assert second["environment"]["ACPC_METRICS_PORT"] in inside
