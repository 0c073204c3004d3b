"""The shipped tasks are the paper's table; a task file that is not right says which key."""

from pathlib import Path

import numpy as np
import pytest
from acpc.datasets import LabelRule, TaskPreset
from acpc_server.data import load_task
from acpc_server.errors import (
    AcpcError,
    FailedPrecondition,
    NotFound,
    PermissionDenied,
)

TASK = """
name: mine
state: pose
frameskip: 2
labels:
  - rule: coordinates
    of: [0]
"""


def states(width: int) -> np.ndarray:
    return np.random.default_rng(width).normal(size=(6, width))


def test_the_presets_are_the_papers_table(tmp_path: Path) -> None:
    """Tab. sr-labels, and PROTOCOL facts: frameskip 5, history 3, unbiased statistics."""
    width = {"tworoom": 2, "pusht": 7, "reacher": 6, "cube": 28}
    column = {"tworoom": "pos_agent", "pusht": "state", "reacher": "observation"}
    for name, size in width.items():
        task = load_task(name, tmp_path)
        y = states(size)
        r = y[:, 0:3] - y[:, 25:28] if name == "cube" else None
        expected = {
            "tworoom": lambda y=y: [y[:, 0]],
            "pusht": lambda y=y: [y[:, 2], y[:, 3], y[:, 4]],
            "reacher": lambda y=y: [y[:, 4], y[:, 5], np.hypot(y[:, 4], y[:, 5])],
            "cube": lambda y=y, r=r: [y[:, 0], y[:, 1], np.sqrt((r**2).sum(axis=1))],
        }[name]()
        np.testing.assert_allclose(task.label_features(y), np.stack(expected, axis=1), rtol=1e-14)
        assert task.state == column.get(name, "observation")
        assert (task.name, task.frameskip, task.history) == (name, 5, 3)
        assert (task.pixels, task.action.column) == ("pixels", "action")
        assert (task.action_ddof, task.state_ddof) == (1, 1)


def test_the_variants_differ_where_they_say(tmp_path: Path) -> None:
    current, paper = load_task("tworoom-current", tmp_path), load_task("tworoom", tmp_path)
    assert (current.state, current.action_ddof) == ("state", 0)
    assert current.labels == paper.labels
    y = states(28)
    released = load_task("cube-released", tmp_path).label_features(y)
    r = y[:, 0:3] - y[:, 25:28]
    norm = np.sqrt((r**2).sum(axis=1))
    np.testing.assert_allclose(released, np.stack([r[:, 0], r[:, 1], norm], axis=1), rtol=1e-14)


@pytest.mark.parametrize("suffix", ["yaml", "yml", "json"])
def test_a_task_file_below_the_root(tmp_path: Path, suffix: str) -> None:
    labels = [LabelRule(rule="coordinates", of=[0])]
    wanted = TaskPreset(name="mine", state="pose", frameskip=2, labels=labels)
    (tmp_path / "tasks").mkdir()
    text = wanted.model_dump_json(indent=2) if suffix == "json" else TASK
    (tmp_path / "tasks" / f"mine.{suffix}").write_text(text)
    assert load_task(f"tasks/mine.{suffix}", tmp_path) == wanted


BAD_FILES: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "must be a mapping"),
    "not text": (b"\xff\xfe\x00", "not UTF-8"),
    "key twice": (TASK + "state: other\n", "key 'state' is given twice"),
    "too large": (TASK + "# " + "x" * 70000, "larger than 65536 bytes"),
    "unknown key": (TASK + "colour: red\n", "unknown key 'colour'; known keys: name, desc"),
    "unknown key in a rule": (TASK + "    power: [1]\n",
        r"unknown key 'labels\.0\.power'; known keys: rule"),
    "no state": (TASK.replace("state: pose", ""), "key 'state' is missing"),
    "key misspelt": (TASK.replace("labels:", "lables:"),
        "unknown key 'lables'; did you mean 'labels'[?] known keys: "),
    "no labels": ("name: a\nstate: b\nlabels: []\n", "key 'labels': .*at least 1 item"),
    "unknown rule": (TASK.replace("coordinates", "sum"), r"key 'labels\.0\.rule': .*found 'sum'"),
    "negative coordinate": (TASK.replace("[0]", "[-1]"), r"key 'labels\.0\.of\.0': .*found -1"),
    "unpaired minus": (TASK + "    minus: [1, 2]\n",
        "key 'labels.0': .*'minus' has 2 coordinates, but 'of' has 1"),
    "frameskip text": (TASK.replace("frameskip: 2", "frameskip: '2'"), "'frameskip': .*integer"),
    "unknown reading": (TASK + "protocol: letter\n", "key 'protocol': Input should be 'paper' or"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_task_file_names_the_key(tmp_path: Path, case: str) -> None:
    content, message = BAD_FILES[case]
    data = content.encode() if isinstance(content, str) else content
    (tmp_path / "bad.yaml").write_bytes(data)
    with pytest.raises(FailedPrecondition, match=r"task 'bad\.yaml'") as caught:
        load_task("bad.yaml", tmp_path)
    assert caught.match(message)


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("twoorm", NotFound, "no task preset 'twoorm', and no task file"),
        ("none.yaml", NotFound, "task 'none.yaml' does not exist"),
        ("../mine.yaml", PermissionDenied, "plain relative path"),
        ("link.yaml", PermissionDenied, "symbolic link"),
        ("presets/../tworoom", NotFound, "no task preset"),
    ],
)
def test_a_bad_task_name(tmp_path: Path, name: str, error: type[AcpcError], message: str) -> None:
    (tmp_path / "mine.yaml").write_text(TASK)
    (tmp_path / "link.yaml").symlink_to(tmp_path / "mine.yaml")
    with pytest.raises(error, match=message):
        load_task(name, tmp_path)


def test_a_rule_beyond_the_state_names_both(tmp_path: Path) -> None:
    task = load_task("cube", tmp_path)
    words = r"labels\.1 uses coordinate 25, .* 20 coordinates"
    with pytest.raises(FailedPrecondition, match=words):
        task.label_features(states(20))
