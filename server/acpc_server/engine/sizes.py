"""Sizes of device calls.

An interactive request may have to wait for one call of a job, so a job's takes about a tenth of a
second, and never less than a row. Sizes depend on the model and on shapes alone, never on load or
measured speed, so that a repeated job is cut alike and gives equal bytes.
"""

from __future__ import annotations

from acpc_server.models import ModelCard
from acpc_server.perturb import PIECE_WORK
from acpc_server.scheduling import Priority

INTERACTIVE, JOB = Priority.INTERACTIVE, Priority.JOB
CPU, ACCELERATOR = True, False  # whether the device is a CPU
# Pixels and frames of one encoder call.
PIXELS = {
    (CPU, INTERACTIVE): 8 * 224 * 224,
    (CPU, JOB): 8 * 224 * 224,
    (ACCELERATOR, INTERACTIVE): 256 * 224 * 224,
    (ACCELERATOR, JOB): 128 * 224 * 224,
}
FRAMES = {
    (CPU, INTERACTIVE): 512,
    (CPU, JOB): 52,
    (ACCELERATOR, INTERACTIVE): 512,
    (ACCELERATOR, JOB): 512,
}
# Parameters x tokens of one encoder call of a job. Two cores take about a tenth of a second for
# 1.8e10: four frames of 224 pixels in a model of 18 million parameters.
ENCODING_WORK = {CPU: 2e10, ACCELERATOR: 2e12}
# Parameters x predicted tokens of one rollout call; that model spends about a tenth of a second on
# 1e10.
ROLLOUT_WORK = {
    (CPU, INTERACTIVE): 4e10,
    (CPU, JOB): 1e10,
    (ACCELERATOR, INTERACTIVE): 4e12,
    (ACCELERATOR, JOB): 1e12,
}
ROLLOUTS = {
    (CPU, INTERACTIVE): 512,
    (CPU, JOB): 128,
    (ACCELERATOR, INTERACTIVE): 8192,
    (ACCELERATOR, JOB): 4096,
}
MIN_ROLLOUTS = 8
# Histories x candidates of one pool call.
POOL_ROWS = {CPU: 1024, ACCELERATOR: 16384}
PATCH_PIXELS = 14 * 14  # roughly a token's
# Drawing in the device's thread, or in a request's own turn; what takes longer has its own line.
IN_PLACE_WORK = 4 * PIECE_WORK
# Coordinates of predicted latents that a request or a job holds at a time, 64 MiB of float32.
# Vectors of a few hundred numbers seldom come to it; those of patches have a hundred thousand.
HELD_LATENTS = 2**24


def frames_per_call(
    device: str, priority: Priority, card: ModelCard, height: int, width: int
) -> int:
    """Count the frames of this size that one encoder call takes; at least 1."""
    place = device == "cpu"
    most = min(FRAMES[place, priority], PIXELS[place, priority] // (height * width))
    if priority is JOB:
        work = max(1.0, encoding_work(card, height, width))
        most = min(most, int(ENCODING_WORK[place] // work))
    return max(1, most)


def rollouts_per_call(device: str, priority: Priority, card: ModelCard, blocks: int) -> int:
    """Count the histories that one rollout call takes."""
    rows = int(ROLLOUT_WORK[device == "cpu", priority] // rollout_work(card, blocks))
    fewest = 1 if card.latent_tokens else MIN_ROLLOUTS
    most = min(ROLLOUTS[device == "cpu", priority], held_rows(card, blocks))
    return max(fewest, min(most, rows))


def pool_candidates_per_call(device: str, histories: int, card: ModelCard, horizon: int) -> int:
    """Count the candidates that one pool call rolls forward from every history."""
    rows = POOL_ROWS[device == "cpu"] // max(1, card.latent_tokens)
    return max(1, min(rows, held_rows(card, horizon)) // histories)


def held_rows(card: ModelCard, horizon: int) -> int:
    """Rollouts of so many steps that are held at a time; at least 1."""
    return max(1, HELD_LATENTS // (card.latent_dim * horizon))


def pool_rows_per_call(device: str, card: ModelCard, horizon: int) -> int:
    """Histories x candidates of requests that share one pool call; at least 1."""
    rows = int(ROLLOUT_WORK[device == "cpu", INTERACTIVE] // rollout_work(card, horizon))
    return max(1, min(POOL_ROWS[device == "cpu"], rows, held_rows(card, horizon)))


def encoding_work(card: ModelCard, height: int, width: int) -> float:
    """Parameters x tokens of one frame of this size."""
    return card.parameter_count * height * width / PATCH_PIXELS


def rollout_work(card: ModelCard, blocks: int) -> float:
    """Parameters x tokens of one history under this many action blocks."""
    tokens = max(1, card.latent_tokens)
    return float(max(1, card.parameter_count) * card.history * blocks * tokens)
