"""Makes the demonstration's plain scripts importable: they are no package."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"

sys.path.insert(0, str(EXAMPLES / "two_room"))
# Last, for it has a server_process as tests/harness does.
sys.path.append(str(EXAMPLES))
sys.path.append(str(ROOT / "proto"))
