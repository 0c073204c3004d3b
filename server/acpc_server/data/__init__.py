"""Datasets, anchors, task presets and label rules."""

from acpc_server.data.anchors import AnchorBatch, Anchors
from acpc_server.data.dataset_anchors import DatasetAnchors, DrawnAnchors, draw_anchors
from acpc_server.data.store import DatasetFit, DatasetStore, open_below
from acpc_server.data.tasks import load_task
