"""Which of the known names somebody may have meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from itertools import islice

_MAX_LENGTH = 200
_MAX_KNOWN = 1000
_LIKE = 0.6
_WORDS = re.compile(r"[\W_]+")


def nearest(name: str, known: Iterable[str], count: int = 3, *, like: float = _LIKE) -> list[str]:
    """The known names most like one, best first; none where none is much like it.

    Case does not matter, and a whole word of a name will do: ``noise`` is near ``gaussian_noise``.
    Cheap whatever is asked: the first 1000 names are compared, by their first 200 characters.

    Args:
        name: What somebody wrote.
        known: What there is.
        count: Names at most.
        like: Least likeness, in [0, 1]: ``difflib``'s ratio.
    """
    by_spelling: dict[str, str] = {}
    for given in islice(known, _MAX_KNOWN):
        by_spelling.setdefault(given.casefold()[:_MAX_LENGTH], given)
    wanted = name.casefold()[:_MAX_LENGTH]
    close = difflib.get_close_matches(wanted, by_spelling, count, like)
    words = [spelling for spelling in by_spelling if wanted and wanted in _WORDS.split(spelling)]
    return [by_spelling[spelling] for spelling in dict.fromkeys([*close, *words])][:count]


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """``did you mean a or b?`` with the names most like one; ``otherwise`` where none is."""
    near = nearest(name, known)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else otherwise
