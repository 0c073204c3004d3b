"""Every promise is kept by the known families, and a model that breaks one is caught by it."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from acpc_server.cli import app
from acpc_server.models import ModelCard, rollout
from acpc_server.models.conformance import check_model
from public_checkpoint import public_config, write_checkpoint
from torch import Tensor, nn
from torch.nn import functional
from typer.testing import CliRunner

CPU = torch.device("cpu")
CARD = ModelCard("plain", "0" * 64, 6, 5, 2, 3, 100)


class Plain:
    """A linear model with a history of two that keeps every promise."""

    card, device, trained = CARD, CPU, False

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.encoder = nn.Linear(108, 5).requires_grad_(self.trained)
        self.mixer = nn.Linear(8, 5).requires_grad_(False)

    def encode(self, frames: Tensor) -> Tensor:
        return self.encoder(frames.flatten(1))

    def embed_actions(self, blocks: Tensor) -> Tensor:
        return 2 * blocks

    def predict_next(self, latents: Tensor, actions: Tensor) -> Tensor:
        both = torch.cat([latents[:, -1], actions[:, -1]], dim=1)
        return self.mixer(both) + 0.1 * latents.mean(1)


def differing(name: str, **members: object) -> type[Plain]:
    return type(name, (Plain,), members)


def normed(model: Plain, frames: Tensor) -> Tensor:
    latents = Plain.encode(model, frames)
    return latents if len(latents) == 1 else functional.batch_norm(latents, *[None] * 4, True)


Incomplete = differing("Incomplete", card=replace(CARD, digest="abc"))
Trainable = differing("Trainable", trained=True)
Narrow = differing("Narrow", encode=lambda m, x: Plain.encode(m, x)[:, :4])
NotFinite = differing("NotFinite", encode=lambda m, x: Plain.encode(m, x).log())
Double = differing("Double", encode=lambda m, x: Plain.encode(m, x).double())
Raises = differing("Raises", encode=lambda m, x: Plain.encode(m, x[:, 7]))
Dropout = differing("Dropout", encode=lambda m, x: functional.dropout(Plain.encode(m, x), 0.5))
BatchNorm = differing("BatchNorm", encode=normed)
WritesInputs = differing("WritesInputs", encode=lambda m, x: Plain.encode(m, x.mul_(0.5)))
# Hides the derivative.
Opaque = differing(
    "Opaque", encode=lambda m, x: torch.inference_mode()(Plain.encode)(m, x.detach())
)
# The embedding of a block sees the blocks that come later.
Mixes = differing("Mixes", embed_actions=lambda m, x: x - x.mean(1, keepdim=True))
# Takes full histories only.
FixedWindow = differing(
    "FixedWindow", predict_next=lambda m, x, a: Plain.predict_next(m, x.view(len(x), 2, 5), a)
)
# Hardly, and where the history is not whole.
ShortDropout = differing(
    "ShortDropout",
    predict_next=lambda m, x, a: Plain.predict_next(
        m, x if x.shape[1] == m.card.history else x + 1e-5 * torch.randn_like(x), a
    ),
)
IgnoresActions = differing(
    "IgnoresActions", predict_next=lambda m, x, a: Plain.predict_next(m, x, torch.zeros_like(a))
)
BatchMean = differing(
    "BatchMean", predict_next=lambda m, x, a: Plain.predict_next(m, x + x.mean(0), a)
)


class WrongUnroll(Plain):
    """Its own faster rollout uses each action a step too late."""

    def unroll(self, histories: Tensor, past: Tensor, future: Tensor) -> Tensor:
        v, h, _ = histories.shape
        before = past[:, None].expand(v, future.shape[1], -1, -1)
        late = torch.cat([before, future.expand(v, -1, -1, -1).roll(1, 2)], dim=2)
        rows = []
        for candidate in late.unbind(1):
            latents = list(histories.unbind(1))
            while len(latents) < h + future.shape[2]:
                start = max(0, len(latents) - 2)
                actions = self.embed_actions(candidate[:, start : len(latents)])
                latents.append(self.predict_next(torch.stack(latents[start:], 1), actions))
            rows.append(torch.stack(latents[h:], 1))
        return torch.stack(rows, 1)


class WrongPool(Plain):
    """Its own rollout gives pools to histories in turn."""

    def unroll(self, histories: Tensor, past: Tensor, future: Tensor) -> Tensor:
        which = torch.arange(len(histories)) % len(past)
        past, future = past[which], future[which]
        latents = [rollout(Plain(), histories, torch.cat([past, x], 1)) for x in future.unbind(1)]
        return torch.stack(latents, 1)


class Attends(Plain):
    """Its layer has a fused path in eval mode, which has no forward derivative."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(108, 2, 16, batch_first=True)
        self.layer = layer.eval().requires_grad_(False)

    def encode(self, frames: Tensor) -> Tensor:
        return super().encode(self.layer(frames.flatten(1)[:, None]).flatten(1))


BROKEN: list[tuple[type[Plain], str, str]] = [
    (Incomplete, "the card", "sha256"),
    (Narrow, "encode gives finite", r"shape \[4, 4\], but \[4, 5\]"),
    (NotFinite, "encode gives finite", "not finite"),
    (Double, "encode gives finite", "float64"),
    (Raises, "encode gives finite", "IndexError: index 7 is out of bounds"),
    (Dropout, "encode and predict_next give", "off by"),
    (BatchNorm, "latents and predictions", "off by"),
    (Mixes, "embed_actions keeps time", "off by"),
    (ShortDropout, "predict_next works", "history 1: not the same again"),
    (FixedWindow, "predict_next works", "is invalid for input of size 20"),
    (BatchMean, "latents and predictions", "off by"),
    (IgnoresActions, "predict_next sees", "another last action gives the same prediction"),
    (WritesInputs, "inputs are left", "was written to"),
    (Trainable, "inputs are left", "requires grad"),
    (WrongUnroll, "a rollout is the step-by-step loop", "history 1: off by"),
    (WrongPool, "a rollout is the step-by-step loop", "2 pools: off by"),
    (Opaque, "forward-mode derivatives", "no_grad, not inference_mode"),
]


@pytest.mark.parametrize("make", [Plain, Attends])
def test_a_plain_model_keeps_every_promise(make: type[Plain]) -> None:
    assert [*check_model(make()).values()] == [""] * 10


@pytest.mark.parametrize(
    ("make", "promise", "problem"), BROKEN, ids=[f"{b[0].__name__}-{b[1][:12]}" for b in BROKEN]
)
def test_a_broken_promise_is_found(make: type[Plain], promise: str, problem: str) -> None:
    found = check_model(make())
    (found,) = (found[one] for one in found if one.startswith(promise))
    assert re.search(problem, found)


@pytest.mark.parametrize("family", ["lewm", "pldm"])
def test_the_command_says_that_the_known_families_keep_every_promise(
    tmp_path: Path, family: str
) -> None:
    write_checkpoint(tmp_path / "run", public_config(family=family))
    shown = CliRunner().invoke(app, ["doctor", str(tmp_path / "run"), "--conformance"])
    assert shown.exit_code == 0
    assert shown.stdout.count("\nkept    ") == 10
