"""Types of the arrays that kernels take."""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Float32s = npt.NDArray[np.float32]
Int32s = npt.NDArray[np.int32]
Int8s = npt.NDArray[np.int8]
Bools = npt.NDArray[np.bool_]
