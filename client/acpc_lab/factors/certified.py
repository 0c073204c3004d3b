"""Counts the anchors whose plan is certified under each group of views, by a job of the server."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import Any

from acpc_client import AcpcClient, AnchorSet, CemBudget, CheckpointRef, GivenViews, PlannerStudy
from acpc_client.errors import ArgumentError


@dataclass(frozen=True)
class CertifiedShare:
    """Of how many anchors a checkpoint's plan is certified under a shift, and what says so.

    Attributes:
        shift: In short form, for example ``given_views:light:1``.
        certified: Anchors whose plan no given view changes, for certain.
        anchors: Anchors that were asked.
        draws: Views of each.
        checkpoint_digest: Of its weights and configuration.
        anchors_digest: Of the anchor set.
        views_digest: Of the group of views.
        parameters: The settings of the study and its seeds, as JSON.
        code_version: Of the server, and ``numeric_mode`` and ``device`` of its arithmetic.
    """

    checkpoint: str
    shift: str
    certified: int
    anchors: int
    draws: int
    checkpoint_digest: str
    anchors_digest: str
    views_digest: str
    parameters: str
    code_version: str
    numeric_mode: str
    device: str

    @property
    def source(self) -> str:
        """A short summary of what it was computed from."""
        digests = self.checkpoint_digest, self.anchors_digest, self.views_digest
        weights, anchors, views = (digest[:12] for digest in digests)
        return f"weights {weights}, set {anchors}, views {views}, server {self.code_version}"


def certified_study(
    stored: AnchorSet, *, draws: int | None = None, candidates: int = 64, seed: int = 0
) -> PlannerStudy:
    """The study that ``certified_shares`` runs: one pool at every anchor, under every group.

    Args:
        stored: An anchor set with groups of views.
        draws: Views of each group; None: as many as every group has.
        candidates: Size of a pool, 3 or more, drawn at random for each anchor.
        seed: Of the pools.

    Raises ArgumentError: The set has no group of views.
    """
    if not stored.groups:
        raise ArgumentError("stored", "the anchor set has no group of views")
    return PlannerStudy(
        shifts=tuple(map(GivenViews, stored.groups)),
        draws=draws or min(stored.groups.values()),
        budget=CemBudget(candidates, elites=2, iterations=1, horizon=stored.horizon),
        sampling_seed=seed,
        history=stored.history,
    )


def certified_shares(
    client: AcpcClient,
    checkpoint: str | CheckpointRef,
    stored: AnchorSet,
    study: PlannerStudy | None = None,
) -> list[CertifiedShare]:
    """Asks at every anchor whether any view of a group can change the plan.

    A planner study does: a durable job of the server. Asked again with the same arguments, after a
    break of either side too, the same job answers, with the same bytes.

    Args:
        client: Of a server that has the checkpoint and the set.
        checkpoint: Its name; once its weights are others, a ref with their digest.
        stored: The anchor set.
        study: Which groups, and of which pools; None: ``certified_study(stored)``.

    Returns:
        A row per group; an anchor counts where the plans under all its views are certified.

    Raises AlreadyExists: The checkpoint was asked about when it had other weights; AcpcError: What
    the server rejected, or could not do.
    """
    study = study or certified_study(stored)
    ref = CheckpointRef(checkpoint) if isinstance(checkpoint, str) else checkpoint
    asked = json.dumps([asdict(ref), stored.digest, repr(study)])
    identity = f"certified-{hashlib.sha256(asked.encode()).hexdigest()[:40]}"
    job = client.run_study(ref, stored, study, request_id=identity)
    result = job.result()
    receipt, rows = result.receipt, result.columns
    given: dict[str, str] = dict(receipt.parameters["given_views"])
    shared: dict[str, Any] = {
        "anchors": stored.anchors,
        "draws": study.draws,
        "checkpoint_digest": receipt.checkpoint_digest,
        "anchors_digest": receipt.anchors_digest,
        "parameters": json.dumps(receipt.parameters, sort_keys=True),
        "code_version": receipt.code_version,
        "numeric_mode": receipt.numeric_mode.name.lower(),
        "device": receipt.device,
    }
    found = []
    for place, shift in enumerate(study.shifts):
        of_shift = rows["shift"] == place
        broken = set(rows["anchor"][of_shift & ~rows["certified"]].tolist())
        held = len(set(rows["anchor"][of_shift].tolist()) - broken)
        digest = given[shift.group] if isinstance(shift, GivenViews) else ""
        row: dict[str, Any] = {"checkpoint": ref.name, "shift": str(shift), "certified": held}
        found.append(CertifiedShare(**row, **shared, views_digest=digest))
    return found


def write_certified(path: Path, shares: Iterable[CertifiedShare]) -> None:
    """Writes rows as CSV, as ``acpc report --certified`` reads them."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([field.name for field in fields(CertifiedShare)])
        writer.writerows(map(astuple, shares))


def read_certified(path: Path) -> list[CertifiedShare]:
    """The rows of a file. Raises ArgumentError: It is no such file."""
    names = [field.name for field in fields(CertifiedShare)]
    numbers = ("certified", "anchors", "draws")
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            if reader.fieldnames != names:
                raise ValueError(f"its columns are {reader.fieldnames}")
            lines: list[dict[str, Any]] = [
                {**line, **{name: int(line[name]) for name in numbers}} for line in reader
            ]
            rows = [CertifiedShare(**line) for line in lines]
        if not all(0 <= row.certified <= row.anchors > 0 for row in rows):
            raise ValueError("a row has more certified than anchors")
    except (OSError, ValueError, TypeError) as error:
        wanted = f"a CSV file with the columns {', '.join(names)}"
        raise ArgumentError("certified", f"{path}: {error}; wanted {wanted}") from error
    return rows
