"""``acpc datasets`` and ``acpc tasks``."""

from __future__ import annotations

from acpc_lab.cli import render
from acpc_lab.cli.options import OutputOptions, Server


def datasets(server: Server, form: OutputOptions) -> None:
    """Lists the datasets below the server's dataset root: ``--dataset`` can name the HDF5 files.

    Of those in other formats `acpc anchors upload` makes anchor sets, where they lie.
    """
    with server.connect() as client:
        listed = list(client.datasets.list())
    render.listing(listed, render.DATASETS, form.format)
    other = [one.name for one in listed if one.format not in ("", "hdf5")]
    if other:
        render.note(f"servers read hdf5; of others: acpc anchors upload {other[0]} --task TASK")


def tasks(server: Server, form: OutputOptions) -> None:
    """Lists task presets, and task files below the server's dataset root: what ``--task`` can name.

    A task says which columns a dataset has; of a file only the name is known until it is used.
    """
    with server.connect() as client:
        render.listing(list(client.datasets.tasks()), render.TASKS, form.format)
