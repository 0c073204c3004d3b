"""What a scoring job was asked to measure."""

from __future__ import annotations

from acpc import contract
from acpc.contract import Record


class ScoreRequest(contract.ScoreRequest, Record):
    """A scoring job's request as the server understood it: defaults filled in, digests pinned.

    ``shift`` is None for a kind of perturbation that this client does not know.
    """
