"""What a dataset means, once for server and lab: episodes, windows, anchors, labels, tasks.

NumPy and no torch. Of the formats only ``hdf5`` is read here, by a module of its own, which loads
h5py; the lab reads Lance, into the same two classes, ``Dataset`` and ``DatasetColumn``.
"""

from acpc.datasets.columns import (
    FORMATS,
    HDF5_SUFFIXES,
    LANCE_SUFFIX,
    MAX_FRAME_SIDE,
    MAX_ROWS,
    Dataset,
    DatasetColumn,
    recognise,
    unread,
)
from acpc.datasets.normalisers import (
    ColumnStatistics,
    NormalisedColumn,
    Normaliser,
    StatisticsCache,
    column_statistics,
)
from acpc.datasets.plain_yaml import plain_yaml
from acpc.datasets.selection import (
    DrawnFrames,
    DrawnWindows,
    action_blocks,
    action_variants,
    action_width,
    draw_windows,
    lengths_of,
    misfit,
    window_future_frames,
)
from acpc.datasets.tasks import (
    MAX_TASK_BYTES,
    LabelRule,
    TaskPreset,
    load_preset,
    median_split_labels,
    parse_task,
    preset_names,
)
from acpc.datasets.windows import WindowIndex, chosen_episodes

__all__ = ["hdf5"]  # not imported here: it loads h5py
