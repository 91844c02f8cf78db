"""bytes and memory_table: what values take, and what memory is held, for every kind of leaf. The oracles are arithmetic."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import _pytree

import tdfunc
from tdfunc import TensorDict, params_of

FLOAT, LONG, DOUBLE = 4, 8, 8


def sizes(td, **kwargs):
    """Both answers: of the values, and of the memory held; the table must agree."""
    both = td.bytes(**kwargs), td.bytes(count_duplicates=False, **kwargs)
    table = td.memory_table(**kwargs)
    assert (table.total, table.held) == both
    assert sum(row.bytes + row.grad for row in table) == both[0]
    return both


def with_grad(n=6):
    param = nn.Parameter(torch.zeros(n))
    param.grad = torch.ones(n)
    return param


# --- plain tensors ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "each"),
    [
        ("bool", 1),
        ("int8", 1),
        ("float8_e4m3fn", 1),
        ("bfloat16", 2),
        ("int32", 4),
        ("float32", 4),
        ("float64", 8),
        ("complex64", 8),
        ("complex128", 16),
    ],
)
def test_a_tensor_takes_its_elements_of_any_dtype(dtype, each):
    assert sizes(TensorDict(a=torch.empty(2, 3, dtype=getattr(torch, dtype)))) == (6 * each, 6 * each)


def test_all_levels_count_and_static_values_and_empty_nodes_do_not():
    td = TensorDict({"a": torch.zeros(2, 3), "n": {"b": torch.zeros(2, dtype=torch.int64), "s": "a static value", "e": {}}}, 2)
    assert sizes(td) == (6 * FLOAT + 2 * LONG,) * 2
    assert sizes(td["n"]) == (2 * LONG,) * 2


def test_a_tree_without_leaves_takes_nothing():
    assert sizes(TensorDict({})) == sizes(TensorDict({"s": "x", "e": {}}, 3)) == (0, 0)


def test_parameters_and_buffers_of_a_module_take_what_their_shapes_say():
    net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    assert sizes(params_of(net)) == ((12 + 3 + 3 + 3) * FLOAT,) * 2
    assert sizes(tdfunc.buffers_of(net)) == ((3 + 3) * FLOAT + LONG,) * 2


def test_the_module_and_its_parameters_hold_the_same_memory():
    net = nn.Linear(4, 3)
    td = TensorDict({"module": dict(net.named_parameters()), "params": params_of(net)})
    assert sizes(td) == (2 * 15 * FLOAT, 15 * FLOAT)


# --- one storage, several tensors -------------------------------------------------------------------------------------


def test_a_tied_leaf_counts_under_each_path_and_is_held_once():
    td = TensorDict({"a": torch.zeros(6), "b": {"c": torch.zeros(6)}, "d": torch.zeros(2)}).tie("a", ("b", "c"))
    assert sizes(td) == ((6 + 6 + 2) * FLOAT, (6 + 2) * FLOAT)
    assert sizes(td["b"]) == (6 * FLOAT,) * 2


@pytest.mark.parametrize(
    "alias",
    [
        lambda x: x.detach(),
        lambda x: x.data,
        lambda x: nn.Parameter(x),
        lambda x: x.view(2, 3),
        lambda x: x.view(torch.int32),
        lambda x: torch.empty(0).set_(x),
        lambda x: torch.from_dlpack(x),
        lambda x: torch.from_numpy(x.numpy()),
        lambda x: torch.frombuffer(x.numpy(), dtype=torch.float32),
    ],
)
def test_aliases_of_one_memory_count_each_and_are_held_once(alias):
    x = torch.zeros(6)
    assert sizes(TensorDict(a=x, b=alias(x))) == (48, 24)
    assert sizes(TensorDict(a=alias(x), b=x)) == (48, 24)


def test_equal_tensors_of_their_own_memory_are_held_each():
    x = torch.zeros(6)
    assert sizes(TensorDict(a=x, b=x.clone())) == (48, 48)


def test_an_expanded_tensor_counts_in_full_and_holds_one_element():
    assert sizes(TensorDict(a=torch.zeros(1).expand(100))) == (400, 4)


@pytest.mark.parametrize("view", [lambda x: x[:1], lambda x: x[-1:], lambda x: x[::1000], lambda x: x.reshape(10, -1)[:1, :1], lambda x: x[:0]])
def test_a_small_view_holds_its_whole_storage(view):
    x = torch.zeros(1000)
    assert sizes(TensorDict(a=view(x))) == (view(x).numel() * 4, 4000)
    assert sizes(TensorDict(a=view(x), b=view(x).clone())) == (2 * view(x).numel() * 4, 4000 + view(x).numel() * 4)
    assert sizes(TensorDict(a=view(x), b=x)) == (view(x).numel() * 4 + 4000, 4000)


def test_views_of_different_parts_hold_their_storage_once():
    x = torch.zeros(10)
    assert sizes(TensorDict(a=x[:3], b=x[5:7])) == (5 * FLOAT, 40)


def test_one_row_of_a_stack_holds_the_stack():
    rows = TensorDict({"w": torch.zeros(8, 5)}, 8)
    assert sizes(rows[0]) == (5 * FLOAT, 40 * FLOAT)
    assert sizes(rows[0].clone()) == (5 * FLOAT, 5 * FLOAT)


def test_storages_over_one_array_are_held_once_where_they_overlap():
    array = np.zeros(10, np.float32)
    a, b = torch.from_numpy(array[:6]), torch.from_numpy(array[4:])
    assert a.untyped_storage() is not b.untyped_storage()
    assert sizes(TensorDict(a=a, b=b)) == (12 * FLOAT, 10 * FLOAT)
    assert sizes(TensorDict(a=b, b=a)) == (12 * FLOAT, 10 * FLOAT)
    one_within = TensorDict(a=torch.from_numpy(array[:8]), b=torch.from_numpy(array[2:4]), c=torch.from_numpy(array[5:]))
    assert sizes(one_within) == (15 * FLOAT, 10 * FLOAT)


def test_neighbours_in_memory_are_not_one():
    array = np.zeros(10, np.float32)
    td = TensorDict(b=torch.from_numpy(array[4:]), a=torch.from_numpy(array[:4]))
    assert sizes(td) == (10 * FLOAT, 10 * FLOAT)
    assert [(row.storage, row.shares) for row in td.memory_table()] == [(6 * FLOAT, None), (4 * FLOAT, None)]


def test_the_columns_of_an_array_of_records_are_held_as_the_array():
    records = np.zeros(5, [("a", "f4"), ("b", "f8"), ("c", "f4")])  # 16 bytes a record
    td = TensorDict({name: torch.from_numpy(records[name]) for name in records.dtype.names})
    assert sizes(td) == (5 * 16, 5 * 16)


def test_a_copy_on_write_clone_is_held_with_its_source_and_not_copied_by_the_look():
    x = torch.zeros(6)
    td = TensorDict(a=x, b=torch._lazy_clone(x))
    assert sizes(td) == (48, 24)
    assert torch._C._is_cow_tensor(td["b"])
    td["b"].add_(1)  # now it has memory of its own
    assert sizes(td) == (48, 48)


def test_a_storage_that_was_freed_is_not_held():
    x = torch.zeros(6)
    x.untyped_storage().resize_(0)
    assert sizes(TensorDict(a=x)) == (24, 0)


def test_a_storage_with_room_to_spare_is_held_with_it():
    x = torch.zeros(100).resize_(10)
    assert sizes(TensorDict(a=x)) == (40, 400)


# --- gradients --------------------------------------------------------------------------------------------------------


def test_a_parameter_counts_with_its_gradient():
    assert sizes(TensorDict(a=with_grad())) == (48, 48)
    assert sizes(TensorDict(a=nn.Parameter(torch.zeros(6)))) == (24, 24)


def test_a_tied_parameter_and_its_gradient_are_held_once():
    assert sizes(TensorDict(a=with_grad(), b=torch.zeros(6)).tie("a", "b")) == (96, 48)
    param = with_grad()
    assert sizes(TensorDict(a=param, b=param)) == (96, 48)


def test_a_gradient_of_another_leafs_memory_is_held_once():
    x, param = torch.ones(6), nn.Parameter(torch.zeros(6))
    param.grad = x
    assert sizes(TensorDict(p=param, x=x)) == (72, 48)


def test_a_frozen_parameter_still_holds_its_gradient():
    assert sizes(TensorDict(a=with_grad().requires_grad_(False))) == (48, 48)


def test_only_one_level_of_gradients_counts():
    param = with_grad()
    param.grad.requires_grad_().grad = torch.zeros(6)
    assert sizes(TensorDict(a=param)) == (48, 48)


def test_detached_trees_have_no_gradients():
    assert sizes(TensorDict(a=with_grad()).detach()) == (24, 24)


def test_a_result_counts_its_gradient_where_it_retains_it_and_gives_no_warning():
    y = nn.Parameter(torch.zeros(6)) * 2
    assert sizes(TensorDict(y=y)) == (24, 24)
    y.retain_grad()
    y.backward(torch.ones(6))
    assert TensorDict(y=y).bytes() == 24 + 24


def test_a_sparse_gradient_counts_its_indices_and_rows():
    table = nn.Embedding(1000, 3, sparse=True)
    table(torch.tensor([1, 2, 2])).sum().backward()
    assert TensorDict(w=table.weight).bytes() == 3000 * FLOAT + (3 * LONG + 3 * 3 * FLOAT)


# --- sparse -----------------------------------------------------------------------------------------------------------

SPARSE = {
    "coo": (lambda: torch.eye(100).to_sparse(), 2 * 100 * LONG + 100 * FLOAT),
    "coo, three dims": (lambda: torch.ones(2, 2, 2).to_sparse(), 3 * 8 * LONG + 8 * FLOAT),
    "coo of rows": (lambda: torch.ones(4, 5).to_sparse(1), 4 * LONG + 20 * FLOAT),
    "coo with an index twice": (lambda: torch.sparse_coo_tensor([[1, 1, 1]], torch.ones(3), (50,), check_invariants=False), 3 * LONG + 3 * FLOAT),
    "coo without entries": (lambda: torch.zeros(100).to_sparse(), 0),
    "csr": (lambda: torch.eye(100).to_sparse_csr(), (101 + 100) * LONG + 100 * FLOAT),
    "csr with small indices": (
        lambda: torch.sparse_csr_tensor(
            torch.tensor([0, 1], dtype=torch.int32), torch.tensor([3], dtype=torch.int32), torch.ones(1), (1, 9), check_invariants=True
        ),
        3 * 4 + FLOAT,
    ),
    "csc": (lambda: torch.ones(2, 7).to_sparse_csc(), (8 + 14) * LONG + 14 * FLOAT),
    "bsr": (lambda: torch.ones(4, 6).to_sparse_bsr((2, 3)), (3 + 4) * LONG + 24 * FLOAT),
    "bsc": (lambda: torch.ones(4, 6).to_sparse_bsc((2, 2)), (4 + 6) * LONG + 24 * FLOAT),
}
BETA = pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta")


@BETA
@pytest.mark.parametrize(("make", "want"), SPARSE.values(), ids=SPARSE)
def test_a_sparse_tensor_counts_its_indices_and_values_and_not_its_zeros(make, want):
    x = make()
    assert TensorDict(a=x).bytes() == want
    assert sizes(TensorDict(a=x, b=x))[0] == 2 * want
    assert TensorDict(a=x, b=x.detach()).bytes(count_duplicates=False) == TensorDict(a=x).bytes(count_duplicates=False)


@BETA
def test_sparse_tensors_hold_shared_indices_once():
    rows, columns = torch.tensor([0, 1, 2]), torch.tensor([0, 1])
    a, b = (torch.sparse_csr_tensor(rows, columns, torch.ones(2), (2, 2), check_invariants=False) for _ in range(2))
    assert sizes(TensorDict(a=a, b=b)) == (2 * (5 * LONG + 2 * FLOAT), 5 * LONG + 2 * 2 * FLOAT)
    indices = torch.tensor([[0, 1, 2]])
    a, b = (torch.sparse_coo_tensor(indices, torch.ones(3), (9,), check_invariants=False) for _ in range(2))
    assert sizes(TensorDict(a=a, b=b)) == (2 * (3 * LONG + 3 * FLOAT), 3 * LONG + 6 * FLOAT)


def test_a_sparse_tensor_shares_with_the_tensor_of_its_values():
    values = torch.ones(3)
    td = TensorDict(v=values, s=torch.sparse_coo_tensor(torch.tensor([[0, 1, 2]]), values, (9,), check_invariants=False))
    assert sizes(td) == (12 + 24 + 12, 12 + 24)
    assert [row.shares for row in td.memory_table()] == [None, ("v",)]


# --- jagged -----------------------------------------------------------------------------------------------------------


def jagged(**kwargs):
    """Two rows of 2 and 4 vectors of 3: 18 values, 3 offsets."""
    return torch.nested.nested_tensor([torch.zeros(2, 3), torch.zeros(4, 3)], layout=torch.jagged, **kwargs)


def test_a_jagged_tensor_counts_its_values_and_offsets():
    assert sizes(TensorDict(a=jagged())) == (18 * FLOAT + 3 * LONG,) * 2
    assert sizes(TensorDict(a=jagged().transpose(1, 2))) == (18 * FLOAT + 3 * LONG,) * 2


def test_jagged_tensors_hold_shared_offsets_once():
    a = jagged()
    assert sizes(TensorDict(a=a, b=a + 1)) == (2 * (18 * FLOAT + 3 * LONG), 2 * 18 * FLOAT + 3 * LONG)
    assert sizes(TensorDict(a=a, b=a.detach())) == (2 * (18 * FLOAT + 3 * LONG), 18 * FLOAT + 3 * LONG)


def test_a_jagged_tensor_with_holes_counts_its_lengths_and_all_of_its_values():
    padded = torch.zeros(2, 5, 3)
    td = TensorDict(a=torch.nested.narrow(padded, 1, torch.tensor([0, 1]), torch.tensor([2, 3]), layout=torch.jagged))
    assert td.bytes() == 30 * FLOAT + 3 * LONG + 2 * LONG
    assert td.set("padded", padded).bytes(count_duplicates=False) - td.bytes(count_duplicates=False) == 0


def test_a_jagged_parameter_counts_its_gradient():
    a = jagged(requires_grad=True)
    (a * a).sum().backward()
    assert TensorDict(a=a).bytes() == 2 * (18 * FLOAT + 3 * LONG)


# --- subclasses -------------------------------------------------------------------------------------------------------


class Plain(torch.Tensor):
    """A subclass that is a tensor like any other."""


class Opaque(torch.Tensor):
    """A wrapper that does not say what is in it."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args, kwargs = _pytree.tree_map_only(cls, lambda t: t.inner, (args, kwargs or {}))
        return _pytree.tree_map_only(torch.Tensor, cls, func(*args, **kwargs))


