"""When each API key was last used: a small file in the state folder, a minute behind at most."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from pathlib import Path

import structlog

log = structlog.get_logger("acpc.access")
KEY_USES = "key-uses.json"
WRITE_SECONDS = 60.0


class KeyUses:
    """Remembers when keys were used, those of the file alone; ``known`` gives their ids."""

    def __init__(
        self,
        path: Path,
        known: Callable[[], Collection[str]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._known = known
        self._clock = clock
        self._seen = _read(path)
        self._fresh = self._failed = False
        self._written = 0.0

    def note(self, identity: str) -> None:
        """Remember that a key is used now."""
        self._seen[identity] = self._clock()
        self._fresh = True

    def refresh(self, *, force: bool = False) -> None:
        """Write what is new, at most once a minute unless forced; a full disk stops nothing."""
        if not self._fresh or (time.monotonic() - self._written < WRITE_SECONDS and not force):
            return
        self._fresh, self._written = False, time.monotonic()
        known = set(self._known())
        for key in self._seen.copy().keys() - known:  # in place: others note uses meanwhile
            del self._seen[key]
        fresh = self._path.with_suffix(".new")
        try:
            fresh.write_text(json.dumps(self._seen.copy()))
            fresh.replace(self._path)
            self._failed = False
        except OSError as error:
            self._fresh = True
            if not self._failed:
                log.warning("key_uses_unwritten", file=str(self._path), error=error.strerror)
            self._failed = True


def last_uses(state_dir: Path) -> dict[str, datetime]:
    """Return when keys were last used, by id, as the servers of a state folder have written."""
    found: dict[str, float] = {}
    for path in (state_dir / KEY_USES, *state_dir.glob(f"worker-*/{KEY_USES}")):
        for key, at in _read(path).items():
            found[key] = max(at, found.get(key, 0.0))
    return {key: datetime.fromtimestamp(at, UTC) for key, at in found.items()}


def _read(path: Path) -> dict[str, float]:
    """Read what was written; nothing from a file that is missing or damaged."""
    try:
        found = json.loads(path.read_text())
        return {str(key): float(at) for key, at in found.items() if 0 <= float(at) < 2**33}
    except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return {}
