"""Writes scores to experiment trackers: MLflow, Weights & Biases, TensorBoard.

with Tracker("mlflow:http://mlflow:5000", group="nightly") as tracker:
    Trainer(callbacks=[ScoreCheckpointCallback(..., listeners=[tracker])]).fit(model)
    Watch(..., listeners=[tracker]).run(client)

docs/sweeps.md says what is written. The libraries are loaded when they are used.
"""

from acpc_lab.exporters.tracker import Tracker
from acpc_lab.exporters.writers import Scored, ScoreRecord, epochs_of, record_of

__all__ = ["ScoreRecord", "Scored", "Tracker", "epochs_of", "record_of"]
