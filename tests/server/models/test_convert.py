"""Offline conversions: what comes out loads to the same model, and nothing runs unasked."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from acpc_server.errors import AlreadyExists, FailedPrecondition, InvalidArgument, UnsafeCheckpoint
from acpc_server.models import load_checkpoint
from acpc_server.models.config import parse_config
from acpc_server.models.convert import Container, DtypeName, convert_object, convert_weights
from acpc_server.models.families import jepa_network
from acpc_server.models.parts import JepaConfig
from public_checkpoint import public_config, random_state_dict, write_checkpoint
from torch import Tensor, nn

pytestmark = pytest.mark.edge

CPU = torch.device("cpu")
FRAMES = torch.randn(2, 3, 28, 28, generator=torch.Generator().manual_seed(0))


class Touch:
    """Creates a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.path),)


def latents(folder: Path) -> Tensor:
    return load_checkpoint(folder.parent, folder.name, device=CPU).encode(FRAMES)


@pytest.fixture
def pickled(tmp_path: Path) -> tuple[Path, Path]:
    """A whole pickled module and its config, as older releases left them."""
    network = jepa_network(parse_config(JepaConfig, public_config()))
    network.load_state_dict(random_state_dict(public_config()))
    torch.save(network, tmp_path / "run_object.ckpt")
    (tmp_path / "config.json").write_text(json.dumps(public_config()))
    return tmp_path / "run_object.ckpt", tmp_path / "config.json"


@pytest.mark.parametrize("container", ["pt", "safetensors"])
def test_object_to_folder(tmp_path: Path, pickled: tuple[Path, Path], container: Container) -> None:
    source, config = pickled
    card = convert_object(
        source, tmp_path / "new", config=config, execute=True, container=container
    )
    plain = write_checkpoint(tmp_path / "plain")
    assert card == load_checkpoint(tmp_path, "plain", device=CPU).card
    torch.testing.assert_close(latents(tmp_path / "new"), latents(plain))


def test_execution_must_be_asked_for(tmp_path: Path, pickled: tuple[Path, Path]) -> None:
    source, config = pickled
    witness = tmp_path / "EXECUTED"
    torch.save(Touch(witness), source)
    with pytest.raises(FailedPrecondition, match="executes the code pickled in it"):
        convert_object(source, tmp_path / "new", config=config)
    assert not witness.exists()
    with pytest.raises(UnsafeCheckpoint, match="not a pickled module"):
        convert_object(source, tmp_path / "new", config=config, execute=True)
    assert witness.exists()
    assert not (tmp_path / "new").exists()


def test_object_that_does_not_fit_its_config(tmp_path: Path, pickled: tuple[Path, Path]) -> None:
    source, config = pickled
    torch.save(nn.Linear(2, 2), source)
    with pytest.raises(UnsafeCheckpoint, match="missing"):
        convert_object(source, tmp_path / "new", config=config, execute=True)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("container", ["pt", "safetensors"])
def test_weights(tmp_path: Path, dtype: DtypeName, container: Container) -> None:
    source = write_checkpoint(tmp_path / "run")
    new = tmp_path / "deep" / "new"
    card = convert_weights(source, new, dtype=dtype, container=container)
    before = load_checkpoint(tmp_path, "run", device=CPU).card
    assert (card.digest == before.digest) == (dtype == "float32")
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
