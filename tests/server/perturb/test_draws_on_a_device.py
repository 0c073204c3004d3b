"""Views are drawn where the frames are: the host neither computes nor waits, only sends keys."""

import pytest
import torch
from acpc.contract import KINDS, PerturbationSet, VisualChange, example, parse
from acpc_server.encoding import Draw, draw_views, unchanged
from acpc_server.encoding.views import View
from acpc_server.numerics import to_model_input
from torch.utils._python_dispatch import TorchDispatchMode

DEVICE = torch.device("meta")  # computes shapes, and cannot tell what a value is
# Those that work on the host, by design: a codec, and transforms of large kernels.
APART = ("identity", "registered", "composition", "given_views", "jpeg")
DRAWN = [parse(example(cls)) for kind, cls in KINDS.items() if kind not in APART]


class HostWork(TorchDispatchMode):
    """Bytes of tensors that the host makes or sends while it is on."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None) -> object:  # noqa: ANN001
        found = func(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor) and found.device.type == "cpu":
            self.bytes += found.numel() * found.element_size()
        return found


@pytest.mark.parametrize("spec", DRAWN, ids=lambda spec: spec.kind)
def test_the_host_sends_frames_as_bytes_and_keys(spec: VisualChange) -> None:
    """A wait for the device would raise; what is sent beside the frames is 200 bytes a view."""
    frames = torch.zeros(2 * 3, 224, 224, 3, dtype=torch.uint8)
    plan = PerturbationSet((spec,), 4, 1, 2)
    draws = [Draw(row, plan, View(0, draw)) for row in range(2) for draw in range(4)]
    frames = frames.to(DEVICE)  # the one copy of frames
    work = HostWork()
    table = 2 * 4 * (32 * 1024 + 1)  # of the normals, sent once in a process
    with work:
        histories = to_model_input(frames, 224).reshape(2, 3, 3, 224, 224)
        views = draw_views(histories, draws)
        same = unchanged(views, histories, draws)
    assert views.shape == (8, 3, 3, 224, 224) and views.device == DEVICE
    assert same.shape == (8,) and same.device == DEVICE
    assert work.bytes <= 200 * len(draws) + (table if spec.kind == "gaussian_noise" else 0)
