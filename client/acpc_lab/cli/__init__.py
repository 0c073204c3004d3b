"""The ``acpc`` command."""

from acpc_lab.cli.main import app, main
