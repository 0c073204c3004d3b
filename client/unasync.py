"""Generate the blocking client from the asyncio one, or check that it is current.

python client/unasync.py           write the modules of SOURCES
python client/unasync.py --check   exit 1 when a committed one has drifted

What differs in kind is written by hand for each: channels and locks in ``wire.py``, planning
streams in ``streams.py``.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent / "acpc_client"
SOURCES = {
    f"aio/{name}.py": f"sync/{name}.py"
    for name in ("anchors", "client", "planning", "resources", "session", "transport", "uploads")
}
REPLACED = (
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAsyncGenerator\[(\w+), None\]", r"Generator[\1, None, None]"),
    (r"\bAsyncGenerator\b", "Generator"),
    (r"\bAsync(Transport|Wire)\b", r"Sync\1"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\basync_send_upload\b", "send_upload"),
    (r"\baclosing\b", "closing"),
    (r"__a(enter|exit)__", r"__\1__"),
    (r"\bacpc_client\.aio\b", "acpc_client.sync"),
    (r"\baio(?=,|\.[A-Z])", "sync"),
    (r"\basyncio client\b", "blocking client"),
    (r"Tasks of one event loop share it", "Thread-safe: one serves all threads of a process"),
    (r"In an ``with``", "In a ``with``"),
)
RUFF = [sys.executable, "-m", "ruff"]


def generate(source: Path, target: Path) -> str:
    """The text of a blocking module, in the house's format."""
    text = source.read_text()
    for pattern, by in REPLACED:
        text = re.sub(pattern, by, text)
    text = f"# Generated from {source.relative_to(ROOT)} by client/unasync.py; do not edit.\n{text}"
    for step in (["check", "--quiet", "--select=I", "--fix"], ["format"]):
        command = [*RUFF, *step, f"--stdin-filename={target}", "-"]
        done = subprocess.run(command, input=text, text=True, check=True, stdout=-1)  # noqa: S603
        text = done.stdout
    return text


def main() -> int:
    """Write or check every generated module; return the exit status."""
    check, status = "--check" in sys.argv, 0
    for name, made in SOURCES.items():
        target = ROOT / made
        text = generate(ROOT / name, target)
        if not check:
            target.write_text(text)
        elif not target.exists() or target.read_text() != text:
            print(f"client/acpc_client/{made} has drifted: run python client/unasync.py")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
