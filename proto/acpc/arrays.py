"""The type of arrays whose annotations are read at run time.

NumPy's own ``NDArray`` is, from NumPy 2.5 on, an alias that ``typing.get_origin`` does not see
through.
"""

from typing import Any, TypeAlias, TypeVar

import numpy as np

_Item = TypeVar("_Item", bound=np.generic)

NDArray: TypeAlias = np.ndarray[tuple[Any, ...], np.dtype[_Item]]
"""An array of any shape with items of one type, as ``NDArray[np.float64]``."""
