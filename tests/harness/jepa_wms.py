"""The scripts of examples/jepa_wms."""

from example_scripts import script

convert, tiny = script("jepa_wms", "convert"), script("jepa_wms", "tiny")
