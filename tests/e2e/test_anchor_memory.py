"""A set streamed through a server does not pass through its memory."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from acpc_client.anchor_arrays import AnchorArrays
from acpc_client.sync.client import AcpcClient
from server_process import ServerProcess

pytestmark = pytest.mark.slow

HISTORY, STEPS, SIDE, PART, COUNT = 3, 11, 224, 6, 240
MIB = 2**20


def parts(count: int) -> Iterator[AnchorArrays]:
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (PART, STEPS, SIDE // 8, SIDE // 8, 3), np.uint8)
    frames = frames.repeat(8, axis=2).repeat(8, axis=3)
    for start in range(0, count, PART):
        yield AnchorArrays(
            history=HISTORY,
            frames=frames,
            action_blocks=rng.standard_normal((PART, STEPS - 1, 10), np.float32),
            endpoint_states=rng.standard_normal((PART, 4)),
            labels=rng.integers(0, 2, PART),
            anchor_ids=np.arange(start, start + PART),
        )


def resident(pid: int, what: str) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(rf"{what}:\s+(\d+) kB", status)[0]) / 1024


def test_an_upload_of_many_windows_keeps_a_few_in_memory(tmp_path: Path) -> None:
    for name in ("checkpoints", "datasets"):
        (tmp_path / name).mkdir()
    raw = COUNT * STEPS * SIDE * SIDE * 3 / MIB
    roots = tmp_path / "checkpoints", tmp_path / "datasets", tmp_path / "state"
    with ServerProcess(*roots) as server, AcpcClient(server.address) as client:
        client.anchors.upload(parts(PART), count=PART)  # loads what the first upload loads
        before = resident(server.pid, "VmRSS")
        stored = client.anchors.upload(parts(COUNT), count=COUNT)
        peak = resident(server.pid, "VmHWM")
        assert server.bugs() == []
    assert stored.anchors == COUNT
    assert raw > 350
    assert peak - before < 100, f"grew by {peak - before:.0f} of {raw:.0f} MiB"
