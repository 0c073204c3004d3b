"""``acpc anchors``."""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from acpc.contract import CreateRequest
from acpc_client import AnchorArrays, AnchorContents, AnchorSet, DatasetAnchors, UploadProgress
from acpc_client.errors import ArgumentError
from rich.progress import TimeRemainingColumn

from acpc_lab.cli import render
from acpc_lab.cli.command import Command, Keys, ProtocolOption, given, group, keys_of, read_protocol
from acpc_lab.cli.connection import Server
from acpc_lab.cli.follow import counted
from acpc_lab.cli.options import DRAW, AnchorCount, Followed, Printed, interruptible
from acpc_lab.tables import Quantity, load_anchors, load_views

app = group(
    "anchors", "Anchor sets: upload once, score many checkpoints and shifts on the same windows."
)


def _drawn(item: AnchorSet) -> str:
    """How it was drawn from a dataset; empty for one of arrays."""
    source = item.source
    each = ", one per episode" if source and source.one_per_episode else ""
    return f"{source.dataset}, task {source.task}, seed {source.seed}{each}" if source else ""


def _counts(found: Mapping[Any, int]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in found.items())


MEBIBYTES = Quantity("MiB", lambda item: f"{item.size_bytes / 2**20:.1f}")
_DAY = "%Y-%m-%d"
_SIZES = (
    Quantity("frames", lambda item: f"{item.history} + {item.horizon}", wide=True),
    Quantity("pixels", lambda item: f"{item.height} x {item.width}", wide=True),
    MEBIBYTES._replace(wide=True),
)
ANCHOR_SETS = (
    Quantity("digest", "digest", most=render.DIGITS),
    Quantity("what", lambda i: i.description or (i.source.dataset if i.source else "-"), most=40),
    Quantity("anchors", "anchors"),
    Quantity("made", "create_time", _DAY),
    *_SIZES,
    Quantity("expires", "expire_time", _DAY, wide=True),
)
ANCHOR_SET = (
    Quantity("digest", "digest"),
    Quantity("anchors", "anchors"),
    *_SIZES,
    Quantity("action block width", "action_block_dim"),
    Quantity("state width", "state_dim"),
    Quantity("views", lambda item: _counts(item.groups)),
    Quantity("directions", lambda item: _counts(item.directions)),
    Quantity("further arrays", lambda item: ", ".join(
        f"{x.name} {x.shape[-1]} wide" for x in item.extras if "/" not in x.name)),
    Quantity("made", "create_time", _DAY),
    Quantity("expires", lambda item: f"{item.expire_time:{_DAY}}, later when it is used"
             if item.expire_time else "never"),
    Quantity("description", "description"),
    Quantity("source", _drawn),
)  # fmt: skip
"""What ``show`` prints of one; ``frames`` are those of history and of the future."""


def contents_of(inside: AnchorContents) -> tuple[Quantity, ...]:
    """What is in a set, beside what every set says of itself."""
    labels = dict(sorted(Counter(inside.labels.tolist()).items()))
    return (
        Quantity("labels", lambda _: _counts(labels)),
        Quantity("states apart", lambda _: inside.radius),
    )


