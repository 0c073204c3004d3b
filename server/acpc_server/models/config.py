"""Reads ``config.json`` and ``acpc.json`` as data, with the path of the key that is wrong.

Upstream instantiates this tree and so runs whatever it names. Here a ``_target_`` is only a tag: a
:class:`Part` lists the spellings that it accepts, and everything else is rejected.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from acpc_server.errors import UnsafeCheckpoint

JsonObject = dict[str, Any]
CONFIG_NAME, OPTIONS_NAME = "config.json", "acpc.json"
MAX_DEPTH = 16


class Part(BaseModel):
    """One node of the tree. Keys are exact, values are not coerced, unknown keys are errors.

    The three Hydra keys say how upstream would call the target; none changes the network.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=False)

    convert: Literal["none", "partial", "object", "all"] = Field("none", alias="_convert_")
    recursive: bool = Field(True, alias="_recursive_")
    partial: Literal[False] = Field(False, alias="_partial_")


Config = TypeVar("Config", bound=BaseModel)


def read_config(data: bytes, filename: str = CONFIG_NAME) -> JsonObject:
    """Parse the bytes of a JSON file as plain data.

    Raises UnsafeCheckpoint: Not UTF-8 JSON, not an object, a key written twice, NaN or infinity, or
    nested deeper than ``MAX_DEPTH``.
    """
    try:
        text = data.decode("utf-8-sig")
        tree = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_no_constant)
    except RecursionError:
        raise bad_config("", f"nested deeper than {MAX_DEPTH} levels", filename) from None
    except ValueError as error:
        raise bad_config("", f"not valid JSON: {error}", filename) from None
    if not isinstance(tree, dict):
        raise bad_config("", f"a JSON object is wanted, found {type(tree).__name__}", filename)
    _check_depth(tree, 1)
    return tree


def parse_config(
    kind: type[Config], tree: JsonObject, below: str = "", *, filename: str = CONFIG_NAME
) -> Config:
    """Validate a tree, which lies at the path ``below`` in its file, as ``kind``.

    Raises UnsafeCheckpoint: An unknown target, or an unknown, missing or ill-typed key; the message
    names the key's path.
    """
    try:
        return kind.model_validate(tree)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=True)
    # An unknown target explains every other complaint about the same node.
    first = min(details, key=lambda item: not _path(item).endswith("_target_"))
    path = ".".join(filter(None, (below, _path(first))))
    raise bad_config(path, _explain(first), filename)


def bad_config(path: str, problem: str, filename: str = CONFIG_NAME) -> UnsafeCheckpoint:
    """Return the error for the key at ``path``, or for the whole file when that is empty."""
    where = f"{filename}: {path}: " if path else f"{filename}: "
    return UnsafeCheckpoint(where + problem, reason="CHECKPOINT_CONFIG_REFUSED")


def _explain(detail: ErrorDetails) -> str:
    value = repr(detail["input"])
    found = value if len(value) <= 80 else value[:77] + "..."
    if detail["type"] == "missing":
        return "required, but absent"
    if detail["type"] == "extra_forbidden":
        return f"unknown key (value {found}); the server builds only what it knows"
    if _path(detail).endswith("_target_"):
        known = str(detail.get("ctx", {}).get("expected", ""))
        return f"{found} is not a known target, and nothing was imported or run; known: {known}"
    return f"{detail['msg']}, found {found}"


def _path(detail: ErrorDetails) -> str:
    return ".".join(str(step) for step in detail["loc"] if not str(step).startswith("<"))


def _unique_keys(pairs: list[tuple[str, Any]]) -> JsonObject:
    tree: JsonObject = {}
    for name, value in pairs:
        if name in tree:
            raise ValueError(f"key {name!r} is written twice")
        tree[name] = value
    return tree


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _check_depth(value: object, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise bad_config("", f"nested deeper than {MAX_DEPTH} levels")
    children = value.values() if isinstance(value, dict) else value
    if isinstance(children, Iterable) and not isinstance(children, str):
        for child in children:
            _check_depth(child, depth + 1)
