"""Scores as files: those of ``acpc_client.save_result`` and ``load_result``."""

from __future__ import annotations

from pathlib import Path

from acpc_client import Score, load_result, save_result
from acpc_client.errors import ArgumentError


def save_score(score: Score, path: str | Path) -> None:
    """Writes a score without what was asked; ``save_result`` of its operation writes that too.

    The errors are those of ``save_result``.
    """
    save_result(score, path)


def load_score(path: str | Path) -> Score:
    """The score in a file, without what was asked, which ``load_result`` tells.

    The errors are those of ``load_result``.

    Raises:
        ArgumentError: The file holds another result.
    """
    answer = load_result(path).answer
    if not isinstance(answer, Score):
        raise ArgumentError("path", f"{path} holds a {type(answer).__name__}, wanted a score")
    return answer
