"""Task presets: which columns a dataset has, how its windows step, and its label rule, as data."""

from collections import Counter
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import yaml
from acpc.contract import Reading, TaskSummary
from jaxtyping import Float64
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from acpc_server.data.paths import SUFFIXES, files_below, resolve_below
from acpc_server.errors import FailedPrecondition, UnknownName

MAX_TASK_BYTES = 2**16
MAX_DEPTH = 8

Coordinate = Annotated[int, Field(ge=0)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class LabelRule(_Model):
    """One or more features of a standardised endpoint state; each is split at its median.

    Attributes:
        rule: ``coordinates``: every coordinate of the vector is a feature; ``norm``: its Euclidean
            norm is the only one.
        of: Coordinates of the state that make the vector.
        minus: Coordinates to subtract from them, pairwise; none when empty.
    """

    rule: Literal["coordinates", "norm"]
    of: list[Coordinate] = Field(min_length=1, max_length=256)
    minus: list[Coordinate] = Field(default_factory=list)

    @model_validator(mode="after")
    def _paired(self) -> "LabelRule":
        if self.minus and len(self.minus) != len(self.of):
            raise ValueError(
                f"'minus' has {len(self.minus)} coordinates, but 'of' has {len(self.of)}; "
                "they are subtracted in pairs"
            )
        return self

    def features(self, states: Float64[np.ndarray, "n width"]) -> Float64[np.ndarray, "n features"]:
        """The features of standardised states."""
        vector: np.ndarray = states[:, self.of]
        if self.minus:
            vector = vector - states[:, self.minus]
        if self.rule == "norm":
            vector = np.linalg.norm(vector, axis=1, keepdims=True)  # (n, 1)
        return vector


class TaskPreset(_Model):
    """How to read a dataset as one of the paper's tasks.

    Attributes:
        name: Name of the task.
        description: What it is, in a sentence.
        pixels: Column of frames.
        action: Column of actions.
        state: Column whose row at the last future frame is the endpoint state.
        frameskip: Environment steps between kept frames.
        history: Frames of history the paper's models take.
        action_ddof: 1 normalises actions with the unbiased standard deviation (the paper), 0
            divides by N (current stable-worldmodel).
        state_ddof: The same for states.
        protocol: The reading that requests follow which do not say one: ``paper`` or ``released``;
            None: the paper's.
        labels: Label rules; their features together make one label, a bit each (Tab. sr-labels).
    """

    name: str = Field(min_length=1, max_length=100)
    description: str = Field(default="", max_length=2000)
    pixels: str = Field(default="pixels", min_length=1)
    action: str = Field(default="action", min_length=1)
    state: str = Field(min_length=1)
    frameskip: int = Field(default=5, ge=1, le=1000)
    history: int = Field(default=3, ge=1, le=1000)
    action_ddof: Literal[0, 1] = 1
    state_ddof: Literal[0, 1] = 1
    protocol: Literal["paper", "released"] | None = None
    labels: list[LabelRule] = Field(min_length=1, max_length=62)

    def label_features(
        self, states: Float64[np.ndarray, "n width"]
    ) -> Float64[np.ndarray, "n features"]:
        """All features of standardised endpoint states, rule by rule; the width is checked."""
        self.check_state_width(states.shape[1])
        return np.concatenate([rule.features(states) for rule in self.labels], axis=1)

    @property
    def reading(self) -> Reading:
        """The reading of requests that do not say one."""
        return Reading[self.protocol.upper()] if self.protocol else Reading.PAPER

    def summary(self) -> TaskSummary:
        """What a list of tasks tells."""
        names = (field.name for field in fields(TaskSummary))
        return TaskSummary(**{name: getattr(self, name) for name in names})

    def check_state_width(self, width: int) -> None:
        """Rejects, with FailedPrecondition, a label rule beyond states of ``width`` coordinates."""
        for position, rule in enumerate(self.labels):
            beyond = [index for index in (*rule.of, *rule.minus) if index >= width]
            if beyond:
                raise FailedPrecondition(
                    f"task {self.name!r}, labels.{position} uses coordinate {beyond[0]}, but "
                    f"column {self.state!r} has {width} coordinates (0 to {width - 1})"
                )


def preset_names() -> list[str]:
    """Names of the shipped presets."""
    presets = files(__package__) / "presets"
    return sorted(entry.name.removesuffix(".yaml") for entry in presets.iterdir())


def load_task(name: str, root: Path) -> TaskPreset:
    """A shipped preset by its name, or a task file below the dataset root.

    Raises:
        UnknownName: Neither a preset nor a file.
        InvalidArgument, PermissionDenied: A bad path, field ``task``.
        FailedPrecondition: A file that is too large, malformed, or not a task; names the key.
    """
    if name in preset_names():
        text = (files(__package__) / "presets" / f"{name}.yaml").read_text("utf-8")
        return _parse(name, text)
    if not name.endswith(SUFFIXES["task"]):
        raise UnknownName(
            f"no task preset {name!r}, and no task file, whose name ends in one of "
            f"{', '.join(SUFFIXES['task'])}",
            name,
            lambda: (*preset_names(), *files_below(root, "task")),
            "acpc tasks",
        )
    with resolve_below(root, name, field="task").open("rb") as file:
        raw = file.read(MAX_TASK_BYTES + 1)
    if len(raw) > MAX_TASK_BYTES:
        raise FailedPrecondition(f"task {name!r} is larger than {MAX_TASK_BYTES} bytes")
    try:
        return _parse(name, raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise FailedPrecondition(f"task {name!r} is not UTF-8 text: {error}") from error


class _PlainLoader(yaml.SafeLoader):
    """Safe YAML that rejects a key given twice, of which YAML would take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for key, times in Counter(keys).items():
            if times > 1:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} is given twice", node.start_mark
                )
        return super().construct_mapping(node, deep)


def _check_structure(text: str) -> None:
    """Rejects what makes a small file expensive: deep nesting, and aliases, which multiply."""
    depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if isinstance(event, yaml.AliasEvent) or depth > MAX_DEPTH:
            fault = f"nested deeper than {MAX_DEPTH}" if depth > MAX_DEPTH else "aliases"
            raise yaml.YAMLError(f"{fault}: not read")


def _parse(name: str, text: str) -> TaskPreset:
    try:
        _check_structure(text)
        data = yaml.load(text, _PlainLoader)  # noqa: S506  a SafeLoader
    except (yaml.YAMLError, ValueError) as error:
        raise FailedPrecondition(f"task {name!r} is not valid YAML or JSON: {error}") from error
    if not isinstance(data, dict):
        raise FailedPrecondition(f"task {name!r} must be a mapping of keys to values")
    try:
        return TaskPreset.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"])
        raise FailedPrecondition(
            f"task {name!r}, key {path!r}: {first['msg']}; found {first['input']!r:.100}"
        ) from error
