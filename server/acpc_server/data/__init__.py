"""Datasets, anchors and task presets."""

from acpc_server.data.anchors import AnchorBatch, Anchors, ChangedAnchors, check_anchor
from acpc_server.data.dataset_anchors import DrawnAnchors, FileAnchors
from acpc_server.data.store import DatasetFit, DatasetStore, load_task, open_dataset
