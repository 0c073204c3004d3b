"""Runs every tensor annotation of the server as a check."""

import torch
from jaxtyping import install_import_hook

# The rooms whose signatures carry shapes.
ROOMS = ("numerics", "models", "perturb", "data", "engine", "diagnostics")

install_import_hook([f"acpc_server.{room}" for room in ROOMS], "beartype.beartype")
torch.set_num_threads(1)