class Scaled(Opaque):
    """Integers and one scale, which stand for floats; with something that is no tensor among its parts."""

    @staticmethod
    def __new__(cls, inner, scale):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=torch.float32, device=inner.device)

    def __init__(self, inner, scale):
        self.inner, self.scale, self.note = inner, scale, "text"

    def __tensor_flatten__(self):
        return ["inner", "scale", "note"], None


def test_a_plain_subclass_counts_like_a_tensor_and_shares_like_one():
    x = torch.zeros(6)
    assert sizes(TensorDict(a=x.as_subclass(Plain))) == (24, 24)
    assert sizes(TensorDict(a=x, b=x.as_subclass(Plain), c=nn.Parameter(x.as_subclass(Plain)))) == (72, 24)


def test_a_wrapper_that_does_not_say_what_is_in_it_counts_like_a_tensor():
    assert sizes(TensorDict(a=Opaque(torch.zeros(6)))) == (24, 24)
    x = Opaque(torch.zeros(6))
    assert sizes(TensorDict(a=x, b=x)) == (48, 24)


def test_a_wrapper_counts_its_inner_tensors_and_not_its_own_shape():
    x = Scaled(torch.zeros(6, dtype=torch.int8), torch.ones(1, dtype=torch.float64))
    assert sizes(TensorDict(a=x)) == sizes(TensorDict(a=x), local=False) == (6 + DOUBLE,) * 2


