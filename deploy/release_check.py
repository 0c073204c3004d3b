"""Builds sdist and wheel, installs them in empty environments, and makes a call between them.

    make release-check

The wheel is built from the sdist, as a packager would. One environment gets the thin client alone,
one the lab and one the server; the server judges an example checkpoint for the thin client, and
answers the lab's command. Ends within 20 minutes and leaves nothing behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from types import FrameType
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "examples"))

from server_process import running_server  # noqa: E402 - found a line above

MAX_SECONDS = 20 * 60
# Nothing of this checkout is importable in the environments, and no setting leaks into them.
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ACPC_"))
} | {"PIP_CONSTRAINT": str(ROOT / "constraints.txt"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}

CALL = """
import sys
import numpy as np
from importlib.resources import files
from acpc_client import AcpcClient, GaussianNoise
assert not {"torch", "acpc_server", "typer", "matplotlib"} & set(sys.modules)
rng = np.random.default_rng(0)
frames = rng.integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
with AcpcClient(sys.argv[1]) as client:
    client.checkpoints.load("two-room-augmented")
    model = client.checkpoints.get("two-room-augmented").model
    blocks = np.zeros((10, model.action_block_dim), np.float32)
    noise = GaussianNoise(0.08)
    pair = client.compare_pair("two-room-augmented", frames, blocks, perturbations=noise)
assert (files("acpc.v1") / "acpc.binpb").is_file()
print(f"ACPC {pair.results[0].acpc:.4f}")
"""


def main() -> None:
    """Runs every step; the first that fails ends the check."""
    signal.signal(signal.SIGALRM, _out_of_time)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    signal.alarm(MAX_SECONDS)
    with tempfile.TemporaryDirectory(prefix="acpc-release-") as name:
        folder = Path(name)
        wheel = _build(folder / "dist")
        _check_thin_client(client := _install(folder / "client", str(wheel)))
        lab = _install(folder / "lab", f"{wheel}[lab]")
        server = _install(folder / "server", f"{wheel}[server]")
        (folder / "datasets").mkdir()
        with running_server(
            ROOT / "examples" / "two_room" / "checkpoints",
            folder / "datasets",
            folder / "state",
            program=server / "acpc-server",
            environment=ENVIRONMENT,
        ) as address:
            answer = _run(client / "python", "-c", CALL, address, cwd=folder)
            listed = _run(lab / "acpc", "checkpoints", "list", "--target", address, cwd=folder)
        if "two-room-augmented" not in listed:
            sys.exit(f"acpc checkpoints list printed:\n{listed}")
        print(f"a thin client and a server from {wheel.name} talked: {answer.strip()}")


def _build(target: Path) -> Path:
    """The wheel, built from the sdist that was built from this checkout."""
    print("Building sdist and wheel", flush=True)
    _run(sys.executable, "-m", "build", "--outdir", target, ROOT, cwd=target.parent)
    (wheel,) = target.glob("*.whl")
    (sdist,) = target.glob("*.tar.gz")
    print(f"  {sdist.name} {sdist.stat().st_size:,} bytes, {wheel.name} {wheel.stat().st_size:,}")
    return wheel


def _install(folder: Path, requirement: str) -> Path:
    """The folder of programs of an environment that holds ``requirement`` and nothing else."""
    print(f"Installing {Path(requirement).name} in an empty environment", flush=True)
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    _run(python, "-m", "pip", "install", "--quiet", "--no-cache-dir", requirement, cwd=folder)
    _run(python, "-m", "pip", "check", cwd=folder)
    return python.parent


def _check_thin_client(programs: Path) -> None:
    """Without extras both commands say what to install; that is how a user learns of them."""
    for command, extra in (("acpc", "lab"), ("acpc-server", "server")):
        shown = subprocess.run(  # noqa: S603 - our own program
            [programs / command, "--help"],
            env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        if shown.returncode != 2 or f"[{extra}]" not in shown.stderr or "Trace" in shown.stderr:
            sys.exit(f"{command} without its extra: code {shown.returncode}, {shown.stderr}")


def _run(*command: str | Path, cwd: Path) -> str:
    """A program's output. Its process group ends with it, also when this check is interrupted."""
    process = subprocess.Popen(  # noqa: S603 - our own programs
        command,
        cwd=cwd,
        env=ENVIRONMENT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if process.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{output}")
    return output


def _out_of_time(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(f"the release check took more than {MAX_SECONDS} s")


if __name__ == "__main__":
    main()
