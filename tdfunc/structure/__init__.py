"""The static half of a tree: key paths, event ranks, ties and static values, hash-consed. No tensors here."""

from ._glob import is_pattern as is_pattern
from ._keys import KeyPath as KeyPath
from ._keys import as_key as as_key
from ._keys import as_path as as_path
from ._keys import is_path as is_path
from ._memo import clear_caches as clear_caches
from ._opaque import constant as constant
from ._opaque import named_after as named_after
from ._opaque import traced_as as traced_as
from ._opaque import whole as whole
from ._spec import from_json as from_json
from ._spec import from_spec as from_spec
from ._spec import to_json as to_json
from ._static import Static as Static
from ._static import is_static as is_static
from ._static import register_static as register_static
from ._static import static as static
from ._structure import Structure as Structure
from ._table import Entry as Entry
from ._table import Spec as Spec
from ._table import Subtree as Subtree
from ._transitions import Splice as Splice
from ._transitions import compose as compose
from ._transitions import compose_shapes as compose_shapes
from ._trie import empty as empty
