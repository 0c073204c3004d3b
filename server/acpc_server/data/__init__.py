"""Datasets, anchors, task presets and label rules."""

from acpc_server.data.anchors import AnchorBatch, Anchors
from acpc_server.data.dataset_anchors import DatasetAnchors, DrawnAnchors
from acpc_server.data.hdf5 import MAX_FRAME_SIDE, Hdf5Dataset
from acpc_server.data.selection import draw_anchors, window_future_frames
from acpc_server.data.store import DatasetFit, DatasetStore
from acpc_server.data.tasks import LabelRule, TaskPreset, load_task, preset_names
