"""Makes the blocking client, ``acpc_client/sync``, of the asyncio one, ``acpc_client/aio``.

    python client/unasync.py    writes what is not there, or has changed

The blocking client is in no commit: it is written when a wheel is built, when the package is
installed from a checkout, by ``make``, and when tests begin. What differs in more than ``async``,
``await`` and the prefix ``Async`` is written by hand for each, in ``acpc_client/transport``.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

SOURCE = Path(__file__).resolve().parent / "acpc_client/aio"
TARGET = SOURCE.with_name("sync")
REPLACED = (
    (r"\basync (?=def |for |with )", ""),
    (r"\bawait ", ""),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\b__a(?=enter__|exit__)", "__"),
    (r"\baio\b", "sync"),
)


def blocking(text: str) -> str:
    """The text of a module of the blocking client."""
    for pattern, by in REPLACED:
        text = re.sub(pattern, by, text)
    return text


def write() -> None:
    """Writes every module of the blocking client that is not there or has changed."""
    TARGET.mkdir(exist_ok=True)
    made = {path.name: blocking(path.read_text()) for path in SOURCE.glob("*.py")}
    for name, text in made.items():
        header = f"# Made of aio/{name} by client/unasync.py; do not edit.\n"
        target = TARGET / name
        if not target.exists() or target.read_text() != header + text:
            fresh = target.with_name(f".{name}.{os.getpid()}")  # others may write or read it now
            fresh.write_text(header + text)
            fresh.replace(target)
    for old in {path.name for path in TARGET.glob("*.py")} - made.keys():
        (TARGET / old).unlink(missing_ok=True)


if __name__ == "__main__":
    write()
