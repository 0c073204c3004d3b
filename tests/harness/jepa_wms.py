"""The scripts of examples/jepa_wms."""

import sys

from example_scripts import EXAMPLES, script

sys.path.append(str(EXAMPLES / "jepa_wms"))  # the converter imports what lies beside it
convert, tiny = script("jepa_wms", "convert"), script("jepa_wms", "tiny")
