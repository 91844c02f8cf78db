"""Transforms of functions of trees: torch.func, with trees in and out."""

from ._control import cond as cond
from ._control import scan as scan
from ._control import while_loop as while_loop
from ._ensemble import ensemble as ensemble
from ._export import dynamic_shapes as dynamic_shapes
from ._grad import grad as grad
from ._grad import value_and_grad as value_and_grad
from ._init_ensemble import init_ensemble as init_ensemble
from ._jacobian import hessian as hessian
from ._jacobian import jacfwd as jacfwd
from ._jacobian import jacrev as jacrev
from ._per_sample import per_sample_grad as per_sample_grad
from ._products import hvp as hvp
from ._products import jvp as jvp
from ._products import vjp as vjp
from ._vmap import vmap as vmap
