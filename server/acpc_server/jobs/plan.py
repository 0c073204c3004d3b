"""What the plan of every kind of job holds."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CheckpointName(_Model):
    """A checkpoint folder, its weights file and the digest it had when the job was accepted."""

    name: str
    weights: str
    digest: str


class JobPlan(_Model):
    """What the plan of every kind of job holds."""

    checkpoint: CheckpointName
