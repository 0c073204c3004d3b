"""Factors of variation: the histories of anchors rendered again in other light, colour or texture.

``rendered_views`` makes the groups of views of an anchor set, ``factor:level``, from any function
that renders states; ``environment_renderer`` is such a function for an environment that can be
reset to a state under a variation. docs/factors.md shows both.
"""

from acpc_lab.factors.certified import (
    CertifiedShare,
    certified_shares,
    certified_study,
    read_certified,
    write_certified,
)
from acpc_lab.factors.views import (
    LEVELS,
    Render,
    environment_renderer,
    factor_of,
    group_of,
    rendered_views,
)

__all__ = [
    "LEVELS", "CertifiedShare", "Render", "certified_shares", "certified_study",
    "environment_renderer", "factor_of", "group_of", "read_certified", "rendered_views",
    "write_certified",
]  # fmt: skip
