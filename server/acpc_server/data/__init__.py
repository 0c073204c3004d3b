"""Datasets, anchors and task presets."""

from acpc_server.data.anchors import FRAMES, AnchorBatch, Anchors, PartialAnchors, check_anchor
from acpc_server.data.dataset_anchors import FileAnchors, batch_of
from acpc_server.data.store import DatasetFit, DatasetStore, load_task, open_dataset
