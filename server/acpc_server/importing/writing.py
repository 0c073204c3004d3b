"""Writes checkpoint folders of what was found, with its record, and of modules in memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from acpc_server.errors import FailedPrecondition, InvalidArgument, UnsafeCheckpoint
from acpc_server.importing.facts import Numbers, block_width
from acpc_server.importing.jepa import as_config, family_of, model_tensors, note_model
from acpc_server.importing.patch_models import Finish, is_patch_model, plan_patches
from acpc_server.importing.reading import PARTS, Records, RunFile
from acpc_server.importing.run_config import from_run_config, read_run_config
from acpc_server.importing.sources import Run
from acpc_server.models import (
    CONFIG_NAME,
    OPTIONS_NAME,
    SHARD,
    JsonObject,
    ModelCard,
    Node,
    StoredTensor,
    load_checkpoint,
    new_folder,
    save_weights,
    unsafe,
)

SOURCE_NAME = "source.json"
CPU = torch.device("cpu")


@dataclass(frozen=True)
class ImportPlan:
    """The planned output of an import: a config, as bytes, and facts about the model.

    ``finish`` makes those that are stored of a file's tensors.
    """

    config: bytes
    family: str
    numbers: Numbers
    finish: Finish = lambda state: state


def plan_import(
    run: Run, files: Sequence[RunFile], asked: Mapping[str, int | str | None]
) -> ImportPlan:
    """Put together what objects, tensors, config and options say.

    ``asked`` are values of options by the numbers' names; ``family`` may be one.

    Raises UnsafeCheckpoint: Two of them disagree, or the model is none that is known;
    InvalidArgument: A number must be given by an option; FailedPrecondition: Shards of a file.
    """
    if shards := [file.name for file in run.files if SHARD.search(file.name)]:
        raise FailedPrecondition(
            f"{run.place} holds weights in shards ({', '.join(shards[:3])}); save all their "
            "tensors in one file, model.safetensors, and name it",
            reason="CHECKPOINT_WEIGHTS_REFUSED",
        )
    numbers = Numbers(run.files[0].name)
    tree = read_run_config(run.config) if run.config is not None else {}
    origin = run.config.name if run.config is not None else ""
    for name in ("frameskip", "action_dim"):
        numbers.add(name, asked.get(name), f"--{name.replace('_', '-')}")
    if run.config is not None and "_target_" in tree:
        return ImportPlan(run.config.read_bytes(), str(tree["_target_"]), numbers)
    if bare := [file.path.name for file in files if file.found is None]:
        raise UnsafeCheckpoint(f"{bare[0]}: safetensors without a config.json beside it")
    if any(is_patch_model(file.found) for file in files):
        config, finish = plan_patches(files, numbers, tree, origin, str(asked["backbone"] or ""))
        return ImportPlan(config, "prejepa", numbers, finish)
    families = {str(asked["family"]): "--family"} if asked.get("family") else {}
    tensors: Records = {}
    for file in files:
        found, numbers.filename = file.found, file.path.name
        assert found is not None  # noqa: S101 - as checked above
        tensors = model_tensors(found.tensors) or found.tensors
        note_model(numbers, tensors, found.modules)
        if family := family_of(found.modules, found.beside):
            families.setdefault(family, file.path.name)
    from_run_config(numbers, tree, origin)
    if len(families) > 1:
        both = " and ".join(f"{family} by {place}" for family, place in families.items())
        raise unsafe(numbers.filename, f"the family is {both}")
    unsaid = ("lewm", "nothing says PLDM, whose inference is the same")
    family, place = next(iter(families.items()), unsaid)
    numbers.add("family", family, place)
    block_width(numbers)
    return ImportPlan(as_config(numbers, family, tensors), family, numbers, model_tensors)


def write_import(
    run: Run,
    files: Sequence[RunFile],
    plan: ImportPlan,
    target: Path,
    report: Callable[[str], object],
) -> ModelCard:
    """Write the folder and load each of its weights once; an error leaves nothing behind.

    Raises AlreadyExists: ``target`` exists; InvalidArgument: Two files of one epoch hold different
    tensors; UnsafeCheckpoint: The server would reject what was written; OSError: It cannot be
    written.
    """
    with new_folder(target) as folder:
        written: dict[str, JsonObject] = {}
        by_digest: dict[str, str] = {}
        for place, file in enumerate(files, 1):
            report(f"{place} of {len(files)}: {file.path.name}")
            state, record = _read(file, plan)
            same = by_digest.setdefault(record["tensors_sha256"], file.target)
            if same in written:
                written[same].setdefault("same_tensors", []).append(record["file"])
                continue
            if file.target in written:
                both = f"{written[file.target]['file']} and {record['file']}"
                raise InvalidArgument("source", f"{both} are one epoch and differ; name one file")
            written[file.target] = record
            save_weights(state, folder / file.target)
        if len(written) == 1 and not any(file.epoch for file in files):
            (name, record), plain = *written.items(), "weights.pt"
            (folder / name).rename(folder / plain)
            written = {plain: record}
        (folder / SOURCE_NAME).write_text(
            json.dumps(_record(run, plan, written), indent=2, default=str) + "\n"
        )
        if run.config is not None and (options := run.config.with_name(OPTIONS_NAME)).is_file():
            (folder / OPTIONS_NAME).write_bytes(options.read_bytes())
        (folder / CONFIG_NAME).write_bytes(plan.config)
        for name in written:
            report(f"checking {name}")
            card = load_checkpoint(folder.parent, folder.name, name, device=CPU).card
    return card


def _record(run: Run, plan: ImportPlan, written: dict[str, JsonObject]) -> JsonObject:
    """Make the content of ``source.json``."""
    config = None
    if run.config is not None:
        sha = hashlib.sha256(run.config.read_bytes()).hexdigest()
        config = {"file": run.config.name, "sha256": sha}
    return {
        "source": 1,
        "command": "import",
        "from": run.origin or run.place.name,
        "config": config,
        "family": plan.family,
        "augmentation": plan.numbers.get("augmentation", (None,))[0],
        "numbers": {name: {"value": value, "from": origin}
                    for name, (value, origin) in plan.numbers.items()},
        "weights": written,
        "read": {x.name: [x.stat().st_size, x.stat().st_mtime_ns] for x in run.files},
    }  # fmt: skip


def _read(file: RunFile, plan: ImportPlan) -> tuple[dict[str, Tensor], JsonObject]:
    """The tensors of a file, and what is recorded of it."""
    state, sha = plan.finish(file.tensors()), hashlib.sha256()
    for name, tensor in state.items():
        sha.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        sha.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    record: dict[str, Any] = {"file": file.path.name, "bytes": file.size, "sha256": file.sha256}
    record |= {"epoch": file.epoch, "tensors_sha256": sha.hexdigest()}
    if file.found is not None:
        record |= {"lies_at": file.found.path, "epoch_stored": file.found.epoch,
                   "left_out": file.found.others}  # fmt: skip
    return state, record


def save_checkpoint(model: nn.Module, folder: str | Path) -> ModelCard:
    """Writes ``config.json`` and ``weights.pt`` of a world model, and loads them as a server does.

    Args:
        model: ``LeWM`` or ``PLDM`` of stable-worldmodel, the paper's ``JEPA``, or what wraps one:
            a LightningModule, DataParallel, torch.compile. It is not changed.
        folder: A new folder below the server's checkpoint root; written whole or not at all.

    Returns: What the server will say of it: family, digests, widths.

    Raises InvalidArgument: No such model within, or one without values; UnsafeCheckpoint: It
    computes what no family does; AlreadyExists: The folder does; OSError: It cannot be written.
    """
    within = model.modules() if isinstance(model, nn.Module) else ()
    inner = next((x for x in within if {*PARTS} <= {name for name, _ in x.named_children()}), None)
    if inner is None:
        found = f"found a {_class_of(model)} without children {', '.join(PARTS)}"
        wanted = "wanted LeWM or PLDM; docs/bring-your-own-model.md is for other networks"
        raise InvalidArgument("model", f"{found}; {wanted}")
    if any(x.is_meta for x in inner.state_dict().values()):
        raise InvalidArgument("model", "found tensors of the meta device, wanted their values")
    whole = {_plain(name): x.detach().cpu() for name, x in inner.state_dict().items()}
    modules = {_plain(name): _described(x) for name, x in inner.named_modules()}
    state, numbers = model_tensors(whole), Numbers("the model")
    held: Records = {
        name: StoredTensor(str(x.dtype), "", x.numel(), 0, tuple(x.shape), x.stride())
        for name, x in state.items()
    }
    note_model(numbers, held, modules)
    beside = {name for name, _ in model.named_children()}
    family = family_of(modules, beside) or "lewm"  # both compute the same
    target = Path(folder)
    with new_folder(target) as made:
        (made / CONFIG_NAME).write_bytes(as_config(numbers, family, held))
        save_weights(state, made / "weights.pt")
        return load_checkpoint(made.parent, made.name, device=CPU).card


def _plain(name: str) -> str:
    """A name without what torch.compile puts before those of a part."""
    return ".".join(step for step in name.split(".") if step != "_orig_mod")


def _class_of(module: nn.Module) -> str:
    return f"{type(module).__module__}.{type(module).__qualname__}"


def _described(module: nn.Module) -> Node:
    """A module as a pickle of it would be described."""
    known = {k: x for k, x in vars(module).items() if isinstance(x, bool | int | float | str)}
    config: Any = getattr(module, "config", None)
    if hasattr(config, "to_dict"):
        known["config"] = config.to_dict()
    return Node(0, _class_of(module), {}, {}, known)