def test_wrappers_in_wrappers_count_what_is_innermost():
    inner = Scaled(torch.zeros(6, dtype=torch.int8), torch.ones(1))
    assert sizes(TensorDict(a=TwoTensor(inner, inner.inner.float()))) == (6 + FLOAT + 6 * FLOAT,) * 2
    assert sizes(TensorDict(a=TwoTensor(torch.eye(3).to_sparse().to_dense(), TwoTensor(torch.zeros(3, 3), torch.zeros(3, 3))))) == (27 * FLOAT,) * 2


def test_a_wrapper_holds_what_its_parts_share_once():
    x = torch.zeros(6)
    assert sizes(TensorDict(a=TwoTensor(x, x.detach()), b=x)) == (3 * 24, 24)


def test_a_wrapped_parameter_counts_its_gradient_as_wrapped():
    param = nn.Parameter(TwoTensor(torch.zeros(6), torch.zeros(6)))
    (param * param).sum().backward()
    assert type(param.grad) is TwoTensor
    assert TensorDict(a=param).bytes() == 4 * 24


def test_a_tensor_without_a_storage_counts_its_elements():
    x, y = torch.zeros(6).to_mkldnn(), torch.zeros(6).to_mkldnn()
    assert sizes(TensorDict(a=x, b=y)) == (48, 48)
    assert sizes(TensorDict(a=x, b=x)) == (48, 24)


