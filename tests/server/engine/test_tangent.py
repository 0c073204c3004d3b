"""The device's Jacobian-vector products against a Jacobian that is written out."""

import sys
from contextlib import nullcontext
from pathlib import Path

import jepa_torch_reference as reference
import numpy as np
import processes
import pytest
import torch
from acpc_server.engine import DeviceClient
from acpc_server.errors import PARSES, Cancelled, FailedPrecondition, parsing
from acpc_server.models import FrozenJepa
from acpc_server.numerics.consistency import horizon_weights
from acpc_server.numerics.local import pixel_direction, rademacher_probe, squared_norm
from acpc_server.scheduling import Priority, RequestContext
from plain_model import PlainModel
from public_checkpoint import public_config, random_state_dict, write_checkpoint

HORIZON, PROBES = 2, 64
# A derivative in a new process; prints the modules that only it has loaded.
FRESH = """
import sys
from contextlib import nullcontext
from pathlib import Path
import torch
from acpc_server.engine.arithmetic import load_derivatives, rollout_tangent
from acpc_server.models import load_checkpoint

model = load_checkpoint(Path(sys.argv[1]), "run", device=torch.device("cpu"))
load_derivatives()
before = set(sys.modules)
frames = torch.rand(2, 3, 3, 28, 28)
assert rollout_tangent(model, frames, frames, torch.rand(2, 4, 10)).isfinite().all()
print(*sorted(set(sys.modules) - before))
"""


def explicit_jacobian(images: torch.Tensor, blocks: torch.Tensor) -> torch.Tensor:
    """Derivative of the rollout by pixels, reverse mode in float64, (H * dim, pixels)."""
    config = public_config()
    state = {name: x.double() for name, x in random_state_dict(config, 4).items()}
    std = torch.tensor([0.229, 0.224, 0.225], dtype=torch.float64).view(3, 1, 1)

    def predicted(pixels: torch.Tensor) -> torch.Tensor:
        latents = reference.encode(state, config, pixels / std)
        return reference.rollout(state, config, latents, blocks.double())

    jacobian = torch.func.jacrev(predicted)(images.double() * std)  # (H, dim, h, 3, side, side)
    return jacobian.flatten(2)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_tangents_and_their_trace_are_those_of_the_explicit_jacobian(
    engine: DeviceClient, model: FrozenJepa
) -> None:
    """Each J v to 1e-4, and Hutchinson's mean within four of its standard errors."""
    generator = torch.Generator().manual_seed(0)
    history = torch.randn(3, 3, 28, 28, generator=generator)
    blocks = torch.randn(3 + HORIZON - 1, 10, generator=generator)
    jacobian = explicit_jacobian(history, blocks)
    probes = torch.stack(
        [rademacher_probe(history.shape, seed=0, anchor=4, probe=k) for k in range(PROBES)]
    )
    tangents = engine.rollout_tangent(
        model,
        history.expand(PROBES, -1, -1, -1, -1),
        pixel_direction(probes),
        blocks.expand(PROBES, -1, -1),
        RequestContext(Priority.JOB),
    )
    wanted = torch.einsum("kdp,np->nkd", jacobian, probes.double().flatten(1))
    error = (tangents - wanted).norm(dim=-1) / wanted.norm(dim=-1)
    assert error.max() < 1e-4
    weights = horizon_weights((), HORIZON)
    frobenius = (jacobian.square().sum(dim=(1, 2)) * weights).sum()
    values = squared_norm(tangents, weights)
    standard_error = values.std() / PROBES**0.5
    assert abs(values.mean() - frobenius) < 4 * standard_error
    assert standard_error < 0.25 * frobenius


def test_plug_in_families_have_derivatives_without_doing_anything(engine: DeviceClient) -> None:
    """A mean over pixels has a derivative known by hand, at every step."""
    directions = torch.rand(5, 2, 3, 8, 8)
    found = engine.rollout_tangent(
        PlainModel(), torch.rand(5, 2, 3, 8, 8), directions, torch.zeros(5, 4, 2), _context()
    )
    wanted = directions[:, -1].mean(dim=(2, 3))[:, None].expand(-1, 3, -1)
    torch.testing.assert_close(found, wanted)


class HiddenModel(PlainModel):
    """A plug-in that leaves forward mode no way in."""

    def encode(self, frames: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return super().encode(frames)


def test_a_hidden_derivative_is_refused_not_zero(engine: DeviceClient) -> None:
    frames, blocks = torch.rand(1, 1, 3, 8, 8), torch.zeros(1, 1, 2)
    with pytest.raises(FailedPrecondition, match=r"'plain'.*torch.no_grad") as caught:
        engine.rollout_tangent(HiddenModel(), frames, frames, blocks, _context())
    assert caught.value.reason == "NO_FORWARD_DERIVATIVE"


def test_the_cut_does_not_move_the_numbers_beyond_rounding(
    engine: DeviceClient, model: FrozenJepa
) -> None:
    history, blocks = torch.rand(9, 3, 3, 28, 28), torch.rand(9, 3, 10)
    every = engine.rollout_tangent(model, history, history, blocks, _context())
    alone = [
        engine.rollout_tangent(model, h[None], h[None], b[None], _context())
        for h, b in zip(history, blocks, strict=True)
    ]
    np.testing.assert_allclose(every, torch.cat(alone), rtol=1e-4, atol=1e-5)


@pytest.mark.process
def test_the_device_loads_nothing_for_a_derivative(tmp_path: Path) -> None:
    """Its callers would wait for seconds."""
    write_checkpoint(tmp_path / "run")
    code = [sys.executable, "-c", FRESH, tmp_path]
    assert processes.run(code, imported="acpc-server").stdout.split() == []


@pytest.mark.parametrize("failures", [PARSES - 1, PARSES])
def test_a_failure_of_the_parser_is_tried_again(failures: int) -> None:
    """Threads of Python 3.11 that parse at once may get a SystemError."""
    tries: list[int] = []

    def load() -> None:
        tries.append(1)
        if len(tries) <= failures:
            raise SystemError("AST constructor recursion depth mismatch")

    with pytest.raises(SystemError) if failures == PARSES else nullcontext():
        parsing(load)
    assert len(tries) == PARSES


def test_a_withdrawn_request_stops_it(engine: DeviceClient) -> None:
    context = _context()
    context.cancel()
    frames = torch.rand(1, 1, 3, 8, 8)
    with pytest.raises(Cancelled):
        engine.rollout_tangent(PlainModel(), frames, frames, torch.zeros(1, 1, 2), context)


def _context() -> RequestContext:
    return RequestContext(Priority.JOB)
