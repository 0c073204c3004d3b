"""V-JEPA 2-AC as a plug-in: what the converter writes computes what the files do; nothing runs."""

import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
import vjepa2_reference as reference
from acpc_server.cli import app
from acpc_server.errors import AlreadyExists, FailedPrecondition, InvalidArgument, UnsafeCheckpoint
from acpc_server.models import (
    FrozenWorldModel,
    TakesProprio,
    Widens,
    load_checkpoint,
    rollout,
    with_proprio,
)
from example_scripts import EXAMPLES, plugged_in
from installed_package import install
from payload import Payload, Write, with_parts, with_tensor
from torch.utils.flop_counter import FlopCounterMode
from typer.testing import CliRunner
from vjepa2_ac import convert as script
from vjepa2_ac import tiny

SOURCE = EXAMPLES / "vjepa2_ac"
CPU = torch.device("cpu")
TINY = tiny.Sizes()
WIDER = tiny.Sizes(width=48, depth=3, heads=3, grid=2, inner=44, inner_heads=1, extrinsics=True)
NO_POSE = tiny.Sizes(heads=1, pose=False)
SIZES = {"tiny": TINY, "wider": WIDER, "no-pose": NO_POSE}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(SOURCE, tmp_path_factory.mktemp("site"))


@pytest.fixture
def convert(site: Path) -> Iterator[ModuleType]:
    """The script, with the plug-in installed."""
    with plugged_in(site, "acpc_vjepa2_ac"):
        yield script


def made(
    convert: ModuleType,
    root: Path,
    sizes: Any,  # noqa: ANN401 - of a script
    history: int = 3,
) -> FrozenWorldModel:
    source = tiny.write(root / "in", sizes)
    convert.convert(source, root / "out" / "run", convert.Training(**sizes.training(history)))
    return load_checkpoint(root / "out", "run", device=CPU)


def _off(found: torch.Tensor, wanted: np.ndarray) -> float:
    assert found.shape == wanted.shape
    return float(np.abs(found.double().numpy() - wanted).max())


def features(latents: torch.Tensor, sizes: Any) -> torch.Tensor:  # noqa: ANN401 - as above
    visual = sizes.grid**2 * sizes.width
    return latents[:, :visual].unflatten(1, (-1, sizes.width)) * visual**0.5


def test_names_the_plug_in_where_it_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FailedPrecondition, match=r"pip install \S+examples/vjepa2_ac"):
        script.convert(tiny.write(tmp_path, TINY), tmp_path / "out")


@pytest.mark.parametrize("history", [1, 3])
@pytest.mark.parametrize("name", SIZES)
def test_computes_what_the_source_describes(
    name: str, history: int, convert: ModuleType, tmp_path: Path
) -> None:
    """Features, rollouts longer than the window with their poses, and both planners' costs."""
    sizes = SIZES[name]
    narrow = made(convert, tmp_path, sizes)
    assert isinstance(narrow, Widens)
    random = np.random.default_rng(7)
    frames = random.standard_normal((history, 3, sizes.side, sizes.side))
    states = random.standard_normal((history, sizes.state))
    actions = random.standard_normal((history + 3, 7)) * 0.3
    truth = reference.VJepa2AC(sizes)
    wanted, moved = truth.rollout(truth.encode(frames), states, actions, narrow.card.history)
    for model, dtype, tolerance in (
        (narrow, torch.float32, 1e-4),
        (narrow.in_float64(), torch.float64, 1e-9),
    ):
        assert isinstance(model, TakesProprio)
        latents = model.encode(torch.tensor(frames, dtype=dtype))
        if sizes.state:
            slots = model.embed_proprio(torch.tensor(states, dtype=dtype))
            latents = with_proprio(latents, slots)
        steps = rollout(model, latents[None], torch.tensor(actions, dtype=dtype)[None])[0]
        found = torch.cat([latents, steps])
        assert _off(features(found, sizes), wanted) <= tolerance
        if sizes.state:
            assert _off(found[:, -sizes.state :] * 2**20, moved) <= tolerance
        # With the first frame as goal: mean |x - g| of V-JEPA 2, mean (x - g)^2 of jepa-wms.
        difference = found[-1] - found[0]
        weight = (sizes.grid**2 * sizes.width) ** -0.5
        absolute = difference.abs().sum() * weight
        assert float(absolute) == pytest.approx(np.abs(wanted[-1] - wanted[0]).mean(), rel=1e-5)
        square = difference.square().sum()
        assert float(square) == pytest.approx(((wanted[-1] - wanted[0]) ** 2).mean(), rel=1e-5)


