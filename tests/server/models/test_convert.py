"""Offline conversions: what comes out loads to the same model."""

import resource
from pathlib import Path

import pytest
import torch
from acpc_server.errors import AlreadyExists, InvalidArgument
from acpc_server.models import load_checkpoint
from acpc_server.models.convert import Container, DtypeName, convert_weights
from public_checkpoint import public_config, random_state_dict, write_checkpoint
from torch import Tensor

pytestmark = pytest.mark.edge

CPU = torch.device("cpu")
FRAMES = torch.randn(2, 3, 28, 28, generator=torch.Generator().manual_seed(0))


def latents(folder: Path) -> Tensor:
    return load_checkpoint(folder.parent, folder.name, device=CPU).encode(FRAMES)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("container", ["pt", "safetensors"])
def test_weights(tmp_path: Path, dtype: DtypeName, container: Container) -> None:
    source = write_checkpoint(tmp_path / "run")
    new = tmp_path / "deep" / "new"
    card = convert_weights(source, new, dtype=dtype, container=container)
    before = load_checkpoint(tmp_path, "run", device=CPU).card
    same = card.digest == before.digest, card.model_digest == before.model_digest
    assert same == (dtype == "float32",) * 2
    tolerance = {"float32": 0.0, "float16": 1e-2, "bfloat16": 8e-2}[dtype]
    torch.testing.assert_close(latents(new), latents(source), rtol=tolerance, atol=tolerance)
    smaller = (new / f"weights.{container}").stat().st_size < 0.75 * (
        source / "weights.pt"
    ).stat().st_size
    assert smaller == (dtype != "float32")


def test_tensors_of_one_storage_and_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of torch may hold a tensor under two names; what cannot be written leaves nothing."""
    state = random_state_dict(public_config())
    twin, *_ = (
        name for name in state if state[name].shape == state["encoder.layernorm.bias"].shape
    )
    state[twin] = state["encoder.layernorm.bias"]
    source = write_checkpoint(tmp_path / "run", state=state)
    convert_weights(source, tmp_path / "new")
    assert torch.equal(latents(tmp_path / "new"), latents(source))
    before = sorted(tmp_path.iterdir())

    def full(path: Path, data: bytes) -> int:
        path.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        convert_weights(source, tmp_path / "other")
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("container", ["pt", "safetensors"])
def test_weights_that_do_not_fit_say_why(tmp_path: Path, container: Container) -> None:
    source = write_checkpoint(tmp_path / "run")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            convert_weights(source, tmp_path / "new", container=container)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == [source]


def test_overflow_is_refused(tmp_path: Path) -> None:
    state = random_state_dict(public_config())
    state["predictor.pos_embedding"][0, 0, 0] = 1e5
    source = write_checkpoint(tmp_path / "run", state=state)
    with pytest.raises(InvalidArgument, match=r"float16 cannot hold predictor\.pos_embedding"):
        convert_weights(source, tmp_path / "new", dtype="float16")
    assert not (tmp_path / "new").exists()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "run")
    with pytest.raises(AlreadyExists, match="exists"):
        convert_weights(source, source)
