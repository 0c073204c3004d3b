"""Makes, lists and revokes API keys in a file that holds no usable secret."""

import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from pydantic import AwareDatetime, Field, ValidationError

from acpc_server.access.access_file import Name, Strict, Tenant, explained
from acpc_server.access.files import read_secret
from acpc_server.access.roles import Role
from acpc_server.errors import FailedPrecondition, NotFound

PREFIX = "acpc_"
_SECRET_BYTES = 32
_KEY = re.compile(rf"{PREFIX}([0-9a-f]{{12}})_([0-9a-f]{{{2 * _SECRET_BYTES}}})")
_NO_DIGEST = "0" * 64
_LAST = datetime.max.replace(tzinfo=UTC, microsecond=0)


class ApiKey(Strict):
    """A key as the file holds it.

    The secret is 256 random bits, so a plain sha256 of it can neither be guessed nor looked up; a
    slow hash protects secrets that people choose.
    """

    id: str = Field(pattern=r"^[0-9a-f]{12}$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    principal: Name
    tenant: Tenant = ""
    roles: frozenset[Role] = Field(min_length=1)
    created: AwareDatetime
    expires: AwareDatetime | None = None


class _KeyFile(Strict):
    version: Literal[1] = 1
    keys: tuple[ApiKey, ...] = ()


class KeyRing:
    """The keys of one state of the file, in the order they were made."""

    def __init__(self, keys: Sequence[ApiKey]) -> None:
        self.keys = keys
        self._by_id = {key.id: key for key in keys}
        self.ids = self._by_id.keys()

    def find(self, token: str) -> ApiKey | None:
        """Return the key that a caller has sent, or None; an unknown id takes as long."""
        match = _KEY.fullmatch(token)
        if match is None:
            return None
        key = self._by_id.get(match[1])
        wanted = key.sha256 if key else _NO_DIGEST
        same = hmac.compare_digest(_digest(match[2]), wanted)
        return key if same else None


def read_keys(path: Path) -> KeyRing:
    """Read a file's keys; FailedPrecondition when it is missing, damaged, or exposed to others."""
    if not os.path.exists(path):  # noqa: PTH110 - Path.exists raises where it may not look
        raise FailedPrecondition(
            f"there is no key file {path}; make one with: "
            f"acpc-server keys create --file {path} --name <who> --role read"
        )
    data = read_secret(path)
    try:
        content = _KeyFile.model_validate_json(data)
    except ValidationError as error:
        raise FailedPrecondition(f"{path}: {explained(error)}") from error
    if len({key.id for key in content.keys}) != len(content.keys):
        raise FailedPrecondition(f"{path}: keys: two keys have one id; revoke it and make new ones")
    return KeyRing(content.keys)


def create_key(
    path: Path, *, principal: str, tenant: str, roles: frozenset[Role], expires: datetime | None
) -> str:
    """Add a key to a file, made when it is missing, and return what its owner sends.

    FailedPrecondition: the file cannot be used, or an argument is out of its range.
    """
    key, text = _new(principal=principal, tenant=tenant, roles=roles, expires=expires)
    with _locked(path) as file:
        _write(file, [*(read_keys(file).keys if file.exists() else ()), key])
    return text


def _new(**given: Any) -> tuple[ApiKey, str]:  # noqa: ANN401 - fields of a key
    """Make a key, and the text that its owner sends."""
    identity, secret = secrets.token_hex(6), secrets.token_hex(_SECRET_BYTES)
    made: dict[str, Any] = {
        "sha256": _digest(secret),
        "created": datetime.now(UTC).replace(microsecond=0),
    }
    try:
        return ApiKey(id=identity, **made, **given), f"{PREFIX}{identity}_{secret}"
    except ValidationError as error:
        raise FailedPrecondition(explained(error)) from error


def rotate_key(path: Path, identity: str, overlap: timedelta) -> tuple[ApiKey, str]:
    """Add a key for the owner of another, which ends after ``overlap``.

    Returns the old key as it is now, and what its owner sends from now on. The new one lasts as
    long as the old one was made for. NotFound: there is no such key.
    """
    with _locked(path) as file:
        keys, was = _found(file, identity)
        now = datetime.now(UTC).replace(microsecond=0)
        lasts = (was.expires or now) - was.created  # less than nothing, by hand or a wrong clock
        key, text = _new(
            principal=was.principal,
            tenant=was.tenant,
            roles=was.roles,
            expires=was.expires and now + max(timedelta(), min(lasts, _LAST - now)),
        )
        ends = min(now + overlap, was.expires or now + overlap)
        old = was.model_copy(update={"expires": ends})
        _write(file, [*(old if one is was else one for one in keys), key])
    return old, text


def revoke_key(path: Path, identity: str) -> ApiKey:
    """Remove a key, or raise NotFound; servers that read the file reject it from then on."""
    with _locked(path) as file:
        keys, gone = _found(file, identity)
        _write(file, [key for key in keys if key is not gone])
    return gone


def _found(path: Path, identity: str) -> tuple[Sequence[ApiKey], ApiKey]:
    keys = read_keys(path).keys
    for key in keys:
        if key.id == identity:
            return keys, key
    raise NotFound(f"{path} holds no key {identity}; see: acpc-server keys list")


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


@contextmanager
def _locked(path: Path) -> Iterator[Path]:
    """Lock the file's folder against other commands; gives what a link leads to, as servers read.

    So a link stays one.
    """
    path = Path(os.path.realpath(path))
    if path.is_symlink():
        raise FailedPrecondition(f"{path} is a link that leads to itself")
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise FailedPrecondition(f"cannot open {path.parent} ({error.strerror})") from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield path
        os.fsync(folder)  # a key that was revoked does not come back with the power
    finally:
        os.close(folder)


def _write(path: Path, keys: Sequence[ApiKey]) -> None:
    """Replace the file as a whole, readable by its owner only, who stays its owner."""
    content = _KeyFile(keys=tuple(keys)).model_dump(mode="json")
    for key in content["keys"]:
        key["roles"].sort()
    written = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            if path.exists():  # root's revocation must not take the file from the server
                was = path.stat()
                os.fchown(file.fileno(), was.st_uid, was.st_gid)
            file.write(json.dumps(content, indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        written.replace(path)
    except OSError as error:
        raise FailedPrecondition(f"cannot write {path} ({error.strerror})") from error
    finally:
        written.unlink(missing_ok=True)
