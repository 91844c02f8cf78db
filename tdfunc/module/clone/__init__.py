"""One module object in another's place: its attributes, its class, its buffers, and how it runs inside transforms."""

from ._blank import HOOKS as HOOKS
from ._blank import PLAIN as PLAIN
from ._blank import blank as blank
from ._isolate import isolate as isolate
from ._isolate import isolate_all as isolate_all
from ._known import Known as Known
from ._known import identities as identities
from ._known import known as known
from ._known import sizes as sizes
