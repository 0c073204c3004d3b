"""Makes the demonstration's plain scripts importable: they are no package."""

import sys
from pathlib import Path

TWO_ROOM = Path(__file__).parents[2] / "examples" / "two_room"

sys.path.insert(0, str(TWO_ROOM))
