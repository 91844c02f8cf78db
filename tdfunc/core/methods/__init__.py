"""The methods of a TensorDict, grouped by what they are about; each is one call of a function in `ops`."""

from ._arithmetic import Arithmetic as Arithmetic
from ._casts import Casts as Casts
from ._entries import Entries as Entries
from ._facts import Facts as Facts
from ._functions import Functions as Functions
from ._leaves import Leaves as Leaves
from ._out import Out as Out
from ._reductions import Reductions as Reductions
from ._shapes import Shapes as Shapes