@pytest.fixture
def mesh():
    """Rank 0 of 4, that exchange nothing."""
    from torch.distributed.tensor import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    yield init_device_mesh("cpu", (4,))
    torch.distributed.destroy_process_group()


def test_a_distributed_tensor_counts_its_shard_or_the_global_tensor(mesh):
    from torch.distributed.tensor import DTensor, Replicate, Shard

    sharded = DTensor.from_local(torch.zeros(2, 3), mesh, [Shard(0)])
    copied = DTensor.from_local(torch.zeros(2, 3), mesh, [Replicate()], run_check=False)
    td = TensorDict(s=sharded, c=copied, x=torch.zeros(5))
    assert sizes(td) == sizes(td, local=True) == ((6 + 6 + 5) * FLOAT,) * 2
    assert sizes(td, local=False) == ((24 + 6 + 5) * FLOAT,) * 2


def test_an_uneven_distributed_tensor_counts_the_rows_that_there_are(mesh):
    from torch.distributed.tensor import Shard, distribute_tensor

    td = TensorDict(a=distribute_tensor(torch.zeros(10, 3, device="meta"), mesh, [Shard(0)]))
    assert sizes(td) == (3 * 3 * FLOAT,) * 2  # 3, 3, 3 and 1
    assert sizes(td, local=False) == (10 * 3 * FLOAT,) * 2