@pytest.mark.parametrize("name", SIZES)
def test_keeps_what_the_server_relies_on(name: str, convert: ModuleType, tmp_path: Path) -> None:
    made(convert, tmp_path, SIZES[name])
    asked = ["check-checkpoint", str(tmp_path / "out/run"), "--conformance"]
    shown = CliRunner().invoke(app, asked)
    assert shown.exit_code == 0, shown.stdout
    assert shown.stdout.count("\nkept    ") == 13


def test_reads_a_file_of_jepa_wms_beside_its_encoder(convert: ModuleType, tmp_path: Path) -> None:
    """Names of theirs give the tensors that V-JEPA 2's own file gives."""
    training = convert.Training(**TINY.training())
    wanted = convert.convert(tiny.write(tmp_path, TINY), tmp_path / "a", training)
    source, encoder = tiny.write_jepa_wms(tmp_path, TINY)
    found = convert.convert(source, tmp_path / "b", training, encoder)
    assert found.digest == wanted.digest
    with pytest.raises(UnsafeCheckpoint, match="name the file of V-JEPA 2's encoder with --encod"):
        convert.convert(source, tmp_path / "c", training)
    with pytest.raises(UnsafeCheckpoint, match="leave --encoder out"):
        convert.convert(tiny.write(tmp_path, TINY), tmp_path / "c", training, encoder)


def test_statistics_of_columns_are_undone(convert: ModuleType, tmp_path: Path) -> None:
    plain = made(convert, tmp_path, TINY)
    told = {"action_mean": [0.1] * 7, "action_std": [0.5] * 7, "state_mean": [1.0] * 7}
    (tmp_path / "out/run/acpc.json").write_text(json.dumps(told))
    undoing = load_checkpoint(tmp_path / "out", "run", device=CPU)
    assert isinstance(plain, TakesProprio)
    assert isinstance(undoing, TakesProprio)
    given = torch.arange(7.0)[None]
    torch.testing.assert_close(
        undoing.embed_actions(given[None]), plain.embed_actions(given[None] * 0.5 + 0.1)
    )
    torch.testing.assert_close(undoing.embed_proprio(given), plain.embed_proprio(given + 1))
    assert undoing.card.digest != plain.card.digest
    (tmp_path / "out/run/acpc.json").write_text(json.dumps({"action_mean": [0.1]}))
    with pytest.raises(UnsafeCheckpoint, match=r"action_mean: 1 numbers, but the model takes 7"):
        load_checkpoint(tmp_path / "out", "run", device=CPU)


def test_frames_are_square_and_as_large_as_in_training(convert: ModuleType, tmp_path: Path) -> None:
    model = made(convert, tmp_path, TINY)
    with pytest.raises(InvalidArgument, match="12 x 16 pixels; this model takes square frames"):
        model.encode(torch.zeros(1, 3, 12, 16))


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("_target_", "os.system", "not a known target"),
        ("image_size", 14, "no multiple of patch_size 4"),
        ("action_dim", 6, "a pose is moved by 7"),
        ("pose", False, "no such tensor"),
        ("history", 65, "history"),
        ("dropout", 0.1, "unknown key"),
        ("predictor", {"width": 28, "depth": 2, "heads": 3, "hidden": 112}, "in even parts"),
        ("encoder", {"width": 16384, "depth": 8, "heads": 2, "hidden": 65536}, "parameters"),
    ],
)
def test_a_config_is_matched_before_anything_is_built(
    key: str, value: object, words: str, convert: ModuleType, tmp_path: Path
) -> None:
    made(convert, tmp_path, TINY)
    path = tmp_path / "out/run/config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(UnsafeCheckpoint, match=words):
        load_checkpoint(tmp_path / "out", "run", device=CPU)


def _part(key: str, value: object) -> Write:
    return with_parts(lambda: tiny.checkpoint(TINY), **{key: value})


def _tensor(part: str, name: str, value: object) -> Write:
    return with_tensor(lambda: tiny.checkpoint(TINY), part, name, value)


