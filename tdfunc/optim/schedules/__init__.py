"""Learning rates and decays as pure functions of the step: what an optimizer takes as `lr`, and `ema` as decay.

The step is an int64 tensor of any shape, as in an optimizer's state, or an int; the value a float64 tensor of that shape. No
schedule looks at the value of a step, so none recompiles a step, and all work under `vmap`.
"""

from ._base import Schedule as Schedule
from ._curves import constant as constant
from ._curves import cosine as cosine
from ._curves import exponential as exponential
from ._curves import linear as linear
from ._curves import piecewise as piecewise
from ._joined import join as join
from ._joined import one_cycle as one_cycle
from ._joined import warmup as warmup
