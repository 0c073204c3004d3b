"""What every figure of the lab shares: colours, one style, panels, and how they are written.

Figures need the lab's extras; nothing here imports matplotlib before something is drawn.
"""

from acpc_lab.plotting.canvas import (
    FAIL,
    GROUND,
    INK,
    LEVELS,
    MARKERS,
    PASS,
    REGION,
    RULE,
    SOFT,
    Draw,
    hue,
    panel,
    png,
    spread,
    styled,
    write,
)
from acpc_lab.plotting.panels import (
    Fill,
    data_uri,
    frame_uri,
    logarithmic,
    marker,
    panels,
    swatch,
    whisker,
    zero_line,
)