# What the reader of archives rejects is tried with jepa-wms' converter, which calls the same one.
HOSTILE = {
    "payload-for-a-part": (_part("encoder", Payload), "posix.system"),
    "payload-as-the-loss": (_part("loss", Payload), "posix.system"),
    "no-predictor": (_part("predictor", ...), "not a V-JEPA 2-AC checkpoint"),
    "no-encoder": (_part("encoder", ...), "no 'encoder'"),
    "tensor-for-an-encoder": (_part("encoder", torch.ones(3)), "no 'encoder' with the tensors"),
    "dino-wm": (_part("action_encoder", {"x": torch.ones(1)}), "outside the predictor"),
    "another-predictor": (_part("predictor", {"x": torch.ones(1)}), "no 'predictor_blocks'"),
}
ONE, NANS = torch.ones(1), torch.full((36,), torch.nan)
ADALN = "predictor_blocks.0.adaLN_modulation.1.weight"
# A part, a tensor of it, what is put in its place, and what is said.
TENSORS: dict[str, tuple[str, str, object, str]] = {
    "text-for-a-tensor": ("encoder", "module.x", "x", "a str, not a tensor"),
    "two-of-one-name": ("encoder", "norm.bias", torch.ones(36), "have one name"),
    "gated-mlp": ("encoder", "blocks.0.mlp.fc3.weight", ONE, "no such tensor"),
    "no-patches": ("encoder", "module.backbone.patch_embed.proj.weight", ONE, "other axes"),
    "not-finite": ("encoder", "module.backbone.norm.bias", NANS, "not finite"),
    "other-shape": (
        "predictor",
        "module.predictor_proj.weight",
        torch.ones(36, 27),
        "config wants",
    ),
    "adaln": ("predictor", ADALN, ONE, "the AdaLN predictor of a JEPA-WM"),
}
HOSTILE |= {name: (_tensor(*given), words) for name, (*given, words) in TENSORS.items()}


@pytest.mark.parametrize("case", HOSTILE)
def test_runs_nothing_and_says_why(case: str, convert: ModuleType, tmp_path: Path) -> None:
    write, reason = HOSTILE[case]
    source = tiny.write(tmp_path, TINY)
    write(source, Payload(tmp_path / "EXECUTED"))
    with pytest.raises(UnsafeCheckpoint) as caught:
        training = convert.Training(**TINY.training())
        convert.convert(source, tmp_path / "out" / "run", training)
    assert reason in str(caught.value)
    assert not (tmp_path / "EXECUTED").exists()
    assert not [*tmp_path.glob("out/*")]


def test_command_line(
    convert: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tiny.write(tmp_path, TINY)
    asked = [str(source), "--out", str(tmp_path / "run"), "--image-size", "12", "--history", "2"]
    asked += ["--encoder-heads", "2", "--predictor-heads", "2"]
    assert convert.main(asked) == 0
    assert "vjepa2-ac" in capsys.readouterr().out
    assert convert.main(asked) == 1
    assert "name a new folder" in capsys.readouterr().err
    with pytest.raises(AlreadyExists):
        convert.convert(source, tmp_path / "run")
    asked[2] = str(tmp_path / "other")
    assert convert.main(["gone.pt", *asked[1:]]) == 1
    assert "gone.pt" in capsys.readouterr().err


def test_the_page_says_its_size(convert: ModuleType) -> None:
    """Counted from the network of the published sizes, on the meta device."""
    from acpc_vjepa2_ac.family import VJepa2ACConfig, build_network

    def trunk(width: int, depth: int, heads: int, hidden: int) -> dict[str, int]:
        return {"width": width, "depth": depth, "heads": heads, "hidden": hidden}

    published = {
        "_target_": "acpc_vjepa2_ac.VJepa2AC",
        "image_size": 256,
        "patch_size": 16,
        "tubelet_size": 2,
        "encoder": trunk(1408, 40, 22, 6144),
        "predictor": trunk(1024, 24, 16, 4096),
        "action_dim": 7,
        "history": 7,
        "pose": True,
    }
    with torch.device("meta"):
        network = build_network(VJepa2ACConfig.model_validate(published))
        frame, width = torch.empty(1, 3, 256, 256), network.visual + network.state
    parts = [sum(x.numel() for x in part.parameters()) for part in (network.encoder, network)]
    said = [f"{parts[0]:,}", f"{parts[1] - parts[0]:,}", f"{parts[1]:,}", f"{4 * parts[1]:,}"]
    said += [f"{width:,} numbers", f"{4 * width:,} bytes"]

    def tera(compute: Callable[[], object]) -> str:
        with torch.no_grad(), FlopCounterMode(display=False) as counted:
            compute()
        return f"{counted.get_total_flops() / 1e12:.3f}"

    said.append(tera(lambda: network.encode(frame)))
    for window in (1, 2, 7):
        latents = torch.empty(1, window, width, device="meta")
        actions = torch.empty(1, window, 7, device="meta")
        said.append(tera(functools.partial(network.predict, latents, actions)))
    page = (SOURCE / "README.md").read_text()
    assert [number for number in said if number not in page] == []
    assert 4 * parts[1] / 2**20 < 5200  # the setting that the page names
