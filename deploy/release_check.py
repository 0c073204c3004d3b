"""Installs the wheel as users do, with the newest and the oldest dependencies, and uses it.

    make release-check
    python deploy/release_check.py --torch 2.13.0    the same, with this torch in every environment

The wheel is built from the sdist, as a packager would. Without constraints one environment gets the
thin client alone, one the lab and one the server: what a user gets today. Another has the lower
bound of every range in pyproject.toml. In both the server judges the demo's three checkpoints for
`acpc score`, certifies a pool, answers a thin client, and the tests marked `edge` pass; those of
standard services with a gRPC above the server's bound as well. PIP_* of the environment apply. Ends
within 30 minutes and leaves nothing behind.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path
from types import FrameType
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "examples"))

from server_process import WORLD, running_server  # noqa: E402 - found a line above

MAX_SECONDS = 30 * 60
# Nothing of this checkout is importable in the environments, and no setting leaks into them.
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ACPC_"))
} | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "OMP_NUM_THREADS": "1"}
EXTRAS = "server,lab,tracing,postgres,hdf5,video,lance,parquet,tsne"
TEST_TOOLS = ("pytest", "pytest-timeout", "pytest-randomly", "hypothesis", "beartype", "jsonschema")
# The demo's lesson: exit codes of `acpc score` under sensor noise, 3 where the screen fails.
VERDICTS = {"two-room-base": 3, "two-room-augmented": 0, "two-room-collapsed": 3}

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
    width = model.action_block_dim
    blocks = np.zeros((10, width), np.float32)
    noise = GaussianNoise(0.08)
    pair = client.compare_pair("two-room-augmented", frames, blocks, perturbations=noise)
pool = rng.standard_normal((16, 4, width), np.float32)
np.savez("pool.npz", history=frames, goal=frames[0], candidates=pool, past_blocks=blocks[:2])
assert (files("acpc.v1") / "acpc.binpb").is_file()
print(f"ACPC {pair.results[0].acpc:.4f}")
"""


def main() -> None:
    """Runs every step; the first that fails ends the check."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch", help="release of torch for every environment, else as pip finds")
    torch: str | None = parser.parse_args().torch
    signal.signal(signal.SIGALRM, _out_of_time)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    signal.alarm(MAX_SECONDS)
    chosen = [f"torch=={torch}"] if torch else []
    with tempfile.TemporaryDirectory(prefix="acpc-release-") as name:
        folder = Path(name)
        wheel = _build(folder / "dist")
        _check_thin_client(client := _install(folder / "client", str(wheel)))
        lab = _install(folder / "lab", f"{wheel}[lab]")
        server = _install(folder / "server", f"{wheel}[server]", *chosen)
        _use(folder / "newest", client, lab, server)
        _test_edges(server, f"{wheel}[{EXTRAS}]", *chosen)
        _test_newer_grpc(server)
        shutil.rmtree(folder / "server")  # gigabytes where torch brings CUDA
        bounds = folder / "bounds.txt"
        bounds.write_text("\n".join(_lower_bounds(torch)))
        oldest = _install(folder / "oldest", f"{wheel}[{EXTRAS}]", f"--constraint={bounds}")
        _use(folder / "lowest", oldest, oldest, oldest)
        _test_edges(oldest, f"--constraint={bounds}")


def _lower_bounds(torch: str | None) -> list[str]:
    """The oldest release of every dependency that pyproject.toml allows, as constraints."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = project["dependencies"] + [one for extra in EXTRAS.split(",") for one in extras[extra]]
    found = [re.match(r"([\w.-]+)(?:\[.*\])?>=([\d.]+)", one) for one in wanted]
    bounds = {one[1]: one[2] for one in found if one} | ({"torch": torch} if torch else {})
    return [f"{name}=={version}" for name, version in bounds.items()]


def _use(folder: Path, client: Path, lab: Path, server: Path) -> None:
    """A server of one environment answers a thin client and the lab's commands of others."""
    (datasets := folder / "datasets").mkdir(parents=True)
    shutil.copy(WORLD / "two-room.yaml", datasets)
    _run(server / "python", WORLD / "dataset.py", f"--out={datasets / 'two-room.h5'}", cwd=folder)
    with running_server(
        WORLD / "checkpoints",
        datasets,
        folder / "state",
        program=server / "acpc-server",
        environment=ENVIRONMENT,
    ) as address:
        answer = _run(client / "python", "-c", CALL, address, cwd=folder)
        acpc, at = lab / "acpc", f"--target={address}"
        for name, code in VERDICTS.items():
            options = ("--reference=two-room-base", "--shift=gaussian_noise:0.08")
            options += ("--dataset=two-room.h5", "--task=two-room.yaml", at)
            _run(acpc, "score", name, *options, cwd=folder, code=code)
        asked = ("--input=pool.npz", "--checkpoint=two-room-augmented", at)
        _run(acpc, "certify", *asked, "--shift=gaussian_noise:0.02", cwd=folder)
    print(f"{folder.name}: {answer.strip()}; three verdicts and a certificate", flush=True)


def _test_edges(programs: Path, *requirements: str) -> None:
    """The tests of what dependencies do, against the installed wheel."""
    pip = (programs / "python", "-m", "pip", "install", "--quiet")
    _run(*pip, *TEST_TOOLS, *requirements, cwd=ROOT)
    files = [
        path for path in (ROOT / "tests").rglob("test_*.py") if "mark.edge" in path.read_text()
    ]
    pytest = (programs / "python", "-m", "pytest", "-m", "edge", "-q", "-p", "no:cacheprovider")
    print(_run(*pytest, *files, cwd=ROOT).splitlines()[-1], flush=True)


def _test_newer_grpc(programs: Path) -> None:
    """Above the server's bound too, methods that a newer standard service brings are answered."""
    pip = (programs / "python", "-m", "pip", "install", "--quiet", "--upgrade")
    _run(*pip, "grpcio", "grpcio-health-checking", cwd=ROOT)
    pytest = (programs / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider")
    asked = (ROOT / "tests/server/rpc/test_door.py", "-k", "health_lists or without_a_servicer")
    print(_run(*pytest, *asked, cwd=ROOT).splitlines()[-1], flush=True)


def _build(target: Path) -> Path:
    """The wheel, built from the sdist that was built from this checkout."""
    print("Building sdist and wheel", flush=True)
    _run(sys.executable, "-m", "build", "--outdir", target, ROOT, cwd=target.parent)
    (wheel,) = target.glob("*.whl")
    (sdist,) = target.glob("*.tar.gz")
    print(f"  {sdist.name} {sdist.stat().st_size:,} bytes, {wheel.name} {wheel.stat().st_size:,}")
    return wheel


def _install(folder: Path, *requirements: str) -> Path:
    """The folder of programs of an environment that holds ``requirements`` and nothing else."""
    print(f"Installing {Path(requirements[0]).name} in an empty environment", flush=True)
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    _run(python, "-m", "pip", "install", "--quiet", *requirements, cwd=folder)
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


def _run(*command: str | Path, cwd: Path, code: int = 0) -> str:
    """The output of a program that is to end with ``code``.

    Its process group ends with it, also when this check is interrupted.
    """
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
    if process.returncode != code:
        sys.exit(f"{' '.join(map(str, command))}: code {process.returncode}\n{output}")
    return output


def _out_of_time(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(f"the release check took more than {MAX_SECONDS} s")


if __name__ == "__main__":
    main()
