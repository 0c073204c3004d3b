"""How sure numbers of anchors are, once for server and client: bounds, resamples, differences.

NumPy, scipy and no torch; the thin client imports it when it compares scores.
"""

from acpc.evidence.estimates import Resampled
from acpc.evidence.paired import paired_differences
from acpc.evidence.pairs import dyadic_variance
from acpc.evidence.resampling import draw_weights, effective_groups
from acpc.evidence.sample import CheckpointSample, groups
