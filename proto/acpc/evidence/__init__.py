"""How sure numbers of anchors are, once for server and client: bounds, resamples, differences.

NumPy, scipy and no torch; the thin client imports it when it compares scores.
"""

from acpc.evidence.estimates import Resampled, allowance
from acpc.evidence.paired import paired_differences
from acpc.evidence.resampling import (
    FEW_OF_ALL,
    Weights,
    draw_weights,
    effective_groups,
    sizes_by_rank,
)
from acpc.evidence.sample import CheckpointSample, dyadic_variance, groups
