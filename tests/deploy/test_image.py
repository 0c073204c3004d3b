"""The image runs what the package installs, as nobody in particular, on the server's ports."""

import importlib.util
import json
import re
import tomllib

from deployment_files import ROOT, instructions

RECIPE = instructions(ROOT / "Dockerfile")
LAST_STAGE = RECIPE[max(i for i, (word, _) in enumerate(RECIPE) if word == "FROM") :]
PACKAGE = tomllib.loads((ROOT / "pyproject.toml").read_text())


def _only(word: str) -> str:
    (found,) = [rest for name, rest in LAST_STAGE if name == word]
    return found


def test_the_process_is_not_root_and_its_uid_is_fixed() -> None:
    uid, gid = _only("USER").split(":")
    assert int(uid) > 1000
    assert int(gid) > 1000
    assert any(word == "RUN" and f"--uid {uid}" in rest for word, rest in LAST_STAGE)


def test_the_server_is_the_first_process_and_hears_signals() -> None:
    """Exec form: no shell stands between the container's signals and the server."""
    (command,) = json.loads(_only("ENTRYPOINT"))
    assert command in PACKAGE["project"]["scripts"]
    assert json.loads(_only("CMD")) == ["serve"]
    assert _only("STOPSIGNAL") == "SIGTERM"


def test_the_probe_is_a_module_of_the_server() -> None:
    options, command = _only("HEALTHCHECK").split("CMD", 1)
    python, flag, module = json.loads(command)
    assert (python, flag) == ("python", "-m")
    assert importlib.util.find_spec(module) is not None
    assert "--start-period" in options


def test_every_folder_is_a_volume() -> None:
    given = dict(re.findall(r"(\w+)=(\S+)", _only("ENV")))
    folders = {value for name, value in given.items() if name.endswith(("_ROOT", "_DIR"))}
    assert folders == set(json.loads(_only("VOLUME")))
