"""Runs every tensor annotation of the server as a check, and finds the NumPy reference."""

import sys
from pathlib import Path

import torch
from jaxtyping import install_import_hook

install_import_hook("acpc_server", "beartype.beartype")
torch.set_num_threads(1)
sys.path.insert(0, str(Path(__file__).parent / "reference"))
