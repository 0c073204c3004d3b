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


def health(
    given: Annotated[
        str,
        typer.Option(
            "--target",
            metavar="HOST:PORT",
            help="the server, or unix:/run/acpc/acpc.sock; else --host and --port, else "
            "$ACPC_TARGET, else port 50051 of this host",
        ),
    ] = "",
    host: Annotated[str, typer.Option(help="its host alone")] = "",
    port: Annotated[int | None, typer.Option(help="its port alone", envvar="ACPC_PORT")] = None,
    service: Annotated[
        str, typer.Option(help="full name of a gRPC service; the whole server when empty")
    ] = "",
    live: Annotated[
        bool, typer.Option("--live", help="ask for liveness: whether the process may go on")
    ] = False,
    http_port: Annotated[
        int | None,
        typer.Option(help="ask /readyz or /livez on the metrics port, which needs no TLS"),
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="time to wait, seconds")] = 4.0,
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
    target = given
    if not target and (host or port):
        local = host or _HERE
        target = local if local.startswith("unix:") else f"{local}:{port or _PORT}"
    target = target or os.environ.get("ACPC_TARGET") or f"{_HERE}:{_PORT}"
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
        said = answer.read(4096).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        typer.echo(f"http://{host}:{port}{path}: {error}", err=True)
        raise typer.Exit(1) from None
    finally:
        connection.close()
    typer.echo(f"http://{host}:{port}{path}: {said}")
    if answer.status != http.HTTPStatus.OK:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(health)
