"""``acpc datasets`` and ``acpc tasks``."""

from __future__ import annotations

from acpc_lab.cli import render
from acpc_lab.cli.options import Json, Server


def datasets(server: Server, as_json: Json = False) -> None:
    """Lists the datasets below the server's dataset root: ``--dataset`` can name the HDF5 files.

    Of those in other formats `acpc anchors upload` makes anchor sets, where they lie.
    """
    with server.connect() as client:
        render.listing(list(client.datasets.list()), render.datasets, as_json=as_json)


def tasks(server: Server, as_json: Json = False) -> None:
    """Lists task presets, and task files below the server's dataset root: what ``--task`` can name.

    A task says which columns a dataset has; of a file only the name is known until it is used.
    """
    with server.connect() as client:
        render.listing(list(client.datasets.tasks()), render.tasks, as_json=as_json)
