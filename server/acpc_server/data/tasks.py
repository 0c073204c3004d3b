"""Finds a task by name: a shipped preset, or a file below the dataset root."""

from pathlib import Path

from acpc.datasets import MAX_TASK_BYTES, TaskPreset, load_preset, parse_task, preset_names

from acpc_server.data.paths import SUFFIXES, files_below, resolve_below
from acpc_server.errors import UnknownName


def load_task(name: str, root: Path) -> TaskPreset:
    """A shipped preset by its name, or a task file below the dataset root.

    Raises:
        UnknownName: Neither a preset nor a file.
        InvalidArgument, PermissionDenied: A bad path, field ``task``.
        FailedPrecondition: A file that is too large, malformed, or not a task; names the key.
    """
    if name in preset_names():
        return load_preset(name)
    if not name.endswith(SUFFIXES["task"]):
        raise UnknownName(
            f"no task preset {name!r}, and no task file, whose name ends in one of "
            f"{', '.join(SUFFIXES['task'])}",
            name,
            lambda: (*preset_names(), *files_below(root, "task")),
            "acpc tasks",
        )
    with resolve_below(root, name, field="task").open("rb") as file:
        return parse_task(name, file.read(MAX_TASK_BYTES + 1))
