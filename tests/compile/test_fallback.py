"""Where torch has no opaque objects, compiled functions still give what eager gives, in more than one graph."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

WITHOUT = """
import torch
import torch._dynamo
import torch._library.opaque_object as opaque
register = opaque.register_opaque_type
del opaque.register_opaque_type
import tdfunc
opaque.register_opaque_type = register  # torch needs it too
from torch import nn

td = tdfunc.TensorDict({"x": torch.arange(12.0).reshape(3, 4), "y": {"z": torch.ones(3)}}, batch_size=3)
net, x = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1)), torch.randn(5, 4)
params, buffers = tdfunc.params_of(net), tdfunc.buffers_of(net)
"""
BODIES = {
    "reading": "lambda: td['x'] + td['y', 'z'].sum() + td['y']['z'].sum() + len(td)",
    "setting": "lambda: td.set('n', td['x'].sum(1)).set(('y', 'k'), td['x'] * 2).select('n', 'y')",
    "maps": "lambda: td.map(lambda leaf: leaf * 2) + td",
    "stacking": "lambda: tdfunc.stack([td, td + 1])[0]",
    "binding": "lambda: tdfunc.bind(net.eval(), params, buffers)(x)",
    "gradients": "lambda: tdfunc.grad(lambda p: tdfunc.bind(net.eval(), p, buffers)(x).sum())(params)",
    "mapping": "lambda: tdfunc.vmap(lambda row: row.set('s', row['x'].sum()))(td)",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_without_opaque_objects_a_compiled_function_equals_eager(body):
    code = WITHOUT + textwrap.dedent(f"""
        fn = {body}
        want, got = fn(), torch.compile(fn, backend="eager")()
        assert want.equal(got) if isinstance(want, tdfunc.TensorDict) else torch.equal(want, got)
    """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
