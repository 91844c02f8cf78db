"""The container: TensorDict, what builds it, and its place among pytrees."""

from ._functions import merge as merge
from ._functions import stack as stack
from ._pytree import PathKey as PathKey
from ._tensordict import TensorDict as TensorDict
