"""Datasets, anchors, task presets and label rules."""

from acpc_server.data.anchors import AnchorBatch, Anchors
from acpc_server.data.drawn import DrawnAnchors
from acpc_server.data.hdf5 import Hdf5Dataset
from acpc_server.data.selection import ANCHOR_COUNT, ANCHOR_SEED, draw_anchors, select_anchors
from acpc_server.data.store import DatasetFit, DatasetStore
from acpc_server.data.tasks import LabelRule, TaskPreset, load_task, preset_names

__all__ = [
    "ANCHOR_COUNT",
    "ANCHOR_SEED",
    "AnchorBatch",
    "Anchors",
    "DatasetFit",
    "DatasetStore",
    "DrawnAnchors",
    "Hdf5Dataset",
    "LabelRule",
    "TaskPreset",
    "draw_anchors",
    "load_task",
    "preset_names",
    "select_anchors",
]
