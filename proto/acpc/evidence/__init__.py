"""How sure numbers of anchors are, once for server and client: bounds, resamples, differences.

NumPy, scipy and no torch; the thin client imports it when it compares scores.
"""

from acpc.evidence.estimates import (
    Estimate,
    FewGroups,
    OrderStatistics,
    Proportion,
    Resampled,
    interval,
)
from acpc.evidence.paired import BOOTSTRAP, paired_differences
from acpc.evidence.pairs import design_effect, dyadic_variance
from acpc.evidence.resampling import effective_groups, resampled_quantiles
from acpc.evidence.sample import AnchorSample, groups