class _Made(AnchorCount):
    """How windows are drawn from a dataset, here or at the server, and the set that they make.

    Attributes:
        description: Free text that the server keeps with the set.
        request_id: Names the upload; the same id goes on with it.
    """

    keys: ClassVar[Keys] = {**keys_of(DatasetAnchors, DRAW), **keys_of(CreateRequest, ("reading",))}

    protocol: ProtocolOption = None
    description: str = ""
    request_id: str | None = None

    def drawing(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """How windows are drawn, by the names of ``DatasetAnchors``; and the reading, if given."""
        read = read_protocol(self.protocol, self.keys)
        reading = {name: read.pop(name) for name in ("reading",) if name in read}
        return self.drawn() | read, reading


@app.command("upload", cls=Command)
class Upload(_Made, Followed, Server):
    r"""Stores windows that lie here at the server, as an anchor set.

    FILE is a dataset of stable-worldmodel. Windows are drawn from it as the server draws them from
    its own HDF5 files: with the same options, the same numbers.

        hdf5     rooms.h5      pip install '.[lab,hdf5]'
        lance    rooms.lance   pip install '.[lab,lance]'

    Or FILE holds these arrays, n anchors each, as `numpy.savez` writes them, or a folder holds
    each as `<name>.npy`. Frames are never in memory as a whole.

        frames           uint8    n, history + H, height, width, 3
        action_blocks    float32  n, history + H - 1, block width
        endpoint_states  float64  n, state width      or n, H, state width
        labels           int64    n                   or n, H
        anchor_ids       int64    n
        trajectory_ids   int64    n     optional
        proprio          float32  n, history + H, width    optional
        history          int64    ()    optional

    Frames are RGB, history first. Actions are normalised; states are standardised, those of the
    last frame; labels tell which states are different. With states and labels of all H future
    frames, scores can take the set at shorter horizons too. Anchor ids seed the draws.

    VIEWS holds views of the histories that you made, by a simulator or a second camera: for each
    group an array of the group's name, uint8 (n, views, history, height, width, 3), in an NPZ file,
    or an NPY file each in a folder. `--shift given_views:GROUP` measures a group as any shift.

    DIRECTIONS holds directions of the histories' pixels in the same way, float32 (n, probes,
    history, height, width, 3): the sensitivity study measures along them.

    When the connection breaks, the upload goes on by itself. When the command is interrupted, run
    it again: it goes on with the first window that the server has not stored.

    **Examples**

        acpc anchors upload rooms.lance --task tworoom --anchors 400
        acpc anchors upload so101.h5 --task grasp.yaml --protocol '{frameskip: 3}'
        acpc anchors upload windows.npz --description "kitchen, 2 cameras"
        acpc anchors upload windows/ --history 3 -o json | jq -r .digest
        acpc anchors upload windows.npz --views camera-2.npz

    Attributes:
        file: Dataset, or arrays: see above.
        format: What FILE is [what it looks].
        task: Task preset, or task file here. For datasets; arrays have none.
        history: Frames of history [what arrays say, or 3].
        horizon: Future frames H. For datasets.
        views: Groups of views of each history; may be repeated.
        directions: Groups of directions of each history; may be repeated.
        compress: Send frames deflated, without loss.
    """

    file: Annotated[Path, typer.Argument()]
    format: Annotated[str, typer.Option(metavar="hdf5|lance|arrays")] = ""
    task: str = ""
    history: Annotated[int | None, typer.Option(min=1)] = None
    horizon: Annotated[int, typer.Option(min=1)] = 8
    views: Annotated[list[Path] | None, typer.Option(exists=True)] = None
    directions: Annotated[list[Path] | None, typer.Option(exists=True)] = None
    compress: bool = True

    def __call__(self) -> None:
        if not self.file.exists():
            wrong = "is not here; of a dataset at the server: acpc anchors create"
            raise ArgumentError(str(self.file), wrong)
        named: set[str] = set()

        def on_upload(now: UploadProgress) -> None:
            if now.request_id not in named:
                named.add(now.request_id)
                render.note(f"upload {now.request_id}: {now.stored} anchors stored already")
            sent = f"{now.sent_bytes / 2**20:.1f} MiB sent"
            show("stored anchors", now.stored, now.total, sent)

        def on_read(done: int, total: int) -> None:
            if not named:  # the upload shows the second reading
                show("read anchors", done, total, "")

        with self.connect() as client, counted("storing anchors", TimeRemainingColumn()) as show:
            groups, probes = (load_views(*paths or ()) for paths in (self.views, self.directions))
            words = "interrupted: what was stored is kept; run the command again to go on"
            with interruptible([words]), self._arrays(on_read) as anchors:
                stored = client.anchors.upload(
                    replace(anchors, views=groups, directions=probes),
                    description=self.description,
                    compress=self.compress,
                    progress=on_upload,
                    request_id=self.request_id,
                    timeout=self.timeout,
                )
        render.fields(stored, ANCHOR_SET)

    def _arrays(
        self, on_read: Callable[[int, int], object]
    ) -> AbstractContextManager[AnchorArrays]:
        """The anchors to upload: drawn from a dataset, or arrays as they are."""
        from acpc.datasets import FORMATS, recognise  # noqa: PLC0415  slow to import

        from acpc_lab.datasets import drawn_from  # noqa: PLC0415

        path, task, (drawing, reading) = self.file, self.task, self.drawing()
        found = self.format or recognise(path)
        if found == "arrays" or (not found and (path.suffix == ".npz" or any(path.glob("*.npy")))):
            arrays = load_anchors(path, self.history)
            if task or drawing:
                option = "task" if task else next(iter(drawing))
                raise ArgumentError(option, f"is for datasets, but {path.name!r} holds arrays")
            return nullcontext(arrays)
        if found in FORMATS and not task:
            raise ArgumentError(
                "task",
                f"{path.name!r} is a {found} dataset; say how to read it: --task with a preset, "
                "or with a task file of yours, which names its columns",
            )
        source = DatasetAnchors(path.name, task or "none", **drawing)
        windows = given(history=self.history, horizon=self.horizon) | reading
        return drawn_from(path, source, format=self.format, on_read=on_read, **windows)


@app.command("create", cls=Command)
class Create(_Made, Printed, Server):
    r"""Makes an anchor set from a dataset that the server can see.

    The set keeps its windows whatever happens to the dataset.

    **Example**

        acpc anchors create tworoom.h5 --task tworoom --anchors 100

    Attributes:
        dataset: HDF5 file below the server's dataset root.
        task: Task preset, or task file at the server.
        history: Frames of history.
        horizon: Future frames H.
    """

    dataset: str
    task: Annotated[str, typer.Option()]
    history: Annotated[int, typer.Option(min=1)] = 3
    horizon: Annotated[int, typer.Option(min=1)] = 8

    def __call__(self) -> None:
        drawing, reading = self.drawing()
        source = DatasetAnchors(self.dataset, self.task, **drawing)
        with self.connect() as client:
            made = client.anchors.create(
                source,
                history=self.history,
                horizon=self.horizon,
                description=self.description,
                request_id=self.request_id,
                timeout=self.timeout,
                **reading,
            )
        render.fields(made, ANCHOR_SET)