def test_distributed_ties_and_aliases_are_held_once_and_gradients_count(mesh):
    from torch.distributed.tensor import DTensor, Shard

    param = nn.Parameter(DTensor.from_local(torch.zeros(2, 3), mesh, [Shard(0)]))
    td = TensorDict(a=param, b=param.detach())
    assert sizes(td) == (2 * 24, 24)
    assert sizes(td, local=False) == (2 * 96, 96)
    param.grad = DTensor.from_local(torch.zeros(2, 3), mesh, [Shard(0)])
    assert sizes(td) == (3 * 24, 2 * 24)
    assert sizes(td, local=False) == (3 * 96, 2 * 96)


def test_a_distributed_tensor_shares_with_its_own_shard(mesh):
    from torch.distributed.tensor import DTensor, Shard

    local = torch.zeros(2, 3)
    assert sizes(TensorDict(a=local, b=DTensor.from_local(local, mesh, [Shard(0)]))) == (48, 24)


# --- quantised, meta, fake --------------------------------------------------------------------------------------------

OLD = pytest.mark.filterwarnings("ignore:.*quantize_per_.*deprecated")


@OLD
def test_a_quantised_tensor_counts_its_integers():
    x = torch.quantize_per_tensor(torch.zeros(2, 3), 0.1, 0, torch.qint8)
    assert sizes(TensorDict(a=x)) == (6, 6)
    assert sizes(TensorDict(a=torch.quantize_per_tensor(torch.zeros(2, 3), 0.1, 0, torch.qint32))) == (24, 24)
    assert sizes(TensorDict(a=x, b=x.int_repr(), c=x[:1])) == (6 + 6 + 3, 6 + 6)


