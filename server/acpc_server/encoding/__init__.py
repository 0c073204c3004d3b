"""Histories, anchors and views to latents, with their receipts."""

from acpc_server.encoding.anchor_job import SHARD_ANCHORS, AnchorJobKind, AnchorJobSpec
from acpc_server.encoding.anchor_readers import AnchorReaders, AnchorSetSource, AnySource
from acpc_server.encoding.anchors import Bench, given_inputs, read_inputs
from acpc_server.encoding.frame_sources import EncodedHistories, HistorySources
from acpc_server.encoding.histories import (
    HistoryEncoder,
    check_block_width,
    check_history_frames,
    check_latents,
    check_predictions,
    predictions_not_finite,
)
from acpc_server.encoding.receipt import (
    CODE_VERSION,
    arrays_digest,
    digest_json,
    make_receipt,
    receipt_from_json,
)
from acpc_server.encoding.views import (
    Draw,
    View,
    distinct_views,
    draw_views,
    unchanged,
    view_rows,
    views_digest,
)
