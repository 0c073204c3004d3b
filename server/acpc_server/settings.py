"""The server's settings: flags of ``acpc-server serve``, and ``ACPC_*`` variables."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from acpc_server.errors import FailedPrecondition

MEBIBYTE = 1024 * 1024
CENTURY = 36_500  # days: a date that is further off may be none
# Longest path of a socket.
PATH_BYTES = 107


def _folder(path: Path) -> Path:
    if not os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises of a name that is too long
        raise ValueError(f"{_shown(path)} is not a folder")
    return path.resolve()


def _file(path: Path) -> Path:
    if not os.path.isfile(path):  # noqa: PTH113
        raise ValueError(f"{_shown(path)} is not a file")
    return path


def _shown(path: Path) -> str:
    """A path as text that any error may hold: bytes that are no UTF-8 are escaped."""
    return str(path).encode(errors="backslashreplace").decode()


def _host(name: str) -> str:
    if name.startswith("unix:"):
        if len(os.fsencode(name.removeprefix("unix:"))) > PATH_BYTES:
            raise ValueError(f"the path of a socket has at most {PATH_BYTES} bytes")
        return name
    try:
        name.encode("idna")
    except UnicodeError:
        raise ValueError(f"found {name!a}, wanted the name or the address of a host") from None
    return name


def sqlite_url(file: Path) -> str:
    """The URL of a database in a file, whose path may hold what means something in a URL.

    Raises FailedPrecondition: One that a URL cannot tell: no UTF-8, or ? before SQLAlchemy 2.1.
    """
    path, url = str(file.resolve()), ""
    with suppress(UnicodeEncodeError):
        url = URL.create("sqlite", database=path).render_as_string()
    if not url or make_url(url).database != path:
        raise FailedPrecondition(
            f"no URL can tell the path of the job record, {_shown(file)}; choose another "
            "--state-dir"
        )
    return url


Host = Annotated[str, AfterValidator(_host)]
Folder = Annotated[Path, AfterValidator(_folder)]
File = Annotated[Path, AfterValidator(_file)]
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]


class Settings(BaseSettings):
    """The settings; flags, which are given by name, win over variables."""

    model_config = SettingsConfigDict(
        env_prefix="ACPC_", extra="forbid", use_attribute_docstrings=True
    )

    checkpoint_root: Folder
    """folder that holds the checkpoint folders"""
    dataset_root: Folder
    """folder that holds HDF5 datasets and task files"""
    state_dir: Path = Path("acpc-state")
    """folder for the job record; made when missing"""
    jobs_url: str = ""
    """database of the job record; default is SQLite in the state folder"""
    host: Host = "127.0.0.1"
    """address gRPC listens on, or a Unix socket, as unix:/run/acpc/acpc.sock, without a port"""
    port: int = Field(50051, ge=0, le=65535)
    """port gRPC listens on; 0 picks one"""
    share_port: bool = False
    """let other servers of this user, as one for each device, listen on the port too; all need
    the same --jobs-url and --anchor-dir"""
    metrics_host: Host = "127.0.0.1"
    """address /metrics, /livez and /readyz listen on"""
    metrics_port: int = Field(9464, ge=-1, le=65535)
    """port of these three; 0 picks one, -1 turns it off"""
    tls_certificate: File | None = None
    """PEM certificate chain; enables TLS"""
    tls_key: File | None = None
    """PEM private key"""
    tls_client_ca: File | None = None
    """PEM authorities of client certificates; every client then needs one"""
    keys_file: Path | None = None
    """file of API keys, made by acpc-server keys create"""
    insecure: bool = False
    """listen beyond this machine without TLS, or without asking who calls"""
    device: str = "auto"
    """cpu, auto, or a GPU: cuda, cuda:1"""
    device_call_seconds: Positive = 300.0
    """time one device call may take, seconds; a server whose call takes longer gives its device
    up and exits"""
    max_message_mib: int = Field(64, ge=1, le=1024)
    """largest message, MiB"""
    compile: Literal["auto", "now", "off"] = "auto"
    """compile predictors' steps for the processor, in the background: those that come often, or
    all from the first call; needs a C++ compiler, and computes on a CPU alone"""
    merge_requests: bool = True
    """batch interactive requests that wait together into one device call"""
    checkpoint_budget_mib: Count = 4096
    """weights kept on the device, MiB; least recently used go first, and a file that takes more
    than half is not loaded; latents of recent requests take a sixteenth as much"""
    preload: str = ""
    """checkpoints to load before the server is ready, and to keep, as lewm,lewm-base; then their
    first calls wait for no file"""
    job_concurrency: int = Field(1, ge=1, le=64)
    """jobs run at a time"""
    job_lease_seconds: float = Field(20.0, gt=0, le=86_400)
    """time without a heartbeat after which another server takes over this one's jobs, seconds;
    the same on all servers"""
    job_retention_days: float = Field(30.0, ge=0, le=CENTURY)
    """time a finished job is kept, days; 0 keeps all"""
    anchor_dir: Path | None = None
    """folder for anchor sets; default is anchors in the state folder"""
    anchor_store_mib: Count = 102_400
    """bytes of all anchor sets and unfinished uploads, MiB"""
    anchor_keep_days: float = Field(90.0, ge=0, le=CENTURY)
    """how long an anchor set is kept after its last use, days; 0 keeps all"""
    lame_duck_seconds: float = Field(5.0, ge=0, le=3600)
    """seconds to accept calls after health turns NOT_SERVING; longer than load balancers take to
    notice"""
    drain_seconds: float = Field(10.0, ge=0, le=3600)
    """time open calls get to finish when the server stops, seconds"""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """lowest level logged; lines are JSON, and text on a terminal"""

    @field_validator("device")
    @classmethod
    def _device(cls, value: str) -> str:
        kind, colon, index = value.partition(":")
        numbered = kind == "cuda" and index.isdecimal()
        if kind not in ("auto", "cpu", "cuda") or (colon and not numbered):
            raise ValueError("use cpu, auto, cuda or cuda:1")
        return value

    @field_validator("jobs_url")
    @classmethod
    def _jobs_url(cls, value: str) -> str:
        if not value:
            return value
        try:
            make_url(value)
        except (ArgumentError, ValueError) as error:  # a port may be no number
            raise ValueError(f"not a database URL ({error})") from error
        if not value.startswith(("sqlite:///", "postgresql://")):
            raise ValueError("use sqlite:///<path> or postgresql://<user>@<host>/<database>")
        return value

    @model_validator(mode="after")
    def _together(self) -> Self:
        plain = self.tls_certificate is None
        for name, wrong, why in (
            ("share_port", self.share_port and not self.jobs_url,
             "give all one --jobs-url, or jobs are not found"),
            ("anchor_dir", self.share_port and self.anchor_dir is None,
             "give all that share the port one, or anchor sets are not found"),
            ("tls_key", (self.tls_key is None) != plain,
             "TLS needs both --tls-certificate and --tls-key, or neither"),
            ("tls_client_ca", self.tls_client_ca is not None and plain,
             "client certificates need TLS: --tls-certificate and --tls-key"),
        ):  # fmt: skip
            if wrong:
                raise ValueError(f"{name}: {why}")
        return self

    @property
    def anchor_folder(self) -> Path:
        """The folder of the anchor sets."""
        return self.anchor_dir or self.state_dir / "anchors"

    @property
    def database_url(self) -> str:
        """The URL of the job record."""
        return self.jobs_url or sqlite_url(self.state_dir / "jobs.sqlite")


for _field in Settings.model_fields.values():
    _field.description = " ".join((_field.description or "").split())
