"""Which server is asked, and how to get in; ``acpc config``."""

import json
import os
import tomllib
from contextlib import AbstractContextManager
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from acpc.contract import did_you_mean
from acpc_client import DEFAULT_TARGET, AcpcClient, make_access, write_whole
from acpc_client.errors import ArgumentError, FailedPrecondition, NotFound

from acpc_lab.cli import render
from acpc_lab.cli.command import SERVER, Options
from acpc_lab.cli.options import Printed, left_soon
from acpc_lab.tables import Quantity

KEYS: dict[str, type] = {
    "target": str, "tls_ca": Path, "tls_name": str, "client_certificate": Path, "client_key": Path,
    "token_file": Path, "insecure": bool, "timeout": float, "patience": float,
}  # fmt: skip
"""What a profile may say; each is also a variable, ``target`` being ``ACPC_TARGET``."""
_HELD: dict[Any, tuple[Any, ...]] = {Path: (str,), float: (float, int)}
"""What stands in the file for values that it has no type for, or two."""
Profiles = dict[str, dict[str, Any]]
_toml = partial(json.dumps, ensure_ascii=False)


def _file() -> Path:
    return Path(typer.get_app_dir("acpc")) / "config.toml"


def _read() -> tuple[str, Profiles]:
    """The name of the profile in use, empty for none, and all profiles."""
    try:
        held = tomllib.loads(_file().read_text(encoding="utf-8"))
        profiles = {name: dict(profile) for name, profile in held.pop("profiles", {}).items()}
        current = str(held.pop("current", ""))
    except FileNotFoundError:
        return "", {}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise FailedPrecondition(f"{_file()}: cannot be read as profiles: {error}") from error
    for name, profile in profiles.items():
        for key, value in profile.items():
            kind = KEYS.get(key)
            if type(value) not in _HELD.get(kind, (kind,)):
                wrong = f"profile {name}: {key} = {value!r} is not known"
                raise FailedPrecondition(f"{_file()}: {wrong}")
    return current, profiles


def _write(current: str, profiles: Profiles) -> None:
    """Writes the file, which nobody else may read."""
    lines = [f"current = {_toml(current)}"] if current else []
    for name, profile in sorted(profiles.items()):
        lines += ["", f"[profiles.{_toml(name)}]"]
        lines += [f"{key} = {_toml(value)}" for key, value in profile.items()]
    _file().parent.mkdir(parents=True, exist_ok=True)
    write_whole(_file(), "\n".join([*lines, ""]).encode())
    _file().chmod(0o600)


def _chosen(name: str | None, *, named_elsewhere: bool) -> dict[str, Any]:
    """A profile; the one in use, where the server is not ``named_elsewhere``."""
    current, profiles = _read() if name or not named_elsewhere else ("", {})
    name = name or current
    if name and name not in profiles:
        hint = did_you_mean(name, profiles, "acpc config list shows all")
        raise NotFound(f"there is no profile {name!r}; {hint}")
    return dict(profiles[name]) if name else {}


def _value_of(key: str, text: str) -> str | bool | float:
    """A value of a profile, as its key wants it; files by their whole path."""
    kind = KEYS.get(key)
    if kind is None:
        raise ArgumentError(key, did_you_mean(key, KEYS, f"known keys: {', '.join(KEYS)}"))
    if kind is bool:
        if text.lower() not in ("true", "false", "1", "0"):
            raise ArgumentError(key, f"found {text!r}, wanted true or false")
        return text.lower() in ("true", "1")
    if kind is float:
        try:
            return float(text)
        except ValueError:
            raise ArgumentError(key, f"found {text!r}, wanted seconds") from None
    if kind is str:
        return text
    path = Path(text).expanduser().absolute()
    if not path.is_file():
        raise ArgumentError(key, f"there is no file {path}")
    return str(path)


class Server(Options):
    """The server to ask. How to get in is said by a profile, or by variables (`acpc config`).

    Attributes:
        profile: A connection of `acpc config` [the one in use].
    """

    target: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help=f"The server; several: A:PORT,B:PORT [ACPC_TARGET, profile, {DEFAULT_TARGET}].",
            callback=lambda ctx, value: value or ctx.find_root().params.get("target"),
            rich_help_panel=SERVER,
        ),
    ] = None
    profile: Annotated[
        str | None, typer.Option(envvar="ACPC_PROFILE", metavar="NAME", rich_help_panel=SERVER)
    ] = None

    def connection(self) -> dict[str, Any]:
        """What the option, the variables and the profile say."""
        found = {key: os.environ.get(f"ACPC_{key.upper()}") for key in KEYS}
        asked: dict[str, Any] = {key: _value_of(key, text) for key, text in found.items() if text}
        if self.target:
            asked["target"] = self.target
        return _chosen(self.profile, named_elsewhere="target" in asked) | asked

    @cached_property
    def timeout(self) -> float | None:
        """Seconds of a call, or of a wait for jobs."""
        return self.connection().get("timeout")

    def client(self, **options: Any) -> AcpcClient:  # noqa: ANN401
        known = self.connection()
        waits = {name: known.pop(name, None) for name in ("timeout", "patience")}
        where = known.pop("target", None) or DEFAULT_TARGET
        insecure = {"insecure": True} if known.pop("insecure", False) else {}
        entry: Any = make_access(**known, api_key=os.environ.get("ACPC_API_KEY"))
        return AcpcClient(where, **{**entry, **insecure, **waits, **options})

    def connect(self) -> AbstractContextManager[AcpcClient]:
        """A client that says when its server is away, and is left without a long wait."""
        return left_soon(self.client(on_away=render.presence))


class Config(Printed):
    """Keeps connections as profiles: which server, and how to get in.

    A profile holds `target`, `tls_ca`, `tls_name`, `client_certificate`, `client_key`,
    `token_file`, `insecure`, `timeout` (seconds of a call, or of a wait) and `patience` (seconds
    that the server may be away). Each is also a variable, as `ACPC_TARGET`, which wins over the
    profile; an API key itself has a variable only, `ACPC_API_KEY`. `--profile` or `ACPC_PROFILE`
    names a profile; without it the one in use counts, unless a target is named another way.

    **Examples**

        acpc config set target=gpu-host:50051 token_file=planner.key --profile lab
        acpc config use lab
        acpc config list

    Attributes:
        action: What to do.
        words: To set, to unset; or to use.
        profile: The profile to change [the one in use, or default].
    """

    action: Annotated[Literal["list", "set", "unset", "use", "delete"], typer.Argument()] = "list"
    words: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE|KEY|PROFILE]...")] = None
    profile: str = ""

    def __call__(self) -> None:
        current, held = _read()
        if self.action == "list":
            rows = [{"profile": name, **profile} for name, profile in sorted(held.items())]
            used = Quantity("in use", lambda row: row["profile"] == current)
            more = (Quantity(key, key, wide=key != "target") for key in KEYS)
            render.listing(rows, [Quantity("profile", "profile"), used, *more], dict)
            return
        name = self.profile or current or "default"
        for word in self.words or ():
            if self.action in ("use", "delete"):
                _chosen(word, named_elsewhere=False)
                current = word if self.action == "use" else current
                if self.action == "delete":
                    held.pop(word)
                current = current if current in held else ""
            else:
                key, _, text = word.partition("=")
                held.setdefault(name, {}).pop(key, None)
                if self.action == "set":
                    held[name][key] = _value_of(key, text)
                current = current or name
        _write(current, held)
        render.note(f"{_file()}: written")
