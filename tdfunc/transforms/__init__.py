"""Transforms of functions of trees: torch.func, with trees in and out."""

from ._ensemble import ensemble as ensemble
from ._grad import grad as grad
from ._grad import value_and_grad as value_and_grad
from ._init_ensemble import init_ensemble as init_ensemble
from ._vmap import vmap as vmap
