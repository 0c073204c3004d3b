"""Profiles: named connections in a file of the user, and what the environment says of one."""

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer
from acpc.contract import did_you_mean
from acpc_client import write_whole
from acpc_client.errors import ArgumentError, FailedPrecondition, NotFound

_PATHS = ("tls_ca", "client_certificate", "client_key", "token_file")
KEYS: Mapping[str, type] = {
    "target": str, "tls_ca": str, "tls_name": str, "client_certificate": str, "client_key": str,
    "token_file": str, "insecure": bool, "timeout": float, "patience": float,
}  # fmt: skip
"""What a profile may say; each is also a variable, ``target`` being ``ACPC_TARGET``."""
Profiles = dict[str, dict[str, Any]]


def file() -> Path:
    """Where the profiles are kept."""
    return Path(typer.get_app_dir("acpc")) / "config.toml"


def read() -> tuple[str, Profiles]:
    """The name of the profile in use, empty for none, and all profiles.

    Raises FailedPrecondition: The file cannot be read, or says something else.
    """
    try:
        held = tomllib.loads(file().read_text(encoding="utf-8"))
        profiles = {name: dict(profile) for name, profile in held.pop("profiles", {}).items()}
        current = str(held.pop("current", ""))
    except FileNotFoundError:
        return "", {}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise FailedPrecondition(f"{file()}: cannot be read as profiles: {error}") from error
    for name, profile in profiles.items():
        for key, value in profile.items():
            if KEYS.get(key) is not type(value) and not (
                KEYS.get(key) is float and type(value) is int
            ):
                raise FailedPrecondition(
                    f"{file()}: profile {name}: {key} = {value!r} is not known"
                )
    return current, profiles


def variables() -> dict[str, Any]:
    """What the environment says of the connection."""
    found = {name: os.environ.get(f"ACPC_{name.upper()}") for name in KEYS}
    return {name: value_of(name, text) for name, text in found.items() if text}


def chosen(name: str | None, *, named_elsewhere: bool) -> dict[str, Any]:
    """A profile; the one in use, where the server is not ``named_elsewhere``.

    Raises NotFound: There is none of the name.
    """
    current, profiles = read() if name or not named_elsewhere else ("", {})
    name = name or current
    if name and name not in profiles:
        hint = did_you_mean(name, profiles, "acpc config list shows all")
        raise NotFound(f"there is no profile {name!r}; {hint}")
    return dict(profiles[name]) if name else {}


def value_of(key: str, text: str) -> Any:  # noqa: ANN401 - of the key's type
    """A value of a profile, as its key wants it; files by their whole path.

    Raises ArgumentError: There is no such key, or it takes another value.
    """
    if key not in KEYS:
        raise ArgumentError(key, did_you_mean(key, KEYS, f"known keys: {', '.join(KEYS)}"))
    if KEYS[key] is bool:
        if text.lower() not in ("true", "false", "1", "0"):
            raise ArgumentError(key, f"found {text!r}, wanted true or false")
        return text.lower() in ("true", "1")
    if KEYS[key] is float:
        try:
            return float(text)
        except ValueError:
            raise ArgumentError(key, f"found {text!r}, wanted seconds") from None
    if key in _PATHS:
        path = Path(text).expanduser().absolute()
        if not path.is_file():
            raise ArgumentError(key, f"there is no file {path}")
        return str(path)
    return text


def write(current: str, profiles: Profiles) -> None:
    """Writes the file, which nobody else may read."""
    lines = [f"current = {_toml(current)}"] if current else []
    for name, profile in sorted(profiles.items()):
        lines += ["", f"[profiles.{_toml(name)}]"]
        lines += [f"{key} = {_toml(value)}" for key, value in profile.items()]
    file().parent.mkdir(parents=True, exist_ok=True)
    write_whole(file(), "\n".join([*lines, ""]).encode())
    file().chmod(0o600)


def _toml(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
