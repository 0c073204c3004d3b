"""What every figure of the lab shares: one palette, one style, panels, and SVG for pages.

Figures need the lab's extras; nothing here imports matplotlib before something is drawn.
"""

from acpc_lab.plotting.canvas import TIP, Draw, inline, panel, styled, write
from acpc_lab.plotting.palette import (
    COLOURS,
    INK,
    KINDS,
    LEVELS,
    MARKERS,
    RULE,
    SOFT,
    light,
    spread,
    style_sheet,
)
from acpc_lab.plotting.panels import (
    Fill,
    data_uri,
    hue,
    joined,
    logarithmic,
    marker,
    panels,
    swatch,
    whisker,
    zero_line,
)
