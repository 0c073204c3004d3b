"""The ``acpc`` command."""

from acpc_client.cli.main import app, main

__all__ = ["app", "main"]