@OLD
def test_a_quantised_tensor_counts_scales_and_zero_points_by_channel():
    scales, zeros = torch.ones(2, dtype=torch.float64), torch.zeros(2, dtype=torch.int64)
    assert sizes(TensorDict(a=torch.quantize_per_channel(torch.zeros(2, 3), scales, zeros, 0, torch.qint8))) == (6 + 2 * 8 + 2 * 8,) * 2


@OLD
def test_four_bit_integers_count_two_a_byte():
    x = torch.quantize_per_channel(torch.zeros(3, 4), torch.ones(3), torch.zeros(3), 0, torch.quint4x2)
    assert TensorDict(a=x).bytes() == 6 + 3 * FLOAT + 3 * FLOAT


def test_meta_tensors_count_what_they_would_take():
    x = torch.zeros(6, device="meta")
    assert sizes(TensorDict(a=x, b=torch.zeros(6, device="meta"))) == (48, 48)
    assert sizes(TensorDict(a=x, b=x.detach(), c=x[:2], d=x[:1].expand(100))) == (24 + 24 + 8 + 400, 24)


def test_fake_tensors_count_what_they_would_take():
    with FakeTensorMode():
        x, y = torch.zeros(6), torch.zeros(6, device="cuda")
        td = TensorDict(a=x, b=y, c=x[:2])
        assert sizes(td) == (24 + 24 + 8, 48)
    assert sizes(td) == (24 + 24 + 8, 48)
    real = torch.zeros(1000)
    mode = FakeTensorMode()
    assert sizes(TensorDict(a=mode.from_tensor(real), b=mode.from_tensor(real[:10]))) == (4040, 4000)


def test_sizes_that_are_symbols_are_counted_and_printed_as_symbols():
    tables = []

    def fn(x):
        td = TensorDict(a=x, b=x[:2], c=x * 2)
        tables.append(td.memory_table())
        return x * td.bytes() + td.bytes(count_duplicates=False)

    graph = make_fx(fn, tracing_mode="symbolic")(torch.zeros(6))
    assert graph(torch.ones(7)).tolist() == [(2 * 7 + 2) * FLOAT + 2 * 7 * FLOAT] * 7
    assert [row.shares for row in tables[0]] == [None, ("a",), None]
    size = str(tables[0].rows[0].shape[0])
    assert str(tables[0]).splitlines()[1].split() == ["'a'", f"({size},)", "float32", "cpu", f"4*{size}", "0", f"4*{size}"]


# --- transforms and compile -------------------------------------------------------------------------------------------


def seen(transform, td, ask):
    """What is told inside a transform."""
    found = []
    transform(lambda td: (found.append(ask(td)), td.map(lambda leaf: leaf.sum()))[1]["a"])(td)
    return found


def test_inside_vmap_values_are_those_of_one_example_and_memory_is_that_of_all():
    td = TensorDict({"a": torch.zeros(3, 2), "b": torch.zeros(3, 5)}, 3)
    assert seen(torch.vmap, td, sizes) == [(7 * FLOAT, 21 * FLOAT)] == [sizes(td[0])]
    assert seen(lambda fn: torch.vmap(torch.vmap(fn)), td.select("a"), sizes) == [(FLOAT, 6 * FLOAT)]


def test_inside_vmap_aliases_are_held_once():
    x = torch.zeros(3, 2)
    assert seen(torch.vmap, TensorDict({"a": x, "b": x.detach()}, 3), sizes) == [(4 * FLOAT, 6 * FLOAT)]


def test_inside_vmap_and_grad_parameters_have_no_gradient():
    for transform in (torch.vmap, torch.func.grad):
        assert seen(transform, TensorDict(a=with_grad()), sizes) == [(FLOAT if transform is torch.vmap else 24, 24)]


def test_inside_grad_and_its_kin_leaves_count_as_outside():
    td = TensorDict(a=torch.zeros(6), b=torch.zeros(6)).tie("a", "b")
    for transform in (torch.func.grad, lambda fn: torch.func.grad(lambda td: torch.func.grad(fn)(td)["a"].sum())):
        assert seen(transform, td, sizes) == [(48, 24)]
    assert seen(lambda fn: lambda td: torch.func.jvp(fn, (td,), (td,)), td, sizes) == [(48, 24)]
    assert seen(torch.func.functionalize, TensorDict(a=torch.zeros(6)), lambda td: td.bytes()) == [24]


