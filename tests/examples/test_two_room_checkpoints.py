"""The shipped checkpoints are small and safe, and the training script makes such folders."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import train
from acpc_server.models.folder import list_checkpoints
from acpc_server.models.loader import load_checkpoint
from train import RECIPES, sigreg

TWO_ROOM = Path(__file__).parents[2] / "examples" / "two_room"
SHIPPED = TWO_ROOM / "checkpoints"
CPU = torch.device("cpu")


@pytest.mark.parametrize("name", RECIPES)
def test_shipped_weights_are_small_and_plain(name: str) -> None:
    assert {entry.name for entry in list_checkpoints(SHIPPED)} == set(RECIPES)
    weights = SHIPPED / name / "weights.pt"
    assert weights.stat().st_size < 1_000_000
    state = torch.load(weights, weights_only=True)
    floating = {value.dtype for key, value in state.items() if not key.endswith("tracked")}
    assert floating == {torch.float32}
    assert all(torch.isfinite(value).all() for value in state.values())


def test_a_short_run_writes_a_folder_the_server_loads_and_is_repeatable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "two-room-augmented"
    for run in ("first", "second"):
        given = f"--only {name} --steps 3 --episodes 5 --seed 4 --out {tmp_path / run}"
        monkeypatch.setattr(sys, "argv", ["train.py", *given.split()])
        train.main()
    printed = capsys.readouterr().out
    assert name in printed
    assert "R^2" in printed
    first = load_checkpoint(tmp_path / "first", name, device=CPU)
    second = load_checkpoint(tmp_path / "second", name, device=CPU)
    frames = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    latents = first.encode(frames)
    assert latents.shape == (2, 16)
    assert torch.isfinite(latents).all()
    torch.testing.assert_close(latents, second.encode(frames), rtol=0, atol=0)


def test_sigreg_is_the_epps_pulley_statistic() -> None:
    """In one dimension every direction is +-1, so the statistic has a plain double sum."""
    points = np.random.default_rng(0).normal(0.4, 1.7, size=9)
    knots = np.linspace(0.0, 3.0, 17)
    gaps = [
        np.exp(-(t**2) / 2) * abs(np.mean(np.exp(1j * t * points)) - np.exp(-(t**2) / 2)) ** 2
        for t in knots
    ]
    expected = len(points) * 2 * np.trapezoid(gaps, knots)
    found = sigreg(torch.from_numpy(points).float().view(-1, 1, 1))
    assert found.item() == pytest.approx(expected, rel=1e-4)
