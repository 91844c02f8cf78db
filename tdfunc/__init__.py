"""Functional PyTorch: immutable tensor dicts, and modules bound to them."""

from tdfunc.core import TensorDict as TensorDict
from tdfunc.core import merge as merge
from tdfunc.core import stack as stack
from tdfunc.module import bind as bind
from tdfunc.module import buffers_of as buffers_of
from tdfunc.module import load_into as load_into
from tdfunc.module import params_of as params_of
from tdfunc.module import state_of as state_of
from tdfunc.structure import register_static as register_static
from tdfunc.structure import static as static