COMPILED = {
    "plain": (lambda: TensorDict(a=torch.zeros(6), b=torch.zeros(2)), 32),
    "tied": (lambda: TensorDict(a=torch.zeros(6), b=torch.zeros(6)).tie("a", "b"), 48),
    "parameters": (lambda: TensorDict(a=nn.Parameter(torch.zeros(6)), b=torch.zeros(2, dtype=torch.float64)), 40),
    "gradients": (lambda: TensorDict(a=with_grad(), b=torch.zeros(2)), 56),
    "expanded": (lambda: TensorDict(a=torch.zeros(1).expand(100)), 400),
    "wrapped": (lambda: TensorDict(a=TwoTensor(torch.zeros(6), torch.zeros(6))), 48),
    "jagged": (lambda: TensorDict(a=jagged()), 18 * FLOAT + 3 * LONG),
}


@pytest.mark.parametrize(("make", "want"), COMPILED.values(), ids=COMPILED)
def test_compiled_it_is_a_number_and_one_graph_traced_once(make, want):
    counter = CompileCounter()
    compiled = torch.compile(lambda td: (td["a"] * td.bytes(), td.bytes()), fullgraph=True, backend=counter)
    for _ in range(3):
        got = compiled(make())[1]
        assert type(got) is int
        assert got == want == make().bytes()
    assert counter.frame_count == 1


def test_compiled_results_of_parameters_have_no_gradient():
    compiled = torch.compile(lambda td: (td * 2.0)["a"] * (td * 2.0).bytes(), fullgraph=True, backend="eager")
    assert compiled(TensorDict(a=with_grad())).tolist() == [0.0] * 6
    assert compiled(TensorDict(a=nn.Parameter(torch.ones(6)))).tolist() == [2.0 * 24] * 6


def test_compiled_it_counts_what_is_made_inside_also_under_vmap_and_grad():
    counter = CompileCounter()

    def fn(td):
        return (td * 2.0)["a"] * (td * 2.0).set("new", td["a"] + 1).bytes()

    compiled = torch.compile(
        lambda td: (fn(td), torch.vmap(fn)(td), torch.func.grad(lambda td: fn(td).sum())(td)["a"]), fullgraph=True, backend=counter
    )
    plain, mapped, grad = compiled(TensorDict({"a": torch.ones(3, 2)}, 3))
    assert plain.unique().tolist() == [2 * 2 * 24]
    assert mapped.unique().tolist() == [2 * 2 * 8]
    assert grad.unique().tolist() == [2 * 2 * 24]
    assert counter.frame_count == 1


def test_compiled_with_dynamic_shapes_it_follows_the_size_in_one_graph():
    counter = CompileCounter()
    compiled = torch.compile(lambda td: td["a"].sum() + td.bytes(), fullgraph=True, dynamic=True, backend=counter)
    for n in (5, 6, 7, 9):
        assert compiled(TensorDict(a=torch.zeros(n))).item() == 4 * n
    assert counter.frame_count == 1


@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace the builtin")
def test_compiled_the_memory_held_breaks_the_graph_and_is_right():
    x = torch.ones(6)
    fn = lambda td: td["a"] * td.bytes(count_duplicates=False)
    assert torch.compile(fn, backend="eager")(TensorDict(a=x, b=x[:2])).tolist() == [24] * 6
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(lambda td: td["a"] * td.bytes(count_duplicates=False), backend="eager", fullgraph=True)(TensorDict(a=x))


# --- the table --------------------------------------------------------------------------------------------------------


def mixed():
    x = torch.zeros(1000)
    td = TensorDict({"x": x, "n": {"view": x[:2], "p": with_grad(3), "one": torch.zeros(1, dtype=torch.int8).expand(5)}, "tied": torch.zeros(1000)})
    return td.set("alone", torch.zeros(4, 2, device="meta")).tie("x", "tied")


