"""Finds the model family of a config by its ``_target_``: LeWM, PLDM, or a plug-in.

Another distribution adds a family with an entry point in the group ``acpc.model_families`` that
names a ``ModelFamily`` object. Plug-ins are code the operator installed, so they are trusted; the
checkpoints they read are not, and reach them as parsed data only.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from importlib.metadata import entry_points
from typing import Protocol, runtime_checkable

import torch

from acpc_server.errors import FailedPrecondition
from acpc_server.models.config import FAMILY_OF_TARGET, JsonObject, bad_config
from acpc_server.models.folder import CheckpointLimits
from acpc_server.models.frozen import FrozenWorldModel
from acpc_server.models.jepa_family import JepaFamily
from acpc_server.models.weights import StateReader

ENTRY_POINT_GROUP = "acpc.model_families"


@runtime_checkable
class ModelFamily(Protocol):
    """What a plug-in provides."""

    @property
    def name(self) -> str:
        """Name on the model card."""
        ...

    @property
    def targets(self) -> AbstractSet[str]:
        """Top-level ``_target_`` spellings of the family's configs."""
        ...

    def build(
        self,
        config: JsonObject,
        state: StateReader,
        *,
        device: torch.device,
        limits: CheckpointLimits,
    ) -> FrozenWorldModel:
        """Make the frozen model; ``state.tensors`` and ``state.digest`` are read on first use.

        Raises:
            UnsafeCheckpoint: The config or the weights are not ones this family knows.
        """
        ...


def find_family(config: JsonObject) -> ModelFamily:
    """The family that knows the config's top-level ``_target_``.

    Raises:
        UnsafeCheckpoint: The target is absent, not a string, or unknown.
        FailedPrecondition: An installed plug-in does not load, or two claim the target.
    """
    target = config.get("_target_")
    if not isinstance(target, str):
        raise bad_config("_target_", "a string naming the model class is wanted")
    if target in FAMILY_OF_TARGET:
        return JepaFamily(FAMILY_OF_TARGET[target])
    plugins = load_plugins()
    matches = [family for family in plugins if target in family.targets]
    if len(matches) > 1:
        names = ", ".join(sorted(family.name for family in matches))
        raise FailedPrecondition(f"several installed model families claim {target!r}: {names}")
    if matches:
        return matches[0]
    known = [*FAMILY_OF_TARGET, *sorted(name for family in plugins for name in family.targets)]
    raise bad_config(
        "_target_",
        f"{target[:80]!r} is not a known target, and nothing was imported or run; known: "
        f"{', '.join(known)}",
    )


def load_plugins() -> list[ModelFamily]:
    """The families other installed distributions provide.

    Raises:
        FailedPrecondition: One of them cannot be imported or is no ModelFamily.
    """
    families: list[ModelFamily] = []
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        try:
            family = entry.load()
        except (ImportError, AttributeError) as error:
            raise FailedPrecondition(
                f"model family plug-in {entry.name!r} ({entry.value}) does not load: {error}"
            ) from error
        if not isinstance(family, ModelFamily):
            raise FailedPrecondition(
                f"model family plug-in {entry.name!r} ({entry.value}) is no ModelFamily: it needs "
                "name, targets and build"
            )
        families.append(family)
    return families
