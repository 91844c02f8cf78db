"""Functional PyTorch: immutable tensor dicts, and modules bound to them."""

from importlib.metadata import PackageNotFoundError as _NotInstalled
from importlib.metadata import version as _version

from tdfunc import optim as optim
from tdfunc._errors import BatchSizeError as BatchSizeError
from tdfunc._errors import BindError as BindError
from tdfunc._errors import ImmutableError as ImmutableError
from tdfunc._errors import KeyPathError as KeyPathError
from tdfunc._errors import StorageError as StorageError
from tdfunc._errors import StructureError as StructureError
from tdfunc._errors import TdfuncError as TdfuncError
from tdfunc.core import TensorDict as TensorDict
from tdfunc.core import assert_close as assert_close
from tdfunc.core import cat as cat
from tdfunc.core import diff as diff
from tdfunc.core import from_flat as from_flat
from tdfunc.core import merge as merge
from tdfunc.core import stack as stack
from tdfunc.core import where as where
from tdfunc.interop import from_tensordict as from_tensordict
from tdfunc.module import bind as bind
from tdfunc.module import buffers_of as buffers_of
from tdfunc.module import load_into as load_into
from tdfunc.module import params_of as params_of
from tdfunc.module import state_of as state_of
from tdfunc.structure import register_static as register_static
from tdfunc.structure import static as static
from tdfunc.transforms import cond as cond
from tdfunc.transforms import dynamic_shapes as dynamic_shapes
from tdfunc.transforms import ensemble as ensemble
from tdfunc.transforms import grad as grad
from tdfunc.transforms import hessian as hessian
from tdfunc.transforms import hvp as hvp
from tdfunc.transforms import init_ensemble as init_ensemble
from tdfunc.transforms import jacfwd as jacfwd
from tdfunc.transforms import jacrev as jacrev
from tdfunc.transforms import jvp as jvp
from tdfunc.transforms import per_sample_grad as per_sample_grad
from tdfunc.transforms import scan as scan
from tdfunc.transforms import value_and_grad as value_and_grad
from tdfunc.transforms import vjp as vjp
from tdfunc.transforms import vmap as vmap
from tdfunc.transforms import while_loop as while_loop

try:
    __version__ = _version("tdfunc")
except _NotInstalled:  # run from a checkout
    __version__ = "0+unknown"
