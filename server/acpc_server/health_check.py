"""Asks a running server whether it serves: the probe of containers and process managers.

Imports nothing of the server, so that a probe costs a fraction of a second:
``python -m acpc_server.health_check`` is ``acpc-server health`` without its start-up.
"""

from __future__ import annotations

import http.client
from typing import Annotated

import typer


def health(
    host: Annotated[str, typer.Option(help="where it serves /readyz and /livez")] = "127.0.0.1",
    http_port: Annotated[
        int, typer.Option(help="its metrics port", envvar="ACPC_METRICS_PORT", min=1, max=65535)
    ] = 9464,
    live: Annotated[
        bool, typer.Option("--live", help="ask for liveness: whether the process may go on")
    ] = False,
    timeout: Annotated[float, typer.Option(min=0.1, max=1e6, help="time to wait, seconds")] = 4.0,
) -> None:
    """Exit with 0 when the server serves, with 1 when it does not or cannot be reached.

    Asks over HTTP, without TLS; by gRPC every client of grpc.health.v1 may ask.
    """
    if not host.isprintable():  # as bytes that are no UTF-8 are not
        raise typer.BadParameter(f"found {host!a}, wanted a name", param_hint="--host")
    path = "/livez" if live else "/readyz"
    connection = http.client.HTTPConnection(host, http_port, timeout=timeout)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read(4096).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException, UnicodeError) as error:  # a label of no name
        typer.echo(f"http://{host}:{http_port}{path}: {error}", err=True)
        raise typer.Exit(1) from None
    finally:
        connection.close()
    typer.echo(f"http://{host}:{http_port}{path}: {body}")
    if answer.status != http.HTTPStatus.OK:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(health)
