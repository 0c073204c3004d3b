"""Finds in a server's listing the checkpoints that a watch scores, and names the others."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePosixPath

from acpc_client import AcpcClient, Checkpoint, CheckpointRef
from acpc_client.errors import AcpcError, ArgumentError, RunEnded

from acpc_lab.campaigns import Link
from acpc_lab.sweeps import Label, SweepSpec, item_of, likely, some

_OF_RUN = re.compile(r"(?:run|seed|trial|version|fold)[=_-]?\d+", re.IGNORECASE)
_DIGITS = 18
# Names in a line.
_NAMED = 4
# From one look at what is no checkpoint, for which the server opens files, to the next.
_LOOKS_AROUND = 15


@dataclass(frozen=True)
class Arrival:
    """A checkpoint that has arrived: one name with one content.

    Attributes:
        digest: As ``Checkpoint.content``, the sha256 of its files.
    """

    ref: CheckpointRef
    digest: str

    def __str__(self) -> str:
        return f"{self.ref.name} ({self.ref.weights})"

    @property
    def epoch(self) -> int | None:
        """The last number in the name of the weights file, or else of its folder; None: none.

        Numbers behind ``epoch`` or ``step`` go before those of a metric; those of a run or a seed,
        as in ``run-0``, are none. Longer digits than a step can have are no number.
        """
        for name in (PurePosixPath(self.ref.weights).stem, PurePosixPath(self.ref.name).name):
            text = _OF_RUN.sub("", name)
            numbers = re.findall(r"(?:epoch|step)[=_-]?(\d+)", text) or re.findall(r"\d+", text)
            if numbers:
                return int(numbers[-1]) if len(numbers[-1]) <= _DIGITS else None
        return None

    @property
    def labels(self) -> dict[str, Label]:
        """Its training run and epoch, as a sweep's labels; none where its name has no number.

        The run is the folder above the checkpoint's where the checkpoint's is the epoch's.
        """
        if self.epoch is None:
            return {}
        path = PurePosixPath(self.ref.name)
        numbers = re.findall(r"\d+", path.name)
        in_weights = re.search(r"\d", PurePosixPath(self.ref.weights).stem)
        of_epoch = not in_weights and numbers and int(numbers[-1]) == self.epoch
        run = str(path.parent) if of_epoch and path.parent.name else self.ref.name
        return {"run": run, "epoch": self.epoch}

    @property
    def order(self) -> tuple[bool, int, str, str]:
        """Sorts by epoch and name."""
        return self.epoch is None, self.epoch or 0, self.ref.name, self.ref.weights


class Arrivals:
    """Looks for checkpoints at a server that are whole, and that a sweep file means.

    Args:
        spec: The sweep file.
        prefix: The checkpoint, or the folder below the server's root; empty: all of it.
        on_trouble: Called, once each, with what is left out and why, in words.

    Attributes:
        listed: Every checkpoint, as the last look found them.
        moving: Whether any has come, gone, or was written since the look before.

    Raises ArgumentError: ``prefix`` is a path of this machine.
    """

    def __init__(self, spec: SweepSpec, prefix: str, on_trouble: Callable[[str], object]) -> None:
        if prefix.startswith(("/", ".", "~")):
            raise ArgumentError(
                "prefix",
                f"{prefix} is a path of this machine; give what the server calls the folder, its "
                "path below --checkpoint-root, or nothing for the whole root",
            )
        self._spec, self._prefix, self._on_trouble = spec, prefix.strip("/"), on_trouble
        self._looks, self._told = 0, set[str]()
        self._meant: dict[CheckpointRef, Checkpoint] = {}
        self.listed: list[Checkpoint] = []
        self.moving = False

    def look(self, link: Link, client: AcpcClient) -> list[Arrival]:
        """Returns, by epoch and name, those whose files are as they were at the last look.

        Raises RunEnded: As ``Link.ask``; AcpcError: The server lists none.
        """
        show_all = self._looks % _LOOKS_AROUND == 0
        self._looks += 1
        found = link.ask(lambda: list(client.checkpoints.list(show_all=show_all)))
        self.listed = [one for one in found if one.weights]
        before, self._meant = self._meant, {}
        for one in self.listed:
            ref = CheckpointRef(one.name, one.weights)
            if self._is_below(one) and item_of(self._spec, ref) is not None:
                self._meant[ref] = one
        self._tell_of_others(found)
        meant = self._meant.items()
        still = {ref for ref, one in meant if ref in before and before[ref].stamp == one.stamp}
        self.moving = not before.keys() == self._meant.keys() == still
        arrived = []
        for ref in still:
            one = before[ref]
            try:
                one = one if one.content else link.ask(partial(client.checkpoints.get, ref))
            except RunEnded:
                raise
            except AcpcError as error:  # of one that is gone, for example
                one = replace(one, problem=error.message)
            if one.problem:
                self.tell(f"{ref.name} ({ref.weights}) waits until it is whole: {one.problem}")
            elif one.stamp == self._meant[ref].stamp:
                arrived.append(Arrival(ref, one.content))
            else:
                self.moving = True
            self._meant[ref] = one
        return sorted(arrived, key=lambda arrival: arrival.order)

    def tell(self, words: str) -> None:
        """Reports a trouble that may last, once."""
        if words not in self._told:
            self._told.add(words)
            self._on_trouble(words)

    def _is_below(self, one: Checkpoint) -> bool:
        return not self._prefix or f"{one.name}/".startswith(f"{self._prefix}/")

    def _tell_of_others(self, found: list[Checkpoint]) -> None:
        """Names what is there and will not be scored, a few of those that are alike."""
        names = list(dict.fromkeys(one.name for one in self.listed))
        if not any(map(self._is_below, self.listed)):
            has = f"it has {likely(self._prefix, names, _NAMED) or 'none at all'}"
            which = f"{self._prefix}, or below it" if self._prefix else "yet"
            self.tell(f"the server has no checkpoint {which}; {has}")
        why_not: dict[str, list[str]] = {}
        for one in filter(self._is_below, found):
            if not one.weights and one.name not in names:
                command = f"; next: {one.next_command}" if one.next_command else ""
                why_not.setdefault(f"{one.problem}{command}", []).append(one.name)
            elif one.weights and CheckpointRef(one.name, one.weights) not in self._meant:
                why = f"no item of checkpoints in {self._spec.name} means it"
                why_not.setdefault(why, []).append(f"{one.name} ({one.weights})")
        for why, each in why_not.items():
            self.tell(f"{some(each, _NAMED)}: left out: {why}")
