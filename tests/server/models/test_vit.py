"""The encoder against transformers' ViTModel."""

import pytest
import torch
from acpc_server.models.families import rename_old_layers
from acpc_server.models.parts import EncoderConfig
from acpc_server.models.vit import ViT
from beartype.roar import BeartypeCallHintViolation
from public_checkpoint import with_old_names
from torch import Tensor, nn

SMALL = {
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "image_size": 32,
    "patch_size": 8,
}
PAPER = {
    "hidden_size": 192,
    "num_hidden_layers": 12,
    "num_attention_heads": 3,
    "intermediate_size": 768,
    "image_size": 224,
    "patch_size": 14,
}
LOADS = pytest.mark.process  # transformers, for seconds


def public_vit(geometry: dict[str, int], mask_token: bool = False) -> nn.Module:
    from transformers import ViTConfig, ViTModel

    torch.manual_seed(3)
    model = ViTModel(ViTConfig(**geometry), add_pooling_layer=False, use_mask_token=mask_token)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "layernorm" in name and name.endswith("weight"):
                parameter.normal_(1.0, 0.2)
            elif parameter.ndim == 2:
                parameter.normal_(0.0, parameter.shape[1] ** -0.5)
            else:
                parameter.normal_(0.0, 0.2)
    return model.eval()


def our_vit(geometry: dict[str, int], state: dict[str, Tensor] | None = None) -> ViT:
    target = "stable_pretraining.backbone.utils.vit_hf"
    keys = {"_target_": target, **geometry, "use_mask_token": False}
    model = ViT(EncoderConfig.model_validate(keys))
    if state is not None:
        model.load_state_dict(state)
    return model.eval()


def relative_error(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


@LOADS
@pytest.mark.parametrize(
    "size",
    [(32, 32), (40, 40), (32, 48), (16, 64), (35, 39), (33, 34), (8, 8), (64, 24), (224, 224)],
)
@torch.inference_mode()
def test_encoder_at_any_frame_size(size: tuple[int, int]) -> None:
    """The last is the paper's size, of the paper's encoder."""
    geometry = PAPER if size == (224, 224) else SMALL
    public = public_vit(geometry)
    frames = torch.randn(4 if geometry is SMALL else 1, 3, *size)
    wanted = public(frames, interpolate_pos_encoding=True).last_hidden_state[:, 0]
    found = our_vit(geometry, public.state_dict())(frames)
    assert relative_error(found, wanted) <= 1e-5


@LOADS
@torch.inference_mode()
def test_names_of_both_generations() -> None:
    """5.x names are ours, and 4.x names map onto them."""
    public = public_vit(SMALL, mask_token=True)
    state = {f"encoder.{name}": tensor for name, tensor in public.state_dict().items()}
    old = with_old_names(state)
    assert "encoder.encoder.layer.0.attention.attention.query.weight" in old
    renamed = rename_old_layers(old, "weights.pt")
    assert renamed.keys() == state.keys()
    assert all(torch.equal(renamed[name], state[name]) for name in state)


@LOADS
def test_gradients_are_those_of_the_public_encoder() -> None:
    """Computing CLS alone in the last layer leaves every gradient as it was."""
    public = public_vit(SMALL)
    ours = our_vit(SMALL, public.state_dict())
    frames = torch.randn(2, 3, 32, 32)
    public(frames, interpolate_pos_encoding=True).last_hidden_state[:, 0].square().sum().backward()
    ours(frames).square().sum().backward()
    wanted = {name: parameter.grad for name, parameter in public.named_parameters()}
    for name, parameter in ours.named_parameters():
        assert parameter.grad is not None and wanted[name] is not None
        torch.testing.assert_close(parameter.grad, wanted[name], rtol=1e-3, atol=1e-4)


def test_annotations_are_run() -> None:
    with pytest.raises(BeartypeCallHintViolation):
        our_vit(SMALL)(torch.randn(1, 4, 32, 32))
