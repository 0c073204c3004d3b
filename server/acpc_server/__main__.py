"""Entry point of ``acpc-server``; says what to install when [server] is missing."""

import json
import os
import signal
import sys
from datetime import UTC, datetime

from acpc.extras import load_command

# Rounds, about a quarter of a millisecond, that a thread of torch waits for the others before it
# sleeps. By default it spins for whole turns of the scheduler; without any spinning a rollout on an
# idle machine takes half as long again.
SPIN_COUNT = "20000"


def main() -> None:
    """Runs the command line."""
    # The OpenMP library reads it once, when torch is imported.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)
    # gRPC's C library reads it once too. Its lines are no JSON, and say what callers did wrong.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    serves = sys.argv[1:2] == ["serve"] and not {"-h", "--help"} & set(sys.argv)
    if serves:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it never ends a server
        _say_loading()
    # An import loads torch only once it has looked through the files.
    alone = sys.argv[1:2] == ["import"]
    module = "acpc_server.import_command" if alone else "acpc_server.cli"
    command = load_command("acpc-server", module, "server")
    try:
        command.main()
    except SystemExit as ended:
        if not serves or not isinstance(ended.code, int):
            raise
        # A server that could not start leaves threads, in whose company Python's own end may fail.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ended.code)


def _say_loading() -> None:
    """Says why nothing happens for some seconds: torch is imported before logs are set up."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    line = {"event": "loading", "logger": "acpc.app", "level": "info", "timestamp": now}
    text = "acpc-server: loading torch" if sys.stderr.isatty() else json.dumps(line)
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
