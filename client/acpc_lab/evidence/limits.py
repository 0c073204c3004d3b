"""Up to which severity checkpoints pass, where several severities of one kind were scored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from contextlib import suppress
from typing import TypeVar

from acpc.contract import curve_of
from acpc_client import Perturbation, Score, SeverityLimit
from acpc_client.errors import FailedPrecondition

Key = TypeVar("Key", bound=Hashable)


def limits(
    scored: Iterable[tuple[Key, Perturbation, Score | None, str]],
) -> dict[tuple[Key, str], SeverityLimit]:
    """Return the limit of each key and curve of which at least two severities were scored.

    Left out is what has no severity, no reference or no evidence, and a curve whose checkpoint,
    reference or anchors changed meanwhile.

    Args:
        scored: What differs by more than the severity, the change, its score, the job's name.
    """
    curves = defaultdict(list)
    for key, shift, score, operation in scored:
        curve = curve_of(shift)
        if curve and score and score.evidence and score.evidence.score and score.reference:
            curves[key, curve].append((shift, score, operation))
    found = {}
    for place, points in curves.items():
        if len(points) > 1:
            with suppress(FailedPrecondition):
                found[place] = SeverityLimit.of(points)
    return found


def limit_numbers(limit: SeverityLimit | None) -> dict[str, float | str | None]:
    """Columns of a table: the limit, its interval's ends, and what breaks it.

    A checkpoint that passes at the strongest severity that was scored has that as its limit.
    """
    if limit is None:
        return dict.fromkeys(("limit", "limit_lower", "limit_upper", "limit_broken_by"))
    at = limit.points[-1].severity if limit.estimate is None else limit.estimate
    return {
        "limit": at,
        "limit_lower": limit.holds,
        "limit_upper": limit.breaks,
        "limit_broken_by": limit.broken_by or None,
    }
