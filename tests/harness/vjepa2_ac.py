"""The scripts of examples/vjepa2_ac."""

from example_scripts import script

convert, tiny = script("vjepa2_ac", "convert"), script("vjepa2_ac", "tiny")
