"""Asks a running server whether it serves: the probe of containers and process managers.

Imports neither torch nor the rest of the server, so that a probe costs a fraction of a second:
``python -m acpc_server.health_check`` is ``acpc-server health`` without their start-up.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import grpc
import typer
from grpc_health.v1 import health_pb2, health_pb2_grpc


def health(
    host: Annotated[str, typer.Option(help="address of the server")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="gRPC port", envvar="ACPC_PORT")] = 50051,
    service: Annotated[
        str, typer.Option(help="full name of a gRPC service; the whole server when empty")
    ] = "",
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
    # A probe asks this very host; a proxy set for downloads must not answer for it.
    options: list[tuple[str, int | str]] = [("grpc.enable_http_proxy", 0)]
    target = f"{host}:{port}"
    if tls_ca is None:
        channel = grpc.insecure_channel(target, options=options)
    else:
        if tls_name:
            options.append(("grpc.ssl_target_name_override", tls_name))
        credentials = grpc.ssl_channel_credentials(tls_ca.read_bytes())
        channel = grpc.secure_channel(target, credentials, options=options)
    with channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(service=service), timeout=timeout
            )
        except grpc.RpcError as error:
            typer.echo(f"{target}: {error.code().name}: {error.details()}", err=True)
            raise typer.Exit(1) from None
    status = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    typer.echo(f"{target}: {status}")
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(health)
