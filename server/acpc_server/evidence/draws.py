"""Bounds how large a share of all draws of a perturbation may change a choice, from some draws."""

from __future__ import annotations

from scipy.special import betaincinv

CONFIDENCE = 0.95
# Above the error of scipy's inverse, relative, which is some 1e-14.
MARGIN = 1e-12


def most_uncertified(draws: int, uncertified: int) -> float:
    """Bound the share of all draws that are not certified, from above, with 95 % confidence.

    The exact one-sided bound of Clopper and Pearson (Biometrika 26, 1934) in float64, rounded up:
    the 0.95 quantile of Beta(k + 1, n - k) for ``uncertified`` k of n ``draws``; 1 where k = n.

    It counts draws of one random perturbation with independent keys, on one history and for one
    choice, whose number was fixed beforehand. Views of a perturbation without chance, and views of
    the caller's, are no draws and have no bound. It says nothing of other histories, choices or
    perturbations; nor does a draw that is not certified have to change the choice.
    """
    if not 0 <= uncertified <= draws:
        raise ValueError(f"{uncertified} of {draws} draws")
    if uncertified == draws:
        return 1.0
    quantile = float(betaincinv(uncertified + 1, draws - uncertified, CONFIDENCE))
    return min(1.0, quantile * (1.0 + MARGIN))
