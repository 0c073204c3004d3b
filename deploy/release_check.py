"""Installs the wheel as users do, with the newest and the oldest dependencies, and uses it.

    make release-check
    python deploy/release_check.py --torch 2.13.0    the same, with this torch in every environment
    python deploy/release_check.py --python python3.13    the newest client under that Python
    python deploy/release_check.py --newest    without the oldest dependencies, as for each commit

The wheel is built from the sdist, as a packager would. Without constraints one environment gets the
thin client, then the lab as well, and one the server: what a user gets today. Meanwhile a third
gets the lower bound of every range in pyproject.toml. In both cases the server judges the demo's
three checkpoints for `acpc score`, certifies a pool, answers a client, and the tests marked `edge`
pass; those of standard services with a gRPC above the server's bound as well. uv installs where it
lies beside this Python, else pip; UV_* and PIP_* of the environment apply. Ends within 30 minutes
and leaves nothing behind.
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
import threading
import tomllib
import venv
from concurrent.futures import ThreadPoolExecutor, as_completed
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
EXTRAS = "server,lab,tracing,postgres,hdf5,lance,tsne"
UV = shutil.which("uv", path=Path(sys.executable).parent)
TEST_TOOLS = ("pytest", "pytest-timeout", "pytest-randomly", "hypothesis", "beartype")
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
    parser.add_argument("--python", default=sys.executable, help="Python of the newest client")
    parser.add_argument("--newest", action="store_true", help="only the newest dependencies")
    options = parser.parse_args()
    torch: str | None = options.torch
    signal.signal(signal.SIGALRM, _out_of_time)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    signal.alarm(MAX_SECONDS)
    with tempfile.TemporaryDirectory(prefix="acpc-release-") as name, ThreadPoolExecutor() as pool:
        folder = Path(name)
        try:
            wheel = _build(folder / "dist")
            checks = [pool.submit(_newest, folder, wheel, torch, options.python)]
            if not options.newest:
                checks.append(pool.submit(_oldest, folder, wheel, torch))
            for check in as_completed(checks):
                check.result()
        except BaseException:
            _programs.end()
            raise


def _newest(folder: Path, wheel: Path, torch: str | None, python: str) -> None:
    chosen = [f"torch=={torch}"] if torch else []
    _run(python, "-m", "venv", "--without-pip", folder / "client", cwd=folder)
    _check_thin_client(client := _install(folder / "client", str(wheel)))
    _install(folder / "client", f"{wheel}[lab]")
    server = _install(folder / "server", f"{wheel}[server]", *chosen)
    _use(folder / "newest", client, server)
    _install(folder / "server", f"{wheel}[{EXTRAS}]", *TEST_TOOLS, *chosen)
    _test(server, "-m", "edge", *_edge_files())
    # Above the server's bound too, methods that a newer standard service brings are answered.
    newer = ("--upgrade", "grpcio", "grpcio-health-checking")
    _pip(server, "install", "--quiet", *newer)
    asked = ("-k", "health_lists or without_a_servicer")
    _test(server, ROOT / "tests/server/rpc/test_door.py", *asked)


def _oldest(folder: Path, wheel: Path, torch: str | None) -> None:
    (folder / "bounds.txt").write_text("\n".join(_lower_bounds(torch)))
    wanted = (f"{wheel}[{EXTRAS}]", *TEST_TOOLS, f"--constraint={folder / 'bounds.txt'}")
    programs = _install(folder / "oldest", *wanted)
    _use(folder / "lowest", programs, programs)
    _test(programs, "-m", "edge", *_edge_files())


def _lower_bounds(torch: str | None) -> list[str]:
    """The oldest release of every dependency that pyproject.toml allows, as constraints."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = project["dependencies"] + [one for extra in EXTRAS.split(",") for one in extras[extra]]
    found = [re.match(r"([\w.-]+)(?:\[.*\])?>=([\d.]+)", one) for one in wanted]
    bounds = {one[1]: one[2] for one in found if one} | ({"torch": torch} if torch else {})
    return [f"{name}=={version}" for name, version in bounds.items()]


