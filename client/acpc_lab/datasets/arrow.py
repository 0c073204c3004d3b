"""Numbers of Arrow columns, as Lance and Parquet hold them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from acpc_lab.extras import load


def arrow_numbers(column: Any) -> NDArray[Any]:  # noqa: ANN401 - pyarrow.ChunkedArray
    """The values of a column, (rows,) or (rows, width).

    Raises:
        ValueError: It holds nulls, rows of unequal length, or something else than numbers.
    """
    arrow, compute = load("pyarrow", "parquet"), load("pyarrow.compute", "parquet")
    kind = column.type
    if column.null_count:
        raise ValueError(f"has {column.null_count} rows without a value")
    width = ()
    if arrow.types.is_list(kind) or arrow.types.is_large_list(kind) or _fixed(arrow, kind):
        widths = compute.unique(compute.list_value_length(column)).to_pylist()
        if len(widths) > 1:
            raise ValueError(f"has rows of {widths[0]} numbers and of {widths[1]}")
        width, column = tuple(widths), compute.list_flatten(column)
    numeric = arrow.types.is_integer(column.type) or arrow.types.is_floating(column.type)
    if not numeric or column.null_count:
        raise ValueError(f"must hold numbers; is {kind}, {column.null_count} of them missing")
    values: NDArray[Any] = np.asarray(column.to_numpy())
    return values.reshape(-1, *width)


def _fixed(arrow: Any, kind: Any) -> bool:  # noqa: ANN401
    return bool(arrow.types.is_fixed_size_list(kind))
