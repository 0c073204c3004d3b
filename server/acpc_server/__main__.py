"""Entry point of ``acpc-server``; says what to install when [server] is missing."""

from acpc.extras import load_command


def main() -> None:
    """Runs the command line."""
    load_command("acpc-server", "acpc_server.cli", "server").main()


if __name__ == "__main__":
    main()
