"""How an operator has one checkpoint served."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class ServingOptions(BaseModel):
    """The section ``serving`` of a checkpoint's ``acpc.json``.

    They say when and beside what a checkpoint is computed, not what, and so are in no digest of the
    model. A new option is a field here and what goes by it: a device call has them in its
    :class:`acpc_server.scheduling.CallKind`.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    batch_delay_seconds: Annotated[float, Field(ge=0, le=1)] = 0.02
    """longest time that a call is held back so that others join it, seconds; 0: none"""


DEFAULT_SERVING = ServingOptions()
