"""Datasets that lie here, in the formats that people have, read as anchors to upload."""

from acpc.datasets import recognise

from acpc_lab.datasets.proposal import FoundColumn, TaskChoice, columns_of, proposed
from acpc_lab.datasets.windows import DrawnFrames, drawn_from, open_dataset, read_task
