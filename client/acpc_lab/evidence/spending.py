"""Spends the error of a verdict over the epochs of a training run."""

from __future__ import annotations

import math
from dataclasses import replace

from acpc_client import EvidenceOptions

# About as many epochs as a run has.
ERROR_HALFLIFE = 100
_IN_TAILS = 4
_FINEST = 100_000


def at_epoch(options: EvidenceOptions, epoch: int | None, halflife: int | None) -> EvidenceOptions:
    """The options at the share of the error that one epoch has.

    By epoch k, counted from 1, alpha k / (k + halflife) of the error alpha is spent, so that all
    epochs together have alpha and half of it is spent by the halflife (a spending function, Lan and
    DeMets 1983; with a halflife of 1 the error of epoch k is alpha / (k (k + 1))). The number of an
    epoch decides, not how many were scored, so a run that is resumed goes on where it was. Errors
    that the bootstrap cannot resolve are raised to the least it can: with the defaults from epoch
    400 on, and what was left over lasts until epoch 800.

    Args:
        options: Confidence over all epochs, and what else the evidence is made of.
        epoch: Its number, from 0; None: it is not one of many.
        halflife: Epochs over which half of the error is spent; None: each has all of it.
    """
    if epoch is None or halflife is None:
        return options
    alpha, k = 1 - options.confidence, epoch + 1
    error = alpha * halflife / ((halflife + k) * (halflife + k - 1))
    error = max(error, 2 / (_FINEST - 1))
    resamples = min(max(options.resamples, math.ceil(_IN_TAILS / error)), _FINEST)
    return replace(options, confidence=1 - error, resamples=resamples)
