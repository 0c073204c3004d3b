"""How sure a score is: intervals, p-values and the confident verdict, on plain arrays."""

from acpc_server.evidence.judging import METHOD, judge
from acpc_server.evidence.sample import AnchorSample