def test_the_table_has_a_row_for_each_path_with_all_that_is_asked():
    rows = {row.path: dataclasses.asdict(row) for row in mixed().memory_table()}
    cpu, f32 = torch.device("cpu"), torch.float32
    want = {
        ("x",): ((1000,), f32, cpu, 4000, 0, 4000, None),
        ("n", "view"): ((2,), f32, cpu, 8, 0, 4000, ("x",)),
        ("n", "p"): ((3,), f32, cpu, 12, 12, 24, None),
        ("n", "one"): ((5,), torch.int8, cpu, 5, 0, 1, None),
        ("tied",): ((1000,), f32, cpu, 4000, 0, 4000, ("x",)),
        ("alone",): ((4, 2), f32, torch.device("meta"), 32, 0, 32, None),
    }
    assert {path: tuple(row.values())[1:] for path, row in rows.items()} == want


def test_the_totals_are_those_of_bytes_and_the_table_is_a_sequence_that_does_not_change():
    td = mixed()
    table = td.memory_table()
    assert (table.total, table.held) == (4000 + 8 + 24 + 5 + 4000 + 32, 4000 + 24 + 1 + 32) == (td.bytes(), td.bytes(count_duplicates=False))
    assert len(table) == 6
    assert tuple(table) == table.rows
    with pytest.raises(dataclasses.FrozenInstanceError):
        table.total = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        table.rows[0].bytes = 0


def test_the_table_prints_aligned_columns_and_the_totals():
    assert str(mixed().memory_table()).splitlines() == [
        "path         shape    dtype    device  bytes  grad  storage",
        "'x'          (1000,)  float32  cpu     4,000     0    4,000",
        "'n', 'view'  (2,)     float32  cpu         8     0    4,000  shares with 'x'",
        "'n', 'p'     (3,)     float32  cpu        12    12       24",
        "'n', 'one'   (5,)     int8     cpu         5     0        1",
        "'tied'       (1000,)  float32  cpu     4,000     0    4,000  shares with 'x'",
        "'alone'      (4, 2)   float32  meta       32     0       32",
        "total                                  8,057    12    4,057",
    ]


def test_the_table_of_no_leaves_prints_its_head_and_zeros():
    assert str(TensorDict({}).memory_table()).split() == ["path", "shape", "dtype", "device", "bytes", "grad", "storage", "total", "0", "0", "0"]


def test_a_long_table_prints_whole_and_its_repr_is_cut():
    table = TensorDict({f"k{i}": torch.zeros(1) for i in range(100)}).memory_table()
    assert len(str(table).splitlines()) == 1 + 100 + 1
    assert repr(table).splitlines()[-2:] == ["... 60 more", str(table).splitlines()[-1]]
    assert len(repr(table).splitlines()) == 1 + 40 + 1 + 1


def test_a_row_names_the_first_earlier_path_that_shares_any_of_its_memory():
    x, y = torch.zeros(6), torch.zeros(6)
    td = TensorDict(y=y, x=x, both=TwoTensor(x, y), again=TwoTensor(torch.zeros(6), x.detach()))
    assert [row.shares for row in td.memory_table()] == [None, None, ("y",), ("x",)]


def test_a_row_whose_parts_share_only_among_themselves_shares_with_none():
    x = torch.zeros(6)
    (row,) = TensorDict(a=TwoTensor(x, x.detach())).memory_table()
    assert (row.bytes, row.storage, row.shares) == (48, 24, None)


# --- beside tensordict ------------------------------------------------------------------------------------------------


def test_ordinary_trees_take_what_tensordict_says():
    tensordict = pytest.importorskip("tensordict")
    content = {"a": torch.zeros(3, 4), "b": {"c": torch.zeros(3, dtype=torch.int16), "p": nn.Parameter(torch.zeros(3, 2))}}
    content["b"]["p"].grad = torch.zeros(3, 2)
    content["again"] = content["a"]
    content["expanded"] = torch.zeros(1).expand(3)
    theirs = tensordict.TensorDict(content, 3)
    assert TensorDict(content, 3).bytes() == theirs.bytes() == 48 + 6 + 24 + 24 + 48 + 12
    without = {key: content[key] for key in ("a", "b", "again")}
    assert TensorDict(without, 3).bytes(count_duplicates=False) == tensordict.TensorDict(without, 3).bytes(count_duplicates=False) == 48 + 6 + 48
