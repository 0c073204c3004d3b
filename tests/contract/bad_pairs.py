"""ComparePair requests that can never work, with the status and the field each must name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import wire
from acpc.v1 import perturbation_pb2, tensor_pb2
from acpc.v1.tensor_pb2 import Tensor

INVALID = "INVALID_ARGUMENT"
HUGE = 2**40
UNICODE = "\u1234"
NAN = float("nan")


class Case(NamedTuple):
    """A request, the field path that its refusal must name ("" for none), and the status."""

    id: str
    request: Any
    field: str = ""
    code: str = INVALID


# Each a label, changed fields of a good request, the field at fault, and a status but INVALID.
Rows = list[tuple[Any, ...]]


def cases(rows: Rows, make: Callable[..., Any], prefix: str = "", head: str = "") -> list[Case]:
    """A case of each row, its label and its field below others."""
    return [
        Case(f"{prefix}{label}", make(**changed), field and f"{head}{field}", *code)
        for label, changed, field, *code in rows
    ]


def _registered(name: str, **parameters: float) -> perturbation_pb2.PerturbationSet:
    spec = perturbation_pb2.RegisteredPerturbation(name=name, parameters=parameters)
    return wire.several(perturbation_pb2.PerturbationSpec(registered=spec))


def _frames(height: int, width: int, count: int = wire.HISTORY) -> Tensor:
    return wire.tensor(np.zeros((count, height, width, 3), np.uint8))


def _poked(value: float) -> Tensor:
    blocks = wire.blocks()
    blocks[2, 3] = value
    return wire.tensor(blocks)


def _history(shape: list[int], data: bytes, dtype: int = tensor_pb2.DTYPE_UINT8) -> object:
    return wire.pair(history=Tensor(dtype=dtype, shape=shape, data=data))


SPEC = "perturbations.specs[0]"
WHOLE = wire.frames(3).tobytes()
REAL_FRAMES = wire.tensor(np.zeros((3, 28, 28, 3), np.float32))
EMPTY_SPEC = perturbation_pb2.PerturbationSpec()
VIEWS = wire.frames(6).reshape(2, 3, 28, 28, 3)

HISTORIES = [
    Case("history-missing", wire.pair(history=None), "history.dtype"),
    Case("history-dtype-unset", _history([3, 28, 28, 3], WHOLE, 0), "history.dtype"),
    Case("history-dtype-unknown", _history([3, 28, 28, 3], WHOLE, 99), "history.dtype"),
    Case("history-float", wire.pair(history=REAL_FRAMES), "history.dtype"),
    Case("history-bytes-few", _history([3, 28, 28, 3], WHOLE[:-1]), "history.data"),
    Case("history-bytes-many", _history([3, 28, 28, 3], WHOLE + b"x"), "history.data"),
    Case("history-no-bytes", _history([3, 28, 28, 3], b""), "history.data"),
    Case("history-no-shape", _history([], WHOLE), "history.data"),
    Case("history-scalar", _history([], b"x"), "history.shape"),
    Case("history-rank-3", _history([28, 28, 3], WHOLE[: 28 * 28 * 3]), "history.shape"),
    Case("history-rank-5", _history([1, 3, 28, 28, 3], WHOLE), "history.shape"),
    Case("history-rank-100", _history([1] * 100, b"x"), "history.shape"),
    Case("history-rank-absurd", _history([2**60] * 100_000, b"x"), "history.shape"),
    Case("history-negative", _history([-3, 28, 28, 3], WHOLE), "history.shape"),
    Case("history-negative-pair", _history([-3, -28, 28, 3], WHOLE), "history.shape"),
    Case("history-overflow", _history([HUGE, HUGE, 28, 3], WHOLE), "history.shape"),
    Case("history-wraps", _history([2**32, 2**32, 1, 3], b""), "history.shape"),
    Case("history-empty-huge", _history([0, 2**62, 2**62, 3], b""), "history.shape"),
    Case("history-empty", _history([0, 28, 28, 3], b""), "history.shape"),
    Case("history-no-width", _history([3, 28, 0, 3], b""), "history.shape"),
    Case("history-four-channels", _history([3, 21, 28, 4], WHOLE), "history.shape"),
    Case("history-channels-first", _history([3, 3, 28, 28], WHOLE), "history.shape"),
    Case("history-too-long", wire.pair(history=_frames(28, 28, 4)), "history.shape"),
    Case("history-thin", wire.pair(history=_frames(10_000, 1)), "history.shape"),
    Case("history-flat", wire.pair(history=_frames(1, 9)), "history.shape"),
]

ACTIONS = [
    Case("actions-missing", wire.pair(action_blocks=None), "action_blocks.dtype"),
    Case(
        "actions-integer",
        wire.pair(action_blocks=wire.tensor(np.zeros((6, 10), np.int32))),
        "action_blocks.dtype",
    ),
    Case(
        "actions-rank-3",
        wire.pair(action_blocks=wire.tensor(wire.blocks()[None])),
        "action_blocks.shape",
    ),
    Case(
        "actions-horizon-0",
        wire.pair(action_blocks=wire.tensor(wire.blocks(2))),
        "action_blocks.shape",
    ),
    Case(
        "actions-none", wire.pair(action_blocks=wire.tensor(wire.blocks(0))), "action_blocks.shape"
    ),
    Case(
        "actions-horizon-absurd",
        wire.pair(action_blocks=wire.tensor(wire.blocks(3 + 1024))),
        "action_blocks.shape",
    ),
    Case(
        "actions-width-8",
        wire.pair(action_blocks=wire.tensor(wire.blocks(width=8))),
        "action_blocks.shape",
    ),
    Case(
        "actions-width-0",
        wire.pair(action_blocks=wire.tensor(wire.blocks(width=0))),
        "action_blocks.shape",
    ),
    Case(
        "actions-empty-huge",
        wire.pair(action_blocks=Tensor(dtype=tensor_pb2.DTYPE_FLOAT32, shape=[0, 2**62])),
        "action_blocks.shape",
    ),
    Case("actions-nan", wire.pair(action_blocks=_poked(np.nan)), "action_blocks.data"),
    Case("actions-inf", wire.pair(action_blocks=_poked(-np.inf)), "action_blocks.data"),
    Case(
        "actions-beyond-float32",
        wire.pair(action_blocks=wire.tensor(np.full((6, 10), 1e300))),
        "action_blocks.data",
    ),
]

PERTURBATIONS = [
    Case("no-perturbation", wire.pair(perturbations=None), "perturbations"),
    Case("no-specs", wire.pair(perturbations={}), "perturbations.specs"),
    Case(
        "specs-many",
        wire.pair(perturbations=wire.several(*[wire.noise()] * 257)),
        "perturbations.specs",
    ),
    Case("spec-empty", wire.pair(perturbations=wire.several(EMPTY_SPEC)), SPEC),
    *(  # within the range of the field, and too large for these frames
        Case(
            f"{kind}-{name}-{value}",
            wire.pair(
                perturbations=wire.several(
                    perturbation_pb2.PerturbationSpec(**{kind: {name: value}})
                )
            ),
            f"{SPEC}.{kind}.{name}",
        )
        for kind, name, value in (
            ("gaussian_blur", "kernel_size", 57),
            ("random_shift", "pixels", 28),
            ("defocus_blur", "radius", 27.5),
            ("motion_blur", "length", 54.5),
        )
    ),
    Case(
        "second-spec",
        wire.pair(perturbations=wire.several(wire.noise(), wire.blur(99))),
        "perturbations.specs[1].gaussian_blur.kernel_size",
    ),
    *(
        Case(
            f"registered-{label}",
            wire.pair(perturbations=_registered(name)),
            f"{SPEC}.registered.name",
        )
        for label, name in (
            ("nameless", ""),
            ("unknown", "fog"),
            ("built-in", "gaussian_noise"),
            ("oversized", "x" * 100_000),
            ("unicode", UNICODE * 200),
        )
    ),
    Case(
        "registered-parameters",
        wire.pair(perturbations=_registered("fog", **{f"p{i}": 1.0 for i in range(65)})),
        f"{SPEC}.registered.parameters",
    ),
    Case(
        "draws-over-frames", wire.pair(perturbations=wire.several(draws=513)), "perturbations.draws"
    ),
    Case(
        "draws-of-all",
        wire.pair(perturbations=wire.several(*[wire.shrink()] * 256, draws=17)),
        "perturbations.draws",
    ),
]

VIEWS_AND_FUTURES = [
    Case(
        "views-count", wire.pair(explicit_views=wire.tensor(VIEWS[:, :2])), "explicit_views.shape"
    ),
    Case(
        "views-size",
        wire.pair(explicit_views=wire.tensor(VIEWS[:, :, :27])),
        "explicit_views.shape",
    ),
    Case("views-none", wire.pair(explicit_views=wire.tensor(VIEWS[:0])), "explicit_views.shape"),
    Case("views-rank", wire.pair(explicit_views=wire.tensor(VIEWS[0])), "explicit_views.shape"),
    *(
        Case(f"views-float-{name}", wire.pair(explicit_views=wire.tensor(views)), field)
        for name, views, field in (
            ("levels", VIEWS.astype(np.float32), "explicit_views.data"),
            ("below", np.full(VIEWS.shape, -0.1, np.float32), "explicit_views.data"),
            ("nan", np.full(VIEWS.shape, NAN, np.float32), "explicit_views.data"),
            ("none", np.zeros((0, *VIEWS.shape[1:]), np.float32), "explicit_views.shape"),
            ("wide", np.zeros(VIEWS.shape), "explicit_views.dtype"),
        )
    ),
    Case(
        "views-dtype",
        wire.pair(explicit_views=wire.tensor(VIEWS.astype(np.int32))),
        "explicit_views.dtype",
    ),
    Case("future-size", wire.pair(observed_future=_frames(27, 28, 4)), "observed_future.shape"),
    Case("future-length", wire.pair(observed_future=_frames(28, 28, 3)), "observed_future.shape"),
    Case(
        "future-over-frames",
        wire.pair(
            action_blocks=wire.tensor(wire.blocks(3 + 1020 - 1)),
            observed_future=_frames(28, 28, 1020),
            perturbations=wire.several(draws=173),
        ),
        "observed_future.shape",
    ),
    Case("future-dtype", wire.pair(observed_future=REAL_FRAMES), "observed_future.dtype"),
]

OTHER = [
    Case("no-checkpoint", wire.pair(checkpoint=None), "checkpoint.name"),
    Case("checkpoint-long", wire.pair(checkpoint=wire.checkpoint("a" * 2000)), "checkpoint"),
    Case(
        "checkpoint-unicode",
        wire.pair(checkpoint=wire.checkpoint(UNICODE * 1000)),
        "checkpoint.name",
    ),
    Case("checkpoint-up", wire.pair(checkpoint=wire.checkpoint("../x")), "checkpoint.name"),
    Case("checkpoint-unknown", wire.pair(checkpoint=wire.checkpoint("nobody")), "", "NOT_FOUND"),
    Case(
        "checkpoint-digest",
        wire.pair(checkpoint=wire.checkpoint(digest=UNICODE * 1000)),
        "",
        "FAILED_PRECONDITION",
    ),
    Case("weights-short", wire.pair(weights=[0.5, 0.5]), "weights"),
    Case("weights-many", wire.pair(weights=[0.1] * 100_000), "weights"),
    Case("weights-sum", wire.pair(weights=[0.3] * 4), "weights"),
    Case("weights-negative", wire.pair(weights=[2, -1, 0, 0]), "weights"),
    Case("weights-nan", wire.pair(weights=[float("nan")] * 4), "weights"),
    Case("mode-unknown", wire.pair(numeric_mode=9), "numeric_mode"),
    Case("mode-absent-here", wire.pair(numeric_mode=2), "numeric_mode"),
    Case("request-id-huge", wire.pair(request_id=UNICODE * 100_000), "request_id"),
]

BAD_PAIRS = [*HISTORIES, *ACTIONS, *PERTURBATIONS, *VIEWS_AND_FUTURES, *OTHER]
