"""Generate the Python code of the wire contract, or check that it is current.

python proto/generate.py           write proto/acpc/v1/*_pb2*.py and .pyi, and acpc.binpb, a
                                   descriptor set with all imports and the comments of the contract
python proto/generate.py --check   exit 1 when the committed code has drifted; it is compared only
                                   under the tools that constraints.txt pins, others generate others
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.resources
import subprocess
import sys
import tempfile
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet

ROOT = Path(__file__).resolve().parent
PACKAGE = Path("acpc/v1")
TOOLS = ("grpcio-tools", "mypy-protobuf")


def run_protoc(arguments: list[str]) -> None:
    """Run protoc over every contract file; raises CalledProcessError when it fails."""
    protos = sorted(str(path) for path in (ROOT / PACKAGE).glob("*.proto"))
    well_known = Path(str(importlib.resources.files("grpc_tools"))) / "_proto"
    paths = [f"-I{path}" for path in (ROOT, ROOT / "vendor", well_known)]
    command = [sys.executable, "-m", "grpc_tools.protoc", *paths, *arguments, *protos]
    subprocess.run(command, check=True)  # noqa: S603


def generate(out: Path) -> list[Path]:
    """Write the generated code below ``out``; return the paths relative to it."""
    run_protoc(
        [
            f"--python_out={out}",
            f"--grpc_python_out={out}",
            f"--mypy_out=quiet:{out}",
            f"--mypy_grpc_out=quiet:{out}",
            f"--descriptor_set_out={out / PACKAGE / 'acpc.binpb'}",
            "--include_imports",
            "--include_source_info",
        ]
    )
    keep_comments(out / PACKAGE / "acpc.binpb")
    return made_below(out)


def keep_comments(path: Path) -> None:
    """Leave of the source info of a descriptor set the contract's own comments alone."""
    contract = FileDescriptorSet.FromString(path.read_bytes())
    for file in contract.file:
        places = file.source_code_info.location
        ours = file.package == "acpc.v1"
        kept = [place for place in places if ours and place.leading_comments]
        file.ClearField("source_code_info")
        file.source_code_info.location.extend(kept)
    path.write_bytes(contract.SerializeToString(deterministic=True))


def made_below(root: Path) -> list[Path]:
    """Lists the generated files, relative to ``root``."""
    return sorted(
        path.relative_to(root)
        for pattern in ("*_pb2*", "*.binpb")
        for path in (root / PACKAGE).glob(pattern)
    )


def drift() -> list[str]:
    """Names of committed files that differ from freshly generated ones."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        made = generate(fresh)
        committed = set(made_below(ROOT))
        differs = {
            path
            for path in committed & set(made)
            if (fresh / path).read_bytes() != (ROOT / path).read_bytes()
        }
        return sorted(str(path) for path in differs | (committed ^ set(made)))


def other_tools() -> list[str]:
    """The installed tools whose releases are not those that constraints.txt pins."""
    pins = (ROOT.parent / "constraints.txt").read_text().splitlines()
    installed = (f"{tool}=={importlib.metadata.version(tool)}" for tool in TOOLS)
    return [tool for tool in installed if tool not in pins]


def main() -> int:
    """Command line entry."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the committed code")
    if not parser.parse_args().check:
        generate(ROOT)
        return 0
    if others := other_tools():
        print(f"the generated code was not compared: {', '.join(others)} is not what is pinned")
        return 0
    stale = drift()
    for name in stale:
        print(f"proto/{name} is not what its .proto generates; run `make proto`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
