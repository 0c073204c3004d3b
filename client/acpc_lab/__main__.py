"""Entry point of ``acpc``; says what to install when the extra [lab] is missing."""

from acpc.extras import explained, load_command


def main() -> None:
    """Runs the command line."""
    with explained("acpc", "lab"):  # commands are imported when they are used
        load_command("acpc", "acpc_lab.cli", "lab").main()


if __name__ == "__main__":
    main()
