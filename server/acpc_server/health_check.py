"""Asks a running server whether it serves: the probe of containers and process managers.

Imports neither torch nor the rest of the server, so that a probe costs a fraction of a second:
``python -m acpc_server.health_check`` is ``acpc-server health`` without their start-up.
"""

from __future__ import annotations

import http.client
import os
from pathlib import Path
from typing import Annotated

import grpc
import typer
from grpc_health.v1 import health_pb2, health_pb2_grpc

_HERE, _PORT = "127.0.0.1", 50051
Target = Annotated[
    str,
    typer.Option(
        "--target",
        "--host",
        metavar="HOST:PORT",
        help="the server, its host alone, or unix:/run/acpc/acpc.sock; else $ACPC_TARGET, else "
        "this host",
    ),
]
Port = Annotated[int | None, typer.Option(help="its port, where HOST has none", envvar="ACPC_PORT")]


def health(
    given: Target = "",
    port: Port = None,
    service: Annotated[
        str, typer.Option(help="full name of a gRPC service; the whole server when empty")
    ] = "",
    live: Annotated[
        bool, typer.Option("--live", help="ask for liveness: whether the process may go on")
    ] = False,
    http_port: Annotated[
        int | None,
        typer.Option(
            help="ask this metrics port, /readyz or /livez, without TLS", min=1, max=65535
        ),
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, max=1e6, help="time to wait, seconds")] = 4.0,
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            help="PEM certificates to trust, the server's own will do; enables TLS",
            envvar="ACPC_TLS_CERTIFICATE",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    tls_name: Annotated[
        str, typer.Option(help="name in the server's certificate, when it is not the host")
    ] = "",
) -> None:
    """Exit with 0 when the server serves, with 1 when it does not or cannot be reached."""
    target = _target(given, port)
    _require_names(target=target, service=service, tls_name=tls_name)
    if http_port is not None:
        asked = target.rpartition(":")[0].strip("[]")
        _ask_http(asked, http_port, "/livez" if live else "/readyz", timeout)
        return
    channel = _channel(target, tls_ca, tls_name)
    with channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(service="liveness" if live else service),
                timeout=timeout,
            )
        except grpc.RpcError as error:
            typer.echo(f"{target}: {error.code().name}: {error.details()}", err=True)
            raise typer.Exit(1) from None
    status = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    typer.echo(f"{target}: {status}")
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        raise typer.Exit(1)


def _target(given: str, port: int | None) -> str:
    """The address that the options and ``ACPC_TARGET`` name."""
    if not given and port is None:
        given = os.environ.get("ACPC_TARGET", "")
    whole = given.startswith("unix:") or given.rpartition(":")[2].isdigit()
    return given if whole else f"{given or _HERE}:{port or _PORT}"


def _require_names(**given: str) -> None:
    for name, text in given.items():
        if not text.isprintable():  # as bytes that are no UTF-8 are not
            flag = f"--{name.replace('_', '-')}"
            raise typer.BadParameter(f"found {text!a}, wanted a name", param_hint=flag)


def _channel(target: str, tls_ca: Path | None, tls_name: str) -> grpc.Channel:
    # A probe asks this very host; a proxy set for downloads must not answer for it.
    options: list[tuple[str, int | str]] = [("grpc.enable_http_proxy", 0)]
    if tls_ca is None:
        return grpc.insecure_channel(target, options=options)
    if tls_name:
        options.append(("grpc.ssl_target_name_override", tls_name))
    credentials = grpc.ssl_channel_credentials(tls_ca.read_bytes())
    return grpc.secure_channel(target, credentials, options=options)


def _ask_http(host: str, port: int, path: str, timeout: float) -> None:
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read(4096).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException, UnicodeError) as error:  # a label of no name
        typer.echo(f"http://{host}:{port}{path}: {error}", err=True)
        raise typer.Exit(1) from None
    finally:
        connection.close()
    typer.echo(f"http://{host}:{port}{path}: {body}")
    if answer.status != http.HTTPStatus.OK:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(health)
