"""Makes, lists and revokes API keys in a file that holds no usable secret."""

import fcntl
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, Field, StringConstraints, ValidationError

from acpc_server.access.files import read_secret
from acpc_server.access.roles import Role
from acpc_server.errors import FailedPrecondition, NotFound

PREFIX = "acpc_"
_SECRET_BYTES = 32
_KEY = re.compile(rf"{PREFIX}([0-9a-f]{{12}})_([0-9a-f]{{{2 * _SECRET_BYTES}}})")
_NO_DIGEST = "0" * 64
Name = Annotated[str, StringConstraints(pattern=r"^[!-~]{1,256}$")]


class ApiKey(BaseModel, extra="forbid", frozen=True):
    """A key as the file holds it.

    The secret is 256 random bits, so a plain sha256 of it can neither be guessed nor looked up; a
    slow hash protects secrets that people choose.
    """

    id: str = Field(pattern=r"^[0-9a-f]{12}$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    name: Name
    role: Role
    created: AwareDatetime
    expires: AwareDatetime | None = None

    def over(self) -> bool:
        """Whether it has expired."""
        return self.expires is not None and datetime.now(UTC) >= self.expires


class KeyFile(BaseModel, extra="forbid", frozen=True):
    """The keys of one state of the file, in the order they were made.

    ``certificates`` has the roles of client certificates whose role is not the usual one.
    """

    version: Literal[2] = 2
    keys: tuple[ApiKey, ...] = ()
    certificates: Mapping[Name, Role] = {}

    @cached_property
    def _by_id(self) -> dict[str, ApiKey]:
        return {key.id: key for key in self.keys}

    def find(self, token: str) -> ApiKey | None:
        """Return the key that a caller has sent, or None; an unknown id takes as long."""
        match = _KEY.fullmatch(token)
        if match is None:
            return None
        key = self._by_id.get(match[1])
        same = hmac.compare_digest(_digest(match[2]), key.sha256 if key else _NO_DIGEST)
        return key if same else None


def read_keys(path: Path) -> KeyFile:
    """Read a file's keys; FailedPrecondition when it is missing, damaged, or exposed to others."""
    if not os.path.exists(path):  # noqa: PTH110 - Path.exists raises where it may not look
        raise FailedPrecondition(
            f"there is no key file {path}; make one with: "
            f"acpc-server keys create --file {path} --name <who> --role read"
        )
    data = read_secret(path)
    try:
        return KeyFile.model_validate_json(data)
    except ValidationError as error:
        raise FailedPrecondition(f"{path}: {_explained(error)}") from error


def create_key(path: Path, name: str, role: Role, expires: datetime | None = None) -> str:
    """Add a key to a file, made when it is missing, and return what its owner sends.

    FailedPrecondition: the file cannot be used, or the name has a space or is no text.
    """
    identity, secret = secrets.token_hex(6), secrets.token_hex(_SECRET_BYTES)
    now = datetime.now(UTC).replace(microsecond=0)
    made = {"id": identity, "sha256": _digest(secret), "created": now, "expires": expires}
    with _changing(path) as content:
        content["keys"].append({**made, "name": name, "role": role})
    return f"{PREFIX}{identity}_{secret}"


def revoke_key(path: Path, identity: str) -> ApiKey:
    """Remove a key, or raise NotFound; servers that read the file reject it from then on."""
    with _changing(path) as content:
        for key in content["keys"]:
            if key["id"] == identity:
                content["keys"].remove(key)
                return ApiKey(**key)
        raise NotFound(f"{path} holds no key {identity}; see: acpc-server keys list")


def set_certificate_role(path: Path, name: str, role: Role) -> None:
    """Give the client certificates of a name a role; raises as :func:`create_key`."""
    with _changing(path) as content:
        content["certificates"][name] = role


def _explained(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    return ": ".join(filter(None, [".".join(map(str, first["loc"])), first["msg"]]))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


@contextmanager
def _changing(path: Path) -> Iterator[dict[str, Any]]:
    """Give the file's content to change, and write it unless that raises; one command at a time.

    A link stays one. The file is replaced as a whole, readable by its owner only, who stays its
    owner.
    """
    path = Path(os.path.realpath(path))
    written = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise FailedPrecondition(f"cannot open {path.parent} ({error.strerror})") from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        was = read_keys(path) if os.path.lexists(path) else KeyFile()
        yield (content := was.model_dump(mode="json"))
        text = KeyFile.model_validate(content).model_dump_json(indent=2)
        with os.fdopen(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            if path.exists():  # root's revocation must not take the file from the server
                os.fchown(file.fileno(), path.stat().st_uid, path.stat().st_gid)
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        written.replace(path)
        os.fsync(folder)  # a key that was revoked does not come back with the power
    except ValidationError as error:
        raise FailedPrecondition(_explained(error)) from error
    except OSError as error:
        raise FailedPrecondition(f"cannot write {path} ({error.strerror})") from error
    finally:
        written.unlink(missing_ok=True)
        os.close(folder)
