"""Where the anchors of a job come from, as data."""

from __future__ import annotations

from typing import TypeAlias

from pydantic import BaseModel, ConfigDict


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class AnchorSource(_Model):
    """Anchors drawn from a dataset; defaults are the paper's."""

    dataset: str
    task: str
    count: int = 100
    seed: int = 9101
    frameskip: int | None = None
    one_per_episode: bool = False


class AnchorSetSource(_Model):
    """Anchors of a stored set, by the digest of their content; ``count`` follows from it."""

    digest: str
    count: int


AnySource: TypeAlias = AnchorSource | AnchorSetSource
"""Where the anchors of a job come from."""
