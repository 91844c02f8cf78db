"""Functional PyTorch: immutable tensor dicts, and modules bound to them."""

from tdfunc.core import TensorDict as TensorDict
from tdfunc.core import merge as merge
from tdfunc.core import stack as stack
from tdfunc.structure import register_static as register_static
from tdfunc.structure import static as static
