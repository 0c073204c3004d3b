"""Datasets, anchors and task presets."""

from acpc_server.data.anchors import FRAMES, Anchors, PartialAnchors, check_numbers
from acpc_server.data.dataset_anchors import FileAnchors
from acpc_server.data.store import DatasetFit, DatasetStore, load_task, open_dataset
