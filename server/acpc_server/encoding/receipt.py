"""Makes receipts: digests of everything that an answer was computed from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from acpc.contract import CheckpointRef, NumericMode, Receipt

from acpc_server.engine import device_name
from acpc_server.models import ModelCard
from acpc_server.perturb import IMAGE_CODEC

CODE_VERSION = version("acpc")
_device_name = cache(device_name)
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def make_receipt(
    mode: NumericMode,
    device: torch.device,
    *,
    checkpoint: CheckpointRef | ModelCard,
    reference: CheckpointRef | None = None,
    parameters: Mapping[str, Any],
    digested: Mapping[str, Any] | None = None,
    **given: str,
) -> Receipt:
    """Make the receipt of an answer that this process computes on ``device``.

    ``parameters`` is everything beside checkpoints, frames, actions and views that can change a
    number; ``digested`` is what their digest covers, where it is not all. ``given`` are further
    fields of the receipt.
    """
    return Receipt(
        checkpoint_digest=checkpoint.digest,
        reference_digest=reference.digest if reference else "",
        parameters_digest=digest_json(parameters if digested is None else digested),
        code_version=CODE_VERSION,
        numeric_mode=mode,
        device=_device_name(device),
        torch_version=torch.__version__,
        image_codec=IMAGE_CODEC,
        parameters=parameters,
        model_digest=checkpoint.model_digest,
        reference_model_digest=reference.model_digest if reference else "",
        **given,
    )


def receipt_from_json(record: Mapping[str, Any]) -> Receipt:
    """Inverse of ``Receipt.to_dict``, the form in a job's record."""
    mode = NumericMode[record["numeric_mode"].upper()]
    return Receipt(**{**record, "numeric_mode": mode})


def digest_json(value: Mapping[str, Any]) -> str:
    """sha256 of the canonical JSON of ``value``."""
    return hashlib.sha256(_CANONICAL.encode(value).encode()).hexdigest()


def arrays_digest(
    arrays: Iterable[tuple[str, np.ndarray | None]], after: hashlib._Hash | None = None
) -> hashlib._Hash:
    """sha256 over names, dtypes, shapes and bytes of the arrays that are there.

    It continues a copy of one ``after`` which they come.
    """
    total = after.copy() if after else hashlib.sha256()
    for name, array in arrays:
        if array is not None:
            total.update(f"{name}:{array.dtype.str}:{array.shape};".encode())
            total.update(np.ascontiguousarray(array).data)
    return total
