"""How sure a score or a certificate is: intervals, p-values, verdicts; and drift. Plain arrays."""

from acpc.evidence import AnchorSample

from acpc_server.evidence.coverage import CoverageSequence, CoverageTest, error_share
from acpc_server.evidence.drift import DriftTerms, DriftWatch, Reference, clipped
from acpc_server.evidence.judging import METHOD, judge
from acpc_server.evidence.looks import SPENDING, Seen, take_look
