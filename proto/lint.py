"""Lint the wire contract with buf (STANDARD), and compare it with the released one (FILE).

buf comes from $BUF, from the PATH, or through npm as @bufbuild/buf.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys

from generate import ROOT

BUF_VERSION = "1.75.0"
BASELINE = ROOT / "baseline.binpb"


def find_buf() -> list[str] | None:
    """The command that starts buf, or None when there is no way to get it."""
    given = os.environ.get("BUF") or shutil.which("buf")
    if given:
        return [given]
    npm = shutil.which("npm")
    if npm:
        return [npm, "exec", "--yes", f"--package=@bufbuild/buf@{BUF_VERSION}", "--", "buf"]
    return None


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
    if options.release:
        commands = [["build", "--exclude-source-info", "--output", str(BASELINE)]]
    else:
        against = ["--against", str(BASELINE), "--exclude-imports"]
        commands = [["build"], ["lint"], ["breaking", *against]]
    # Every complaint is wanted, so a failed lint does not hide what else is wrong.
    codes = [
        subprocess.run([*buf, *command], cwd=ROOT, check=False).returncode  # noqa: S603
        for command in commands
    ]
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main())
