"""Checkpoints of no other test: other sizes, other seeds, some of them collapsed."""

from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acpc_client import CheckpointScore
from public_checkpoint import public_config, random_state_dict, write_checkpoint
from reference_model import ReferenceModel
from torch import Tensor

AGREEMENT = 1e-4


@dataclass(frozen=True)
class Network:
    """A random network.

    Attributes:
        collapse: Factor of both heads' last weights, beside a bias of order one: rounding stays
            what it was while everything that a frame can change shrinks.
        odd: Whether every width and depth differs from the other tests' networks.
    """

    family: str
    seed: int
    collapse: float = 1.0
    odd: bool = False

    @property
    def config(self) -> dict[str, Any]:
        config = public_config(family=self.family)
        if self.odd:
            config["encoder"].update(
                patch_size=6, image_size=30, hidden_size=40, num_hidden_layers=3,
                num_attention_heads=5, intermediate_size=72,
            )  # fmt: skip
            config["predictor"].update(
                input_dim=20, hidden_dim=20, output_dim=20, depth=3, heads=3, mlp_dim=44
            )
            config["action_encoder"]["emb_dim"] = 20
            for head, width in (("projector", 40), ("pred_proj", 20)):
                config[head].update(input_dim=width, output_dim=20, hidden_dim=36)
        return config

    @property
    def state(self) -> OrderedDict[str, Tensor]:
        state = random_state_dict(self.config, self.seed)
        for head in ("projector", "pred_proj"):
            state[f"{head}.net.3.weight"] *= self.collapse
            state[f"{head}.net.3.bias"] += 1
        return state

    def write(self, folder: Path) -> None:
        write_checkpoint(folder, self.config, self.state)

    @property
    def reference(self) -> ReferenceModel:
        state = {name: tensor.double() for name, tensor in self.state.items()}
        return ReferenceModel(self.config, state, loops=False)


def check_agreement(found: CheckpointScore, ir_raw: float) -> str:
    """Raw IR against float64, as the README states it; answers a line that says how near."""
    floor = found.rounding_floor
    assert floor is not None
    error = abs(found.ir_raw - ir_raw)
    floors = found.ir_raw / floor
    said = f"IR {ir_raw:.4g}, {floors:.3g} floors, error {error / ir_raw:.1e} of it"
    if floors > 100:
        assert error <= AGREEMENT * ir_raw, said
    # The two float64 computations differ by rounding too.
    assert error <= floor / 100 + 1e-9 * ir_raw, said
    assert bool(found.rounding_note) == (floors <= 10), said
    return said
