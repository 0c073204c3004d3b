"""Datasets that lie here, in the formats that people have, read as anchors to upload."""

from acpc.datasets import recognise

from acpc_lab.datasets.windows import DrawnFrames, drawn_from, read_task
