"""Generate the Python code of the wire contract, or check that it is current.

python proto/generate.py           write proto/acpc/v1/*_pb2*.py and .pyi
python proto/generate.py --check   exit 1 when the committed code has drifted
"""

from __future__ import annotations

import argparse
import importlib.resources
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from google.longrunning import operations_proto_pb2

ROOT = Path(__file__).resolve().parent
PACKAGE = Path("acpc/v1")


def includes(folder: Path) -> list[Path]:
    """Include paths of protoc: ours, the well-known types, and the Google API types.

    googleapis-common-protos ships google/longrunning/operations.proto under another file name, so
    a copy with the registered name goes into ``folder``.
    """
    google = Path(operations_proto_pb2.__file__).parent
    target = folder / "google" / "longrunning" / "operations.proto"
    target.parent.mkdir(parents=True)
    shutil.copyfile(google / "operations_proto.proto", target)
    well_known = Path(str(importlib.resources.files("grpc_tools"))) / "_proto"
    return [ROOT, folder, google.parents[1], well_known]


def run_protoc(arguments: list[str], folder: Path) -> None:
    """Run protoc over every contract file; raises CalledProcessError when it fails."""
    protos = sorted(str(path) for path in (ROOT / PACKAGE).glob("*.proto"))
    paths = [f"-I{path}" for path in includes(folder)]
    command = [sys.executable, "-m", "grpc_tools.protoc", *paths, *arguments, *protos]
    subprocess.run(command, check=True)  # noqa: S603


def generate(out: Path) -> list[Path]:
    """Write the generated code below ``out``; return the paths relative to it."""
    with tempfile.TemporaryDirectory() as folder:
        run_protoc(
            [
                f"--python_out={out}",
                f"--grpc_python_out={out}",
                f"--mypy_out=quiet:{out}",
                f"--mypy_grpc_out=quiet:{out}",
            ],
            Path(folder),
        )
    return sorted(path.relative_to(out) for path in (out / PACKAGE).glob("*_pb2*"))


def drift() -> list[str]:
    """Names of committed files that differ from freshly generated ones."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        made = generate(fresh)
        committed = {path.relative_to(ROOT) for path in (ROOT / PACKAGE).glob("*_pb2*")}
        differs = {
            path
            for path in committed & set(made)
            if (fresh / path).read_bytes() != (ROOT / path).read_bytes()
        }
        return sorted(str(path) for path in differs | (committed ^ set(made)))


def main() -> int:
    """Command line entry."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the committed code")
    if not parser.parse_args().check:
        generate(ROOT)
        return 0
    stale = drift()
    for name in stale:
        print(f"proto/{name} is not what its .proto generates; run `make proto`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
