"""Lint the wire contract with buf (STANDARD), and compare it with the released one (FILE).

buf comes from $BUF, from the PATH, or through npm as @bufbuild/buf.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from generate import PACKAGE, ROOT, includes

BUF_VERSION = "1.75.0"
BASELINE = ROOT / "baseline.binpb"
GOOGLE_PACKAGES = ("api", "rpc")


def find_buf() -> list[str] | None:
    """The command that starts buf, or None when there is no way to get it."""
    given = os.environ.get("BUF") or shutil.which("buf")
    if given:
        return [given]
    npm = shutil.which("npm")
    if npm:
        return [npm, "exec", "--yes", f"--package=@bufbuild/buf@{BUF_VERSION}", "--", "buf"]
    return None


def lay_out(workspace: Path) -> None:
    """Put the contract and the Google types it imports into a buf workspace.

    buf would fetch the Google types from its own registry; the installed ones are the ones that the
    generated code imports.
    """
    shutil.copyfile(ROOT / "buf.yaml", workspace / "buf.yaml")
    shutil.copytree(
        ROOT / PACKAGE,
        workspace / "contract" / PACKAGE,
        ignore=lambda _, names: [name for name in names if not name.endswith(".proto")],
    )
    target = workspace / "google"
    _, _, site_packages, _ = includes(target)
    for package in GOOGLE_PACKAGES:
        folder = target / "google" / package
        folder.mkdir(parents=True)
        for file in (site_packages / "google" / package).glob("*.proto"):
            shutil.copyfile(file, folder / file.name)


def main() -> int:
    """Command line entry."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--require", action="store_true", help="exit 1, not 0, where neither buf nor npm is there"
    )
    parser.add_argument(
        "--release", action="store_true", help="make the present contract the one to compare with"
    )
    options = parser.parse_args()
    buf = find_buf()
    if buf is None:
        print(
            "proto/lint.py: the contract was NOT linted, for neither buf nor npm is installed; "
            "install Node.js, or set BUF to a buf binary",
            file=sys.stderr,
        )
        return 1 if options.require or options.release else 0
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder)
        lay_out(workspace)
        if options.release:
            commands = [["build", "contract", "--exclude-source-info", "--output", str(BASELINE)]]
        else:
            against = ["--against", str(BASELINE), "--exclude-imports"]
            commands = [["lint", "contract"], ["breaking", "contract", *against]]
        # Every complaint is wanted, so a failed lint does not hide what else is wrong.
        codes = [
            subprocess.run([*buf, *command], cwd=workspace, check=False).returncode  # noqa: S603
            for command in commands
        ]
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main())
