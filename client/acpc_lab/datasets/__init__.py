"""Datasets that lie here, as HDF5 or Lance, read as anchors to upload."""

from acpc_lab.datasets.proposal import FoundColumn, TaskChoice, columns_of, proposed
from acpc_lab.datasets.windows import (
    ActionScale,
    action_scale,
    drawn_from,
    open_dataset,
    read_task,
)
