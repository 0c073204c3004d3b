"""Sizes of device calls.

An interactive request may have to wait for one call of a job, so job calls are short. Sizes
depend on shapes alone, never on load, so that a repeated job is cut alike and gives equal bytes.
"""

from __future__ import annotations

from acpc_server.models import ModelCard
from acpc_server.scheduling import Priority

INTERACTIVE, JOB = Priority.INTERACTIVE, Priority.JOB
CPU, ACCELERATOR = "cpu", "accelerator"
# Pixels and frames of one encoder call.
PIXELS = {
    (CPU, INTERACTIVE): 8 * 224 * 224,
    (CPU, JOB): 4 * 224 * 224,
    (ACCELERATOR, INTERACTIVE): 256 * 224 * 224,
    (ACCELERATOR, JOB): 128 * 224 * 224,
}
FRAMES = {INTERACTIVE: 512, JOB: 52}
# Parameters x predicted tokens of one rollout call; a model of 18 million parameters on a CPU
# spends about a tenth of a second on 10^10.
ROLLOUT_WORK = {
    (CPU, INTERACTIVE): 4e10,
    (CPU, JOB): 1e10,
    (ACCELERATOR, INTERACTIVE): 4e12,
    (ACCELERATOR, JOB): 1e12,
}
ROLLOUTS = {
    (CPU, INTERACTIVE): 512,
    (CPU, JOB): 32,
    (ACCELERATOR, INTERACTIVE): 8192,
    (ACCELERATOR, JOB): 4096,
}
MIN_ROLLOUTS = 8
# Histories x candidates of one pool call.
POOL_ROWS = {CPU: 1024, ACCELERATOR: 16384}
PATCH_PIXELS = 14 * 14  # roughly a token's


def frames_per_call(device: str, priority: Priority, height: int, width: int) -> int:
    """Frames of this size that one encoder call takes."""
    pixels = PIXELS[_place(device), priority] // (height * width)
    return max(1, min(FRAMES[priority], pixels))


def rollouts_per_call(device: str, priority: Priority, card: ModelCard, blocks: int) -> int:
    """Histories that one rollout call takes."""
    rows = int(ROLLOUT_WORK[_place(device), priority] // rollout_work(card, blocks))
    fewest = 1 if card.latent_tokens else MIN_ROLLOUTS
    return max(fewest, min(ROLLOUTS[_place(device), priority], rows))


def pool_candidates_per_call(device: str, histories: int, card: ModelCard) -> int:
    """Candidates that one pool call rolls forward from every history."""
    return max(1, POOL_ROWS[_place(device)] // (histories * max(1, card.latent_tokens)))


def pool_rows_per_call(device: str, card: ModelCard, horizon: int) -> int:
    """Histories x candidates of requests that share one pool call; at least 1."""
    rows = int(ROLLOUT_WORK[_place(device), INTERACTIVE] // rollout_work(card, horizon))
    return max(1, min(POOL_ROWS[_place(device)], rows))


def encoding_work(card: ModelCard, height: int, width: int) -> float:
    """Parameters x tokens of one frame of this size."""
    return card.parameter_count * height * width / PATCH_PIXELS


def rollout_work(card: ModelCard, blocks: int) -> float:
    """Parameters x tokens of one history under this many action blocks."""
    tokens = max(1, card.latent_tokens)
    return float(max(1, card.parameter_count) * card.history * blocks * tokens)


def _place(device: str) -> str:
    return CPU if device == "cpu" else ACCELERATOR
