"""Rows and anchors as files: CSV, JSON and npz. Results: ``acpc_client.save_result``."""

from acpc_client import RESULT_FORMATS, write_whole

from acpc_lab.tables.anchor_files import HISTORY, load_anchors, load_views
from acpc_lab.tables.leaves import Compared, compared, leaves, named
from acpc_lab.tables.rows import (
    Arrays,
    Integers,
    Numbers,
    Rows,
    Texts,
    column,
    groups,
    optional,
    parse_csv,
    read_rows,
    to_csv,
)
from acpc_lab.tables.table import (
    TABLE_FORMATS,
    Quantity,
    Row,
    Table,
    csv_of,
    plain,
    sha256,
    to_json,
    to_npz,
)

FORMATS = RESULT_FORMATS
__all__ = ["FORMATS", "read_rows"]
