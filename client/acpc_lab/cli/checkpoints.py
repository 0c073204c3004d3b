"""``acpc checkpoints``."""

from dataclasses import dataclass
from typing import Annotated

import typer
from acpc_client import Checkpoint, CheckpointRef

from acpc_lab.cli import render
from acpc_lab.cli.command import Command, group, sets
from acpc_lab.cli.options import OutputOptions, Server
from acpc_lab.cli.table import Format

app = group("checkpoints", "Lists, shows, loads and unloads checkpoints.")


@app.command("list", cls=Command)
@dataclass(frozen=True, kw_only=True)
class List(OutputOptions, Server):
    """Lists every checkpoint below the server's root."""

    show_all: Annotated[
        bool,
        typer.Option("--all", help="Also folders that cannot be loaded: why, and what to run."),
    ] = False

    def run(self) -> None:
        """Lists them."""
        with self.connect() as client:
            found = list(client.checkpoints.list(show_all=self.show_all))
        good = found if self.json else [one for one in found if not one.problem]
        render.listing(good, render.CHECKPOINTS, self.form)
        if not self.json:
            for one in found:
                if one.problem:
                    command = f"; next: {one.next_command}" if one.next_command else ""
                    render.line(f"{one.name}: {one.problem}{command}")


@dataclass(frozen=True, kw_only=True)
class _OneCheckpoint(OutputOptions, Server):
    name: Annotated[str, typer.Argument(help="Folder below the server's checkpoint root.")]
    weights: Annotated[
        str, sets(CheckpointRef, "weights", "--weights-file", "--weights", panel=None)
    ] = ""

    @property
    def _named(self) -> CheckpointRef:
        return CheckpointRef(self.name, self.weights)

    def _print(self, checkpoint: Checkpoint) -> None:
        if self.json:
            render.line(checkpoint.to_json(indent=2))
            return
        render.listing([checkpoint], render.CHECKPOINTS, self.form)
        card = checkpoint.model
        if self.form is not Format.NAME and card is not None:
            render.line(f"digest {card.digest}")
            if card.model_digest:
                render.line(f"model  {card.model_digest}")
            render.line(
                f"{card.parameter_count} parameters, {card.image_size} px input, "
                f"latent width {card.latent_dim}, history {card.history}, "
                f"action block width {card.action_block_dim}"
            )


@app.command("show", cls=Command)
@dataclass(frozen=True, kw_only=True)
class Show(_OneCheckpoint):
    """Shows one checkpoint; its model is known once it is loaded."""

    def run(self) -> None:
        """Shows it."""
        with self.connect() as client:
            self._print(client.checkpoints.get(self._named))


@app.command("load", cls=Command)
@dataclass(frozen=True, kw_only=True)
class Load(_OneCheckpoint):
    """Reads a checkpoint onto the device."""

    pin: Annotated[bool, typer.Option("--pin", help="Keep it until it is unloaded.")] = False

    def run(self) -> None:
        """Loads it."""
        with self.connect() as client:
            self._print(client.checkpoints.load(self._named, pin=self.pin).checkpoint)


@app.command("unload", cls=Command)
@dataclass(frozen=True, kw_only=True)
class Unload(_OneCheckpoint):
    """Frees the device memory of a checkpoint."""

    def run(self) -> None:
        """Unloads it."""
        with self.connect() as client:
            self._print(client.checkpoints.unload(self._named))
