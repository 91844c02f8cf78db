"""Optimizers as pairs of pure functions; states are TensorDicts."""

from ._adam import adam as adam
from ._adam import adamw as adamw
from ._base import Optimizer as Optimizer
from ._sgd import sgd as sgd
