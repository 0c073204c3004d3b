"""The tables of what a server holds: checkpoints, datasets, tasks, anchor sets and jobs."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from acpc.contract import cell
from acpc_client import AnchorContents, AnchorSet, Checkpoint, DatasetFile, Operation

from acpc_lab.cli.render import DIGITS, line, source_of
from acpc_lab.cli.table import WIDE, Column


def _mebibytes(item: Checkpoint | AnchorSet | DatasetFile) -> str:
    return f"{item.size_bytes / 2**20:.1f}"


def _moment(at: datetime | None) -> str:
    return "-" if at is None else f"{at.astimezone(UTC):%Y-%m-%dT%H:%MZ}"


def _day(moment: datetime | None) -> str:
    return "-" if moment is None else moment.date().isoformat()


def _done(item: Operation) -> str:
    progress = item.progress
    return f"{progress.completed}/{progress.total} {progress.phase}".strip()


CHECKPOINTS = (
    Column("name", "name"),
    Column("state", lambda x: x.state.name.lower() + (", pinned" if x.pinned else ""), rank=1),
    Column("weights", "weights", rank=2),
    Column("MiB", _mebibytes, rank=3),
    Column("family", lambda item: item.model.family if item.model else "-", rank=4),
    Column("digest", lambda x: x.model.digest if x.model else "-", rank=5, short=DIGITS),
)
DATASETS = (
    Column("name", "name"),
    Column("format", lambda one: one.format or "hdf5", rank=1),
    Column("MiB", _mebibytes, rank=2),
)
TASKS = (
    Column("name", "name"),
    Column("columns", lambda x: f"{x.pixels}, {x.action}, {x.state}" if x.state else "-", rank=2),
    Column("frameskip", lambda x: str(x.frameskip) if x.state else "-", rank=3),
    Column("what", lambda item: item.description or "a task file; see docs/tasks.md", rank=1),
)
ANCHOR_SETS = (
    Column("digest", "digest", short=DIGITS),
    Column("what", lambda i: i.description or (i.source.dataset if i.source else "-"), rank=1),
    Column("anchors", "anchors", rank=2),
    Column("frames", lambda item: f"{item.history} + {item.horizon}", rank=4),
    Column("pixels", lambda item: f"{item.height} x {item.width}", rank=6),
    Column("MiB", _mebibytes, rank=7),
    Column("made", lambda item: _day(item.create_time), rank=3),
    Column("expires", lambda item: _day(item.expire_time), rank=5),
)
OPERATIONS = (
    Column("name", "name", short=len("operations/") + 8),
    Column("checkpoint", lambda item: item.checkpoint.name or "-", rank=1),
    Column("shift", lambda item: item.request.shift if item.request else "-", rank=2),
    Column("verdict", lambda item: item.score.verdict.outcome.name if item.score else "-", rank=1),
    Column("state", lambda item: item.state.name.lower()),
    Column("progress", _done, rank=4),
    Column("created", lambda item: _moment(item.create_time), rank=3),
    Column("caller", lambda item: item.caller or "-", rank=5),
    Column("anchors from", source_of, rank=WIDE),
    Column("ended", lambda item: _moment(item.end_time), rank=WIDE),
    Column("attempts", "attempts", rank=WIDE),
)


def phases(item: Operation) -> str:
    """Where the time of a job went, the longest first."""
    spent = sorted(item.phase_seconds.items(), key=lambda one: -one[1])
    return ", ".join(f"{name} {seconds:.2f}" for name, seconds in spent)


def anchor_set(item: AnchorSet, contents: AnchorContents | None = None) -> None:
    """One anchor set, a line for each thing to know."""
    expires = f"{_day(item.expire_time)}, later when it is used"
    rows = {
        "digest": item.digest,
        "anchors": item.anchors,
        "frames": f"{item.history} of history, {item.horizon} of future",
        "pixels": f"{item.height} x {item.width}",
        "action block width": item.action_block_dim,
        "state width": item.state_dim,
        "size": f"{_mebibytes(item)} MiB",
        **_extras(item),
        **_contents(contents),
        "made": _day(item.create_time),
        "expires": "never" if item.expire_time is None else expires,
        "description": item.description or "-",
    }
    source = item.source
    if source is not None:
        drawn = f"{source.dataset}, task {source.task}, seed {source.seed}"
        rows["source"] = drawn + (", one per episode" if source.one_per_episode else "")
    for name, value in rows.items():
        line(f"{name:<20}{value}")


def _contents(held: AnchorContents | None) -> dict[str, Any]:
    if held is None:
        return {}
    shown = (f"{x} ({count})" for x, count in sorted(Counter(held.labels.tolist()).items()))
    far = {} if held.radius is None else {"states apart": cell(held.radius)}
    return {"labels": ", ".join(shown), **far}


def _extras(item: AnchorSet) -> dict[str, Any]:
    groups, probes = (
        ", ".join(f"{group} ({count})" for group, count in found.items())
        for found in (item.groups, item.directions)
    )
    others = (f"{x.name} {x.shape[-1]} wide" for x in item.extras if "/" not in x.name)
    rows = {"views": groups, "directions": probes, "further arrays": ", ".join(others)}
    return {name: text for name, text in rows.items() if text}
