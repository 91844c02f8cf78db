"""The container: TensorDict, what builds it, and its place among pytrees."""

from ._functions import assert_close as assert_close
from ._functions import cat as cat
from ._functions import diff as diff
from ._functions import from_flat as from_flat
from ._functions import merge as merge
from ._functions import stack as stack
from ._functions import where as where
from ._pytree import PathKey as PathKey
from ._tensordict import TensorDict as TensorDict
