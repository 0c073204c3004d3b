"""A served world whose checkpoints fail on command."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from example_scripts import install
from job_world import JobWorld, write_job_world
from server_process import ServerProcess

FAMILY = Path(__file__).with_name("faulty_family")


@dataclass(frozen=True)
class FaultyWorld:
    """The roots of :class:`JobWorld` with a family whose calls fail."""

    world: JobWorld
    site: Path

    def server(self, state: str, **flags: object) -> ServerProcess:
        """A server that :meth:`inject` reaches under the name of its state folder."""
        path = os.pathsep.join([str(self.site), os.environ.get("PYTHONPATH", "")])
        environment = {"PYTHONPATH": path, "ACPC_TEST_FAULT": str(self._fault(state))}
        return self.world.server(state, environment=environment, **flags)

    def inject(self, state: str, fault: str) -> None:
        """Have every call of its checkpoints fail from now on.

        ``hang 5`` holds up a checkpoint's fifth call from now on, and those after it.
        """
        self._fault(f"{state}.hangs").unlink(missing_ok=True)
        fresh = self._fault(f"{state}.fresh")
        fresh.write_text(fault)
        fresh.replace(self._fault(state))

    def hangs(self, state: str) -> bool:
        """Whether a call has met the fault ``hang``, since it was injected."""
        return self._fault(f"{state}.hangs").exists()

    def _fault(self, state: str) -> Path:
        return self.world.root / f"fault-{state}"


def write_faulty_world(root: Path) -> FaultyWorld:
    """Write every file; ``model``, ``base`` and ``twin`` are of the family that fails."""
    world = write_job_world(root)
    for name in ("model", "base", "twin"):
        config = world.checkpoints / name / "config.json"
        config.write_text(
            json.dumps({**json.loads(config.read_text()), "_target_": "acpc_faulty.Model"})
        )
    return FaultyWorld(world, install(FAMILY, root / "site"))
