"""Counts the anchors whose plan is certified under each group of views."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from acpc_client import AcpcClient, AnchorArrays
from acpc_client.errors import ArgumentError
from numpy.typing import NDArray

_MAX_VIEWS = 64


@dataclass(frozen=True)
class CertifiedShare:
    """Of how many anchors a checkpoint's choice is certified under a shift.

    Attributes:
        shift: In short form, for example ``given_views:light:1``.
        certified: Anchors whose best candidate no given view changes, for certain.
        anchors: Anchors that were asked.
    """

    checkpoint: str
    shift: str
    certified: int
    anchors: int


def certified_shares(
    client: AcpcClient,
    checkpoint: str,
    anchors: AnchorArrays,
    views: Mapping[str, NDArray[np.uint8]],
    *,
    candidates: int = 64,
    seed: int = 0,
) -> list[CertifiedShare]:
    """Asks ``CertifyPool`` at every anchor whether any view of a group can change the choice.

    The goal is an anchor's last frame; the candidates are its own logged future actions and those
    of other anchors, drawn at random.

    Args:
        client: Of a server that has the checkpoint.
        checkpoint: Its name.
        anchors: The anchors.
        views: By group, as ``rendered_views`` gives them.
        candidates: Size of a pool, 2 or more; at most one for each anchor.
        seed: Of the pools.

    Returns:
        A row per group; an anchor counts where all views of the group are certified.
    """
    history, others = anchors.history, len(anchors)
    blocks = np.asarray(anchors.action_blocks)
    held = dict.fromkeys(views, 0)
    for row in range(others):
        rng = np.random.default_rng((seed, int(anchors.anchor_ids[row])))
        rest = rng.permutation(np.delete(np.arange(others), row))[: candidates - 1]
        pool = blocks[[row, *rest], history - 1 :]
        frames = anchors.frames[row : row + 1][0]
        for part in _parts(views):
            answer = client.certify_pool(
                checkpoint,
                frames[:history],
                pool,
                frames[-1],
                past_blocks=blocks[row, : history - 1],
                views=np.concatenate([views[group][row] for group in part]),
            )
            found = iter(answer.views)
            for group in part:
                sure = [next(found).top1.certified for _ in views[group][row]]
                held[group] += all(sure)
    return [
        CertifiedShare(checkpoint, f"given_views:{group}", count, others)
        for group, count in held.items()
    ]


def _parts(views: Mapping[str, NDArray[Any]]) -> Iterator[list[str]]:
    """Groups that travel in one request."""
    part: list[str] = []
    for group, found in views.items():
        if part and sum(views[name].shape[1] for name in part) + found.shape[1] > _MAX_VIEWS:
            yield part
            part = []
        part.append(group)
    yield part


def write_certified(path: Path, shares: Iterable[CertifiedShare]) -> None:
    """Writes rows as CSV, as ``acpc report --certified`` reads them."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([field.name for field in fields(CertifiedShare)])
        writer.writerows(map(astuple, shares))


def read_certified(path: Path) -> list[CertifiedShare]:
    """The rows of a file.

    Raises:
        ArgumentError: It is no such file.
    """
    names = [field.name for field in fields(CertifiedShare)]
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            if reader.fieldnames != names:
                raise ValueError(f"its columns are {reader.fieldnames}")
            rows = [
                CertifiedShare(
                    line["checkpoint"], line["shift"], int(line["certified"]), int(line["anchors"])
                )
                for line in reader
            ]
        if not all(0 <= row.certified <= row.anchors > 0 for row in rows):
            raise ValueError("a row has more certified than anchors")
    except (OSError, ValueError, TypeError) as error:
        wanted = f"a CSV file with the columns {', '.join(names)}"
        raise ArgumentError("certified", f"{path}: {error}; wanted {wanted}") from error
    return rows
