"""The page of parameters: every field of a request, and how to set it from Python and the shell.

mkdocs builds the page (``docs/site_hook.py``); ``python docs/reference/parameter_table.py`` prints
it.

Nothing is listed by hand: fields come from the protobuf descriptors, arguments from the client's
signatures and the dataclasses of the contract, options from the commands, and the words from
.proto comments. By hand are the options that are not named as their field is, and
why a field has no option or no argument. A cell that stays empty fails
``tests/lab/cli/test_parameter_table.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from fnmatch import fnmatch
from functools import cache
from importlib import import_module
from inspect import signature
from itertools import chain
from pathlib import Path
from typing import Any, get_type_hints

import typer
from acpc import contract
from acpc.contract.help import comments
from acpc_client import AcpcClient, AnchorArrays, Pair, PlanSession
from acpc_client.calls import options as call_options
from acpc_client.sync.anchors import Anchors
from acpc_client.sync.resources import Checkpoints, Datasets, Operations
from acpc_lab.cli import app
from acpc_lab.cli.study import keys_of_study
from acpc_lab.studies import STUDIES, CheckpointRows
from google.protobuf.descriptor import Descriptor, FieldDescriptor

PROTO = Path(__file__).parents[2] / "proto" / "acpc" / "v1"
RULE = "|---" * 5 + "|"
ARRAYS = ("Tensor", "Goal")
VALUES = (*ARRAYS, "Objective", "PerturbationSpec", "ComparePairRequest", "Duration")
"""Messages that are one parameter each."""

RENAMED = {
    "reference.name": "--reference",
    "dataset.count": "--anchors",
    "source.count": "--anchors",
    "perturbation": "--shift",
    "perturbations.specs": "--shift",
    "*.shifts": "--shift",
    "until_decided.batch": "--until-decided",
    "elite_count": "--elites",
    "show_all": "--all",
    "checkpoint.name": "checkpoint|name",
    "digest": "name",
}
"""Options that are not named as the last part of their field is; of several, the first there is."""
COLUMNS = {
    "checkpoint.name": "checkpoint",
    "checkpoint.weights": "weights",
    "dataset.dataset": "dataset",
    "dataset.task": "preset",
    "anchor_set": "anchor_set",
}
"""Fields that studies read from the columns of ``--checkpoints``."""
NO_OPTION = {
    ("A visual change", "registered.*"): "what an operator has registered is named from Python",
    ("A visual change", "composition.*"): "`gaussian_noise:0.05+jpeg:30` names them",
    ("A visual change", "background.*"): "`background:0.5@plate.npy` reads both from a file",
    ("ComparePairs", "*"): "a stream, for programs; `acpc compare` asks about one pair",
    ("Plan, *", "*"): "a conversation with a running planner; `acpc certify` asks about one pool",
    ("ComparePair", "request_id"): "made for each call",
    ("ComparePair", "*.apply_to"): "a comparison has no goal",
    ("CertifyPool", "request_id"): "made for each call",
    ("CertifyPool", "infeasible"): "an array of `--input`, bool",
    ("PlanPaired", "request_id"): "made for each call",
    ("[LU]*Checkpoint", "request_id"): "made for each call",
    (
        "ScoreCheckpoint",
        "thresholds.[sf]*",
    ): "of the file that `thresholds: FILE` of `--protocol` names",
    ("RunStudy, *", "request_id"): "made from the request: the same command goes on with its jobs",
    (
        "RunStudy, *",
        "checkpoint.digest",
    ): "a file names checkpoints; the study's folder has digests",
    ("*", "*checkpoint.model_digest"): "the digest of the files pins more",
    ("*", "reference.model_digest"): "the digest of the files pins more",
    ("List*", "page_*"): "the client reads page after page",
    ("PreviewAnchors", "*"): "`acpc report` asks for the anchors that decided a score",
    ("UploadAnchors, the header", "expected_digest"): "the client compares the answer's digest",
    ("UploadAnchors, a shard", "*"): "made by the client for each shard",
    ("GetUpload", "*"): "`acpc anchors upload` asks where it goes on",
    ("GetAnchorSet", "neighbourhood"): "`--contents` takes the paper's",
}
"""Why a field has no option, by section and field."""
NO_ARGUMENT = {
    ("ComparePair*", "*.apply_to"): "a comparison has no goal",
    ("Plan, a pool", "iteration"): "counted by the session",
    ("List*", "page_*"): "the client reads page after page",
    ("GetAnchorSet", "contents"): "`anchors.contents` asks for them",
    ("GetAnchorSet", "neighbourhood"): "of `anchors.contents`",
    ("UploadAnchors, the header", "expected_digest"): "the client compares the answer's digest",
    ("UploadAnchors, the header", "horizon"): "read off the arrays",
    ("UploadAnchors, a shard", "*"): "made by the client for each shard",
}
"""Why a field has no argument, by section and field."""


@dataclass(frozen=True)
class Section:
    """What one call takes.

    Attributes:
        title: Name of the method; with what tells messages or studies of it apart.
        prefix: Where its fields are in the messages of the method.
        message: The message that holds them.
        call: The client's function; None for the value of an argument that many take.
        command: Words after ``acpc``; none for programs alone.
        arguments: Arguments that are not named as their field is.
        holder: An argument of a class of the client whose fields are the message's, and the class.
        leaves_out: Members of a oneof that another section has.
    """

    title: str
    prefix: str
    message: Descriptor
    call: Callable[..., Any] | None
    command: str = ""
    arguments: tuple[tuple[str, str], ...] = ()
    holder: tuple[str, type[Any]] | None = None
    leaves_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """One field; a part that is missing is empty."""

    section: Section
    parameter: str
    field: str
    argument: str
    option: str
    words: str


@dataclass(frozen=True)
class _Leaf:
    """A field with the dataclass that declares it, and the arguments and records on the way.

    A name is empty where the dataclass of the message does not have the field.
    """

    path: str
    descriptor: FieldDescriptor
    record: type[Any] | None
    name: str
    way: tuple[tuple[str, type[Any] | None], ...]


def _modules() -> list[Any]:
    return [import_module(f"acpc.v1.{path.stem}_pb2") for path in sorted(PROTO.glob("*.proto"))]


def requests() -> dict[str, Descriptor]:
    """The request message of every method of the contract."""
    return {
        method.name: method.input_type
        for module in _modules()
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }


@cache
def _records() -> dict[str, type[Any]]:
    """The dataclass of each message; of several, the base of the others."""
    known = [item for name in dir(contract) if isinstance(item := getattr(contract, name), type)]
    known.sort(key=lambda cls: -len(cls.__mro__))
    return {
        cls.message_type.DESCRIPTOR.full_name: cls
        for cls in known
        if hasattr(cls, "message_type") and hasattr(cls, "__dataclass_fields__")
    }


def _names(message: Descriptor, record: type[Any] | None) -> dict[str, str]:
    """Field of the message to field of the dataclass."""
    found: dict[str, str] = {}
    for f in fields(record) if record else ():
        wire = f.metadata.get("wire", f.name)
        oneof = message.oneofs_by_name.get(wire)
        found |= {m.name: f.name for m in oneof.fields} if oneof else {wire: f.name}
    return found


def _leaves(
    message: Descriptor, path: str = "", way: tuple[tuple[str, type[Any] | None], ...] = ()
) -> Iterator[_Leaf]:
    record = _records().get(message.full_name)
    names = _names(message, record)
    for f in message.fields:
        name = names.get(f.name, "" if record else f.name)
        here = f"{path}.{f.name}".lstrip(".")
        inner = f.message_type
        if inner is None or inner.name in VALUES or inner.GetOptions().map_entry:
            yield _Leaf(here, f, record if f.name in names else None, name, (*way, (name, None)))
        else:
            step = (name, _records().get(inner.full_name))
            yield from _leaves(inner, here, (*way, step))


@cache
def _accepted(call: Callable[..., Any]) -> frozenset[str]:
    """The arguments of a function of the client, its ``**options`` too."""
    found = set(signature(call).parameters) - {"self"}
    options = re.fullmatch(r"Unpack\[(\w+)\]", call.__annotations__.get("options", ""))
    if options:
        found |= getattr(call_options, options[1]).__optional_keys__
    return frozenset(found)


@cache
def _program() -> Any:  # noqa: ANN401
    return typer.main.get_command(app)


@cache
def _command(command: str) -> Any:  # noqa: ANN401
    found: Any = _program()
    for word in command.split():
        if hasattr(found, "get_command"):
            found = found.get_command(typer.Context(found), word)
    return found


@cache
def _options(command: str) -> frozenset[str]:
    """The options and arguments of a command."""
    params = _command(command).params
    return frozenset(flag for p in params for flag in (*p.opts, *p.secondary_opts))


def _key(command: str, leaf: _Leaf) -> str:
    """The key of ``--protocol`` that sets a field; empty without one."""
    study = command.removeprefix("study run ")
    keys = keys_of_study(STUDIES[study]) if study in STUDIES else _command(command).declared.keys
    near = [key for key in keys if key.rpartition(".")[2] == leaf.name]
    near.sort(key=lambda key: keys[key][0] is not leaf.record)
    return f"`{near[0]}` of `--protocol`" if near else ""


def _reason(reasons: dict[tuple[str, str], str], title: str, path: str) -> str:
    for (section, pattern), reason in reasons.items():
        if fnmatch(title, section) and fnmatch(path, pattern):
            return f"none: {reason}"
    return ""


def _argument(section: Section, leaf: _Leaf) -> str:
    renamed, way = dict(section.arguments), list(leaf.way)
    if section.call is None:
        kind = way[0][1]
        return f"`{kind.__name__}({leaf.name}=)`" if kind else ""
    if leaf.path in renamed:
        way = [(renamed[leaf.path], None)]
    elif section.holder and leaf.name in section.holder[1].__dataclass_fields__:
        way = [section.holder, (leaf.name, None)]
    if way[0][1] is contract.PerturbationSet:
        way = [("perturbations" if way[1][0] == "specs" else way[1][0], None)]
    if way[0][0] not in _accepted(section.call) or not leaf.name:
        return _reason(NO_ARGUMENT, section.title, leaf.path)
    shown = f"{way[-1][0]}="
    for name, record in reversed(way[:-1]):
        shown = f"{name}={record.__name__ if record else ''}({shown})"
    return f"`{shown}`"


def _option(section: Section, leaf: _Leaf) -> str:  # noqa: PLR0911 - a way to set it each
    if section.call is None:
        kind, _, name = leaf.path.partition(".")
        shown = [c for c in contract.CHOICES if c.partition(":")[0] == kind and name.upper() in c]
        return f"`--shift {shown[0]}`" if shown else _reason(NO_OPTION, section.title, leaf.path)
    if not section.command:
        return _reason(NO_OPTION, section.title, leaf.path)
    known, last = _options(section.command), leaf.path.rpartition(".")[2]
    array = leaf.descriptor.message_type is not None and leaf.descriptor.message_type.name in ARRAYS
    if array and ("--input" in known or "file" in known):
        holder = "`--input`" if "--input" in known else "FILE"
        return f"`{'views' if last == 'explicit_views' else last}` in {holder}"
    if "--checkpoints" in known and leaf.path in COLUMNS:
        column = COLUMNS[leaf.path]
        found = column in {f.name for f in CheckpointRows.fields()}
        return f"column `{column}` of `--checkpoints`" if found else ""
    named = [flags.split("|") for pattern, flags in RENAMED.items() if fnmatch(leaf.path, pattern)]
    for flag in (*chain(*named), f"--{last.replace('_', '-')}", last):
        if flag in known:
            return f"`{flag if flag.startswith('-') else flag.upper()}`"
    written = {"weights": "NAME:FILE", "digest": "NAME@DIGEST"}.get(last)
    if written and ("checkpoint" in known or section.command == "show checkpoint"):
        return f"`{'--reference ' * leaf.path.startswith('reference')}{written}`"
    if "--protocol" in known and (key := _key(section.command, leaf)):
        return key
    return _reason(NO_OPTION, section.title, leaf.path)


def rows(section: Section) -> list[Row]:
    """A row per field of a section."""
    found = []
    for leaf in _leaves(section.message):
        if leaf.path.partition(".")[0] in section.leaves_out:
            continue
        field = f"{section.prefix}.{leaf.path}"
        sides = _argument(section, leaf), _option(section, leaf)
        found.append(Row(section, leaf.path, field, *sides, _words(leaf)))
    return found


def _words(leaf: _Leaf) -> str:
    """What the .proto file says of a field, and the choices of an enum."""
    said = comments().get(f"{leaf.descriptor.containing_type.name}.{leaf.descriptor.name}", "")
    hint = get_type_hints(leaf.record)[leaf.name] if leaf.record else None
    if isinstance(hint, type) and issubclass(hint, contract.WireEnum):
        said += f" One of {', '.join(str(value) for value in hint if value)}."
    return said


def _section(
    of: str,
    call: Callable[..., Any],
    command: str = "",
    title: str = "",
    **more: Any,  # noqa: ANN401 - of Section
) -> Section:
    """The section of a method, or of a message inside its request: ``Plan.start``."""
    method, *names = of.split(".")
    message = requests()[method]
    prefix = ".".join((message.name, *names))
    for name in names:
        message = message.fields_by_name[name].message_type
    return Section(
        f"{method}, {title}" if title else method, prefix, message, call, command, **more
    )


def _studies() -> Iterator[Section]:
    names = [f.name for f in requests()["RunStudy"].oneofs_by_name["study"].fields]
    for name in names:
        others = tuple(other for other in names if other != name)
        told = f"study run {name}", f"a {name} study"
        yield _section("RunStudy", AcpcClient.run_study, *told, leaves_out=others)


_SPEC: Descriptor = contract.PerturbationSet.message_type.DESCRIPTOR.fields_by_name[
    "specs"
].message_type
_SET = {"arguments": (("digest", "anchor_set"),)}
_ARRAYS = {"holder": ("anchors", AnchorArrays)}
SECTIONS = (
    Section("A visual change", _SPEC.name, _SPEC, None),
    _section("ScoreCheckpoint", AcpcClient.score_checkpoint, "score"),
    _section("ComparePair", AcpcClient.compare_pair, "compare"),
    _section(
        "ComparePairs",
        AcpcClient.compare_pairs,
        arguments=(("pair", "pairs"),),
        holder=("pairs", Pair),
    ),
    _section("CertifyPool", AcpcClient.certify_pool, "certify"),
    _section("PlanPaired", AcpcClient.plan_paired, "plan-paired"),
    _section("Plan.start", AcpcClient.plan, title="the start"),
    _section("Plan.pool", PlanSession.certify, title="a pool", leaves_out=("proposal",)),
    _section("Plan.pool.proposal", PlanSession.certify_proposal, title="a proposal"),
    *_studies(),
    _section("CreateAnchorSet", Anchors.create, "anchors create"),
    _section(
        "UploadAnchors.header",
        Anchors.upload,
        "anchors upload",
        "the header",
        **_ARRAYS,
    ),
    _section("UploadAnchors.shard", Anchors.upload, "anchors upload", "a shard", **_ARRAYS),
    _section("GetUpload", Anchors.upload),
    _section("GetAnchorSet", Anchors.get, "show anchor-set", **_SET),
    _section("ListAnchorSets", Anchors.list, "list anchor-sets"),
    _section("DeleteAnchorSet", Anchors.delete, "delete anchor-set", **_SET),
    _section("PreviewAnchors", AcpcClient.preview_anchors, arguments=(("name", "job"),)),
    _section("WatchOperation", Operations.watch, "show job"),
    _section("ListDatasets", Datasets.list, "list datasets"),
    _section("ListTasks", Datasets.tasks, "list tasks"),
    _section("ListCheckpoints", Checkpoints.list, "list checkpoints"),
    _section("GetCheckpoint", Checkpoints.get, "show checkpoint"),
    _section("LoadCheckpoint", Checkpoints.load, "load"),
    _section("UnloadCheckpoint", Checkpoints.unload, "load"),
)


def every_field() -> set[str]:
    """Every field of every request, from the descriptors alone."""
    messages = (*requests().values(), _SPEC)
    return {f"{message.name}.{leaf.path}" for message in messages for leaf in _leaves(message)}


def kinds() -> str:
    """The table of what ``--shift`` can name, for the page on perturbations."""
    lines = ["| for example | parameters | what happens |", "|---|---|---|"]
    for choice in contract.CHOICES:
        cls = contract.KINDS[choice.partition(":")[0]]
        parameters = " ".join(f"`{f.name}`: {contract.about(cls, f.name)}" for f in fields(cls))
        lines.append(f"| `{contract.example(cls)}` | {parameters} | {contract.about(cls)} |")
    return "\n".join(lines)


def page() -> str:
    """The page."""
    lines = [
        "# Parameters",
        "",
        "Every field of every request: where it is on the wire, how Python and the command line",
        "set it, and what it is, with its unit, range and default. An option that is not given is",
        "not sent, so the default is the server's.",
    ]
    for section in SECTIONS:
        how = "What `shift=` and `--shift` take"
        if section.call is not None:
            how = f"`{section.call.__qualname__}`"
            how += f" and `acpc {section.command}`" if section.command else ""
        lines += ["", f"## {section.title}", "", f"{how}.", ""]
        lines += ["| parameter | RPC field | Python | command line | what it is |", RULE]
        for row in rows(section):
            cells = (f"`{row.parameter}`", f"`{row.field}`", row.argument, row.option, row.words)
            # Two pairs of brackets beside each other are a link to mkdocs.
            safe = (cell.replace("|", "\\|").replace("] [", "] \\[") for cell in cells)
            lines.append("| " + " | ".join(safe) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
