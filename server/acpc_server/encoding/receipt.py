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
    anchors_digest: str,
    perturbation_digest: str,
    parameters: Mapping[str, Any],
    program: str = "",
) -> Receipt:
    """Make the receipt of an answer that this process computes on ``device``.

    ``parameters`` is everything beside checkpoints, frames, actions and views that can change a
    number; ``program`` is what computed its rollouts, empty for eager.
    """
    return Receipt(
        checkpoint_digest=checkpoint.digest,
        reference_digest=reference.digest if reference else "",
        anchors_digest=anchors_digest,
        perturbation_digest=perturbation_digest,
        parameters_digest=digest_json(parameters),
        code_version=CODE_VERSION,
        numeric_mode=mode,
        device=_device_name(device),
        torch_version=torch.__version__,
        image_codec=IMAGE_CODEC,
        parameters=parameters,
        model_digest=checkpoint.model_digest,
        reference_model_digest=reference.model_digest if reference else "",
        weights_read=checkpoint.weights_read if isinstance(checkpoint, ModelCard) else "",
        program=program,
    )


def receipt_from_json(record: Mapping[str, Any]) -> Receipt:
    """Inverse of ``Receipt.to_dict``, the form in a job's record."""
    mode = NumericMode[record["numeric_mode"].upper()]
    return Receipt(**{**record, "numeric_mode": mode})


def digest_json(value: Mapping[str, Any]) -> str:
    """sha256 of the canonical JSON of ``value``."""
    return hashlib.sha256(_CANONICAL.encode(value).encode()).hexdigest()


class ArraysDigest:
    """sha256 over names, dtypes, shapes and bytes of the arrays that are there."""

    def __init__(self, arrays: Iterable[tuple[str, np.ndarray | None]]) -> None:
        self._total = hashlib.sha256()
        self._add(arrays)

    def followed_by(self, arrays: Iterable[tuple[str, np.ndarray | None]]) -> ArraysDigest:
        """Return the digest of further arrays too; this one stays as it is."""
        longer = ArraysDigest(())
        longer._total = self._total.copy()
        longer._add(arrays)
        return longer

    @property
    def hex(self) -> str:
        """The digest in hexadecimal."""
        return self._total.hexdigest()

    def _add(self, arrays: Iterable[tuple[str, np.ndarray | None]]) -> None:
        for name, array in arrays:
            if array is not None:
                self._total.update(f"{name}:{array.dtype.str}:{array.shape};".encode())
                self._total.update(np.ascontiguousarray(array).data)
