"""What the page says about its terms and its limits."""

from __future__ import annotations

TERMS: tuple[tuple[str, str], ...] = (
    (
        "Anchor",
        "A logged history of frames with its recorded actions; all numbers are computed at the "
        "same anchors for every checkpoint of a task.",
    ),
    (
        "Shift, draw",
        "The visual change under test, and one random instance of it; a draw depends only on "
        "seed, anchor and shift.",
    ),
    (
        "ACPC",
        "Distance between the futures predicted from the clean and from the perturbed history "
        "under the same actions, a root mean square over the predicted steps unless weighted.",
    ),
    (
        "Clean motion s",
        "Median distance between the clean embeddings of successive observed frames of an anchor; "
        "the unit of R and D.",
    ),
    ("Normalised radius R", "ACPC of an anchor over its clean motion, mean over the draws."),
    ("Raw IR", "A high quantile of R over the anchors, 90 % in the paper: lower is better."),
    (
        "Relative IR",
        "Raw IR over that of the unaugmented reference checkpoint of the same task, training run "
        "and family.",
    ),
    (
        "Different-state distance D",
        "Distance of an anchor's clean prediction from that of its nearest anchor with another "
        "state label, under the same actions, in clean motions.",
    ),
    (
        "SR",
        "Separation rate: the fraction of eligible anchors whose D exceeds raw IR by the margin; "
        "higher is better.",
    ),
    ("Eligible", "An anchor that has a partner with another state label within reach."),
    (
        "S",
        "The smaller of the two normalised distances to the thresholds; not negative exactly when "
        "both are met. ΔS is S minus the reference's own S.",
    ),
    (
        "Median latent distance",
        "Between the clean latents of different anchors; near zero means that the representation "
        "has collapsed.",
    ),
)

LIMITS: tuple[str, ...] = (
    "A checkpoint that passes has met two thresholds at these anchors, under these shifts and "
    "draws. It says nothing about other severities, other shifts or data the anchors do not cover.",
    "Passing is not planning success. IR and SR are measured without a planner; the default "
    "thresholds were chosen on other tasks, and their IR threshold was the largest one tried.",
    "SR knows only the state labels of the tested pairs. What the labels do not tell apart, and "
    "the anchors that have no partner, it does not see.",
    "Relative IR compares a checkpoint with its own reference. It does not rank checkpoints of "
    "different tasks, training runs or model families.",
    "The numbers are estimates without error bars: SR moves in steps of one over the eligible "
    "anchors, so a value close to its threshold can fall on the other side with other anchors.",
    "No single planning decision is certified here; for that there is CertifyPool.",
)
