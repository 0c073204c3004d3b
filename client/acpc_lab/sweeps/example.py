"""The commented sweep file that ``acpc sweep init`` writes."""

EXAMPLE = """\
# A sweep: checkpoints x shifts x severities x seeds. Check it with:  acpc sweep check {file}
# Run it, and run it again after any interruption, with:              acpc sweep run {file}

# Names the folder beside this file ({name}.sweep) and is part of every job's request id: sweeps of
# one name share the jobs they have in common. Take another name to measure everything anew.
name: {name}
# description: What these numbers are about.

# server:                          # --target and $ACPC_TARGET win over this
#   target: gpu-host:50051
#   tls: {{ca_file: ca.pem}}         # and certificate_file with key_file for mutual TLS

# What to score. Names are those of `acpc checkpoints list`; * and ? stand for characters of one
# path part, ** for any, and {{label}} for characters that are kept as a label. Labels say what a
# checkpoint is; reports use task, family, run and level (of training augmentation).
checkpoints:
  - name: lewm/tworoom/run{{run}}/noise-{{level}}
    # weights: weights_epoch_{{epoch}}.pt  # which file, where a folder has several
    reference: lewm/tworoom/run{{run}}/noise-0.00   # unaugmented: same task, run and family
    labels: {{task: tworoom, family: lewm}}
  # - pldm/tworoom/*                       # a name alone will do
# reference: lewm/baseline                 # for the items that name none

# On what: a dataset below the server's dataset root, and a task. An item of `checkpoints` may have
# anchors of its own, and dataset and task may use its labels: "{{task}}.h5".
anchors:
  dataset: tworoom.h5
  task: tworoom
  # count: 100
  # seed: 9101
  # one_per_episode: false
  # freeze: true                   # make an anchor set of it first, and score all cells on that,
  # history: 3                     # with so many frames of history
# anchors: {{upload: windows.npz}}   # or windows of your own, beside this file
# anchors: {{set: <digest>}}         # or a set that is there already; see `acpc anchors`

# Under which visual changes; severities are a number, a list, or evenly spaced: 0.02..0.08/4
shifts:
  - gaussian_noise: [0.02, 0.05, 0.08]
  - blur: 15
  - resize: 0.25
  # - motion_blur: {{length: [5, 9], angle: 30}}    # parameters by name; lists are severities
  # - registered: {{name: fog, parameters: {{density: 0.3}}}}

# seeds: [0, 1, 2]                 # of the draws; each is a cell of its own
# protocol:                        # the paper's, unless you say otherwise
#   draws: 5
#   horizon: 8
#   quantile: 0.90
#   margin: 0.10
#   extra_horizons: [1, 2, 4]
#   extra_quantiles: [0.5]
# thresholds: {{ir: 0.30, sr: 0.95}}
# numeric_mode: fp32               # or tf32, bf16; default: the server's

# concurrency: 4                   # jobs at the server at a time
# retries: 3                       # for a cell whose job fails by no fault of its own
"""
