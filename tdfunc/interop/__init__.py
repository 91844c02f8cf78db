"""Trees to and from the types of other libraries; each library is imported when a function of its file is called.

Frameworks that move batches need nothing of this: a TensorDict is a mapping with `.to(device)` and `.pin_memory()`, which
is what Lightning's `move_data_to_device`, Accelerate's `send_to_device` and torch's own pinning ask for. Where a framework
rebuilds mappings from dicts instead, as torch's `default_collate` and Accelerate's `slice_tensors` do, the batch size and
ties are lost: `collate` is there for the first, `td.with_batch_size(n)` for the others.
"""

from ._any import from_any as from_any
from ._any import from_list as from_list
from ._dataclass import from_dataclass as from_dataclass
from ._dataclass import to_dataclass as to_dataclass
from ._files import from_csv as from_csv
from ._files import from_json as from_json
from ._files import from_parquet as from_parquet
from ._files import to_csv as to_csv
from ._files import to_json as to_json
from ._files import to_parquet as to_parquet
from ._groups import group_by as group_by
from ._loader import Rows as Rows
from ._loader import collate as collate
from ._loader import rows as rows
from ._namedtuple import from_namedtuple as from_namedtuple
from ._pandas import from_pandas as from_pandas
from ._pandas import to_pandas as to_pandas
from ._struct_array import from_struct_array as from_struct_array
from ._struct_array import to_struct_array as to_struct_array
from ._tensordict import from_tensordict as from_tensordict
