"""Makes receipts: digests of everything that an answer was computed from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from acpc import contract
from acpc.contract import Receipt

from acpc_server.engine import LoadedCheckpoint, NumericMode
from acpc_server.perturb import IMAGE_CODEC

CODE_VERSION = version("acpc")


def make_receipt(
    *,
    checkpoint_digest: str,
    reference_digest: str = "",
    anchors_digest: str,
    perturbation_digest: str,
    parameters_digest: str,
    mode: NumericMode,
    device: torch.device,
) -> Receipt:
    """The receipt of an answer that this process computes on ``device``."""
    return Receipt(
        checkpoint_digest=checkpoint_digest,
        reference_digest=reference_digest,
        anchors_digest=anchors_digest,
        perturbation_digest=perturbation_digest,
        parameters_digest=parameters_digest,
        code_version=CODE_VERSION,
        numeric_mode=contract.NumericMode[mode.name],
        device=device_name(device),
        torch_version=torch.__version__,
        image_codec=IMAGE_CODEC,
    )


# The order of a receipt in a job's record, which is older than the contract's.
RECORD_ORDER = (
    "checkpoint_digest", "reference_digest", "anchors_digest", "perturbation_digest",
    "parameters_digest", "numeric_mode", "device", "code_version", "torch_version", "image_codec",
)  # fmt: skip


def receipt_to_json(receipt: Receipt) -> dict[str, str]:
    """The receipt's form in a job's record."""
    values = receipt.to_dict()
    return {name: values[name] for name in RECORD_ORDER}


def receipt_from_json(record: Mapping[str, str]) -> Receipt:
    """Inverse of :func:`receipt_to_json`."""
    mode = contract.NumericMode[record["numeric_mode"].upper()]
    return Receipt(**{**record, "numeric_mode": mode})  # type: ignore[arg-type]


def digest_json(value: Mapping[str, Any]) -> str:
    """sha256 of the canonical JSON of ``value``."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


class ArraysDigest:
    """sha256 over names, dtypes, shapes and bytes; an absent array counts as absent."""

    def __init__(self, arrays: Iterable[tuple[str, np.ndarray | None]]) -> None:
        self._total = hashlib.sha256()
        self._add(arrays)

    def followed_by(self, arrays: Iterable[tuple[str, np.ndarray | None]]) -> ArraysDigest:
        """The digest of further arrays too; this one stays as it is."""
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


def device_name(device: torch.device) -> str:
    """The device as an operator would say it, for example ``"cuda:0 NVIDIA H200"``."""
    if device.type == "cuda":
        return f"{device} {torch.cuda.get_device_name(device)}"
    return str(device)


def interactive_receipt(
    checkpoint: LoadedCheckpoint,
    *,
    evaluated: ArraysDigest,
    perturbation_digest: str,
    parameters: Mapping[str, Any],
    mode: NumericMode,
    device: torch.device,
) -> Receipt:
    """Receipt of an answer to one request.

    Args:
        checkpoint: What computed it.
        evaluated: Digest of the frames, latents and actions it was computed from.
        perturbation_digest: Digest of the views.
        parameters: Everything else that can change a number.
        mode: Arithmetic of the network.
        device: Where it ran.
    """
    return make_receipt(
        checkpoint_digest=checkpoint.model.card.digest,
        anchors_digest=evaluated.hex,
        perturbation_digest=perturbation_digest,
        parameters_digest=digest_json(parameters),
        mode=mode,
        device=device,
    )
