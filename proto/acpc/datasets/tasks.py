"""Tasks as data: which columns a dataset has, how its windows step; and its labels."""

from importlib.resources import files
from typing import Annotated, Any, Literal

import numpy as np
import yaml
from jaxtyping import Float64, Int64
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from acpc.contract import (
    ArgumentError,
    FailedPrecondition,
    Reading,
    TaskSummary,
    did_you_mean,
    shared,
)
from acpc.datasets.normalisers import NormalisedColumn
from acpc.datasets.plain_yaml import plain_yaml

MAX_TASK_BYTES = 2**16
MAX_EPISODES_TEXT = 2**16
MAX_LABEL_BITS = 62

Coordinate = Annotated[int, Field(ge=0)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class LabelRule(_Model):
    """One or more features of a standardised endpoint state; each is split at its median.

    They are the coordinates of a vector, or its Euclidean norm alone.
    """

    rule: Literal["coordinates", "norm"]
    of: list[Coordinate] = Field(min_length=1, max_length=256)  # of the state: make the vector
    minus: list[Coordinate] = Field(default_factory=list)  # are subtracted from them, pairwise

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
    """How to read a dataset as one of the paper's tasks: its columns, windows and labels.

    The features of all label rules together make one label, a bit each (Tab. sr-labels).
    """

    name: str = Field(min_length=1, max_length=100)
    description: str = Field(default="", max_length=2000)
    pixels: str = Field(default="pixels", min_length=1)
    action: NormalisedColumn = Field(default_factory=NormalisedColumn)
    state: str = Field(min_length=1)  # its row at the last future frame is the endpoint state
    proprio: NormalisedColumn | None = None  # of the proprioception that goes with every frame
    # Those that windows are drawn from, as ``chosen_episodes`` reads them; empty: all.
    episodes: str = Field(default="", max_length=MAX_EPISODES_TEXT)
    frameskip: int = Field(default=5, ge=1, le=1000)  # environment steps between kept frames
    history: int = Field(default=3, ge=1, le=1000)  # frames that the paper's models take
    # Of standard deviations: 1 unbiased (the paper), 0 divided by N (current stable-worldmodel).
    action_ddof: Literal[0, 1] = 1
    state_ddof: Literal[0, 1] = 1
    protocol: Literal["paper", "released"] | None = None  # of requests that name no reading
    labels: list[LabelRule] = Field(min_length=1, max_length=MAX_LABEL_BITS)

    @field_validator("episodes", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:  # noqa: ANN401 - of a file
        whole = isinstance(value, list) and all(type(one) is int for one in value)
        return ",".join(map(str, value)) if whole else str(value) if type(value) is int else value

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
        """Returns the fields that a list of tasks shows."""
        return TaskSummary(**{**shared(self, TaskSummary), "action": self.action.column})

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


def load_preset(name: str) -> TaskPreset:
    """The shipped preset ``name``, which is one of ``preset_names``."""
    return parse_task(name, (files(__package__) / "presets" / f"{name}.yaml").read_bytes())


def parse_task(name: str, raw: bytes) -> TaskPreset:
    """The task that a YAML or JSON file holds, of which at most ``MAX_TASK_BYTES`` + 1 are given.

    Raises FailedPrecondition: Too large, malformed, or not a task; names the key.
    """
    if len(raw) > MAX_TASK_BYTES:
        raise FailedPrecondition(f"task {name!r} is larger than {MAX_TASK_BYTES} bytes")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FailedPrecondition(f"task {name!r} is not UTF-8 text: {error}") from error
    try:
        data = plain_yaml(text)
    except yaml.YAMLError as error:
        raise FailedPrecondition(f"task {name!r} is not valid YAML or JSON: {error}") from error
    if not isinstance(data, dict):
        raise FailedPrecondition(f"task {name!r} must be a mapping of keys to values")
    try:
        return TaskPreset.model_validate(data)
    except ValidationError as error:
        raise FailedPrecondition(f"task {name!r}, {_problem(error)}") from error


def _problem(error: ValidationError) -> str:
    """Words an error of a task; unknown keys come first, since they explain missing ones.

    Names the key, what was found and what was wanted.
    """
    first = min(error.errors(), key=lambda item: item["type"] != "extra_forbidden")
    *above, key = first["loc"]
    where = f"key {'.'.join(map(str, first['loc']))!r}"
    if first["type"] == "extra_forbidden":
        below = NormalisedColumn if above and above[0] != "labels" else LabelRule
        known = (below if above else TaskPreset).model_fields
        hints = [did_you_mean(str(key), known), f"known keys: {', '.join(known)}"]
        return f"unknown {where}; {' '.join(filter(None, hints))}"
    if first["type"] == "missing":
        return f"{where} is missing"
    found = repr(first["input"])
    return f"{where}: {first['msg']}; found {found if len(found) <= 100 else found[:97] + '...'}"


def median_split_labels(features: Float64[np.ndarray, "n features"]) -> Int64[np.ndarray, "n"]:
    """Labels endpoint states by median splits, Tab. sr-labels in the paper.

    Bit f of a label is 1 when feature f lies strictly above its median over the given anchors; of
    an even number the median is the mean of the middle two.

    Raises ArgumentError: No anchors, no or more than 62 features, or a value that is not finite.
    """
    anchors, count = features.shape
    if not 1 <= count <= MAX_LABEL_BITS:
        raise ArgumentError(
            "label_rule", f"makes {count} features; give 1 to {MAX_LABEL_BITS}, one bit each"
        )
    if anchors == 0:
        raise ArgumentError("anchors", "are empty; labels need at least 1 anchor")
    bad = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if bad.size:
        raise ArgumentError("label_features", f"row {bad[0]} holds NaN or infinity")
    ordered = np.sort(features, axis=0)
    median = (ordered[(anchors - 1) // 2] + ordered[anchors // 2]) / 2
    labels: np.ndarray = ((features > median) * 2 ** np.arange(count)).sum(axis=1)
    return labels