def _use(folder: Path, client: Path, server: Path) -> None:
    """A server of one environment answers the client and the lab's commands of another."""
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
        acpc, at = client / "acpc", f"--target={address}"
        for name, code in VERDICTS.items():
            options = ("--reference=two-room-base", "--shift=gaussian_noise:0.08")
            options += ("--dataset=two-room.h5", "--task=two-room.yaml", at)
            _run(acpc, "score", name, *options, cwd=folder, code=code)
        asked = ("two-room-augmented", "--input=pool.npz", at)
        _run(acpc, "certify", *asked, "--shift=gaussian_noise:0.02", cwd=folder)
    print(f"{folder.name}: {answer.strip()}; three verdicts and a certificate", flush=True)


def _edge_files() -> list[Path]:
    """The files with tests of what dependencies do."""
    files = (ROOT / "tests").rglob("test_*.py")
    return [path for path in files if "mark.edge" in path.read_text()]


def _test(programs: Path, *asked: str | Path) -> None:
    """Run tests against the wheel that is installed there."""
    pytest = (programs / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider")
    print(f"{programs.parent.name}: {_run(*pytest, *asked, cwd=ROOT).splitlines()[-1]}", flush=True)


def _build(target: Path) -> Path:
    """The wheel, built from the sdist that was built from this checkout."""
    print("Building sdist and wheel", flush=True)
    installer = ("--installer=uv",) if UV else ()
    _run(sys.executable, "-m", "build", *installer, "--outdir", target, ROOT, cwd=target.parent)
    (wheel,) = target.glob("*.whl")
    (sdist,) = target.glob("*.tar.gz")
    print(f"  {sdist.name} {sdist.stat().st_size:,} bytes, {wheel.name} {wheel.stat().st_size:,}")
    return wheel


def _install(folder: Path, *requirements: str) -> Path:
    """Install ``requirements`` into an environment that has nothing else; its programs' folder."""
    print(f"Installing {Path(requirements[0]).name} into {folder.name}", flush=True)
    programs = folder / "bin"
    if not folder.exists():
        venv.create(folder, with_pip=False)
    _pip(programs, "install", "--quiet", "--no-compile", *requirements)
    _pip(programs, "check")
    return programs


def _pip(programs: Path, *asked: str) -> None:
    """Run a command of pip, or the same of uv, on the environment of these programs."""
    python = programs / "python"
    if UV:
        _run(UV, "pip", asked[0], "--python", python, *asked[1:], cwd=programs)
    else:
        _run(sys.executable, "-m", "pip", "--python", python, *asked, cwd=programs)


def _check_thin_client(programs: Path) -> None:
    """Without extras both commands say what to install; that is how a user learns of them."""
    for command, extra in (("acpc", "lab"), ("acpc-server", "server")):
        shown = subprocess.run(  # noqa: S603 - our own program
            [programs / command, "--help"],
            env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        if shown.returncode != 2 or f"[{extra}]" not in shown.stderr or "Trace" in shown.stderr:
            sys.exit(f"{command} without its extra: code {shown.returncode}, {shown.stderr}")


class _Programs:
    """Programs that run now, each in a process group of its own; none starts after ``end``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[int] = set()
        self._ended = False

    def start(self, command: tuple[str | Path, ...], cwd: Path) -> subprocess.Popen[str]:
        with self._lock:
            if self._ended:
                sys.exit("another part of the check failed")
            process = subprocess.Popen(  # noqa: S603 - our own programs
                command,
                cwd=cwd,
                env=ENVIRONMENT,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._running.add(process.pid)
            return process

    def forget(self, process: subprocess.Popen[str]) -> None:
        with self._lock:
            self._running.discard(process.pid)

    def end(self) -> None:
        with self._lock:
            self._ended = True
            for group in self._running:
                os.killpg(group, signal.SIGKILL)


_programs = _Programs()


def _run(*command: str | Path, cwd: Path, code: int = 0) -> str:
    """The output of a program that is to end with ``code``."""
    process = _programs.start(command, cwd)
    try:
        output, _ = process.communicate()
    finally:
        _programs.forget(process)
    if process.returncode != code:
        sys.exit(f"{' '.join(map(str, command))}: code {process.returncode}\n{output}")
    return output


def _out_of_time(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(f"the release check took more than {MAX_SECONDS} s")


if __name__ == "__main__":
    main()
