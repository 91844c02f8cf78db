"""One row for each public operation on trees: how it is called, and what it must give, in terms of its leaves alone.

The trees have batch size (n, 2), leaves of event ranks 0, 1 and 2, a static value, a node without entries and a tie. An
oracle is a function of one leaf (or of the leaf under the same path in two trees); it never calls tdfunc.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

import tdfunc
from tdfunc import TensorDict

CELLS = ("eager", "compile", "vmap", "grad", "dynamic", "export")
PATHS = (("x",), ("y", "z"), ("y", "w"), ("one",))


def tree(n: int = 3, *more: int) -> TensorDict:
    """Return a tree whose values are within (0.1, 0.9), where every function is smooth."""
    make = lambda *event: torch.rand(*more, n, 2, *event) * 0.8 + 0.1
    td = TensorDict({"x": make(4), "y": {"z": make(), "w": make(3, 2), "e": {}}, "s": "static", "one": make(4)}, (*more, n, 2))
    return td.set("two", td["one"]).tie("one", "two")


@dataclasses.dataclass
class Row:
    """An operation.

    Attributes:
        name: As a user would write it.
        fn: The call, of a tree and another one.
        leaf: What the result's leaf is, of a leaf and its counterpart; for one tensor, `whole` of the dicts of leaves.
        whole: The oracle of a result that is no tree.
        pieces: The result is a tuple of trees, and `leaf` gives a tuple.
        keeps: Whether all leaves, ties and static values are still there.
        not_held: Cells that do not hold, each with its reason.
    """

    name: str
    fn: Callable[..., Any]
    leaf: Callable[..., Any] | None = None
    whole: Callable[..., Any] | None = None
    pieces: bool = False
    keeps: bool = True
    not_held: dict[str, str] = dataclasses.field(default_factory=dict)


ROWS: list[Row] = []
NO_GRAD = {"grad": "its result has no gradient: integers or bools"}
BOOL = dict.fromkeys(("compile", "vmap", "dynamic", "export"), "gives a Python bool that depends on data") | {"grad": "its result is no tensor"}
DATA = {
    "compile": "the size of its result depends on data",
    "vmap": "the size of its result depends on data",
    "dynamic": "the size of its result depends on data",
    "export": "the size of its result depends on data",
}
QUANTILE = {"vmap": "torch has no batching rule for quantile, and warns (the values are right)"}
SIZE = {"dynamic": "a tree without leaves holds its batch size in its structure: a trace for each size"}


def row(name: str, fn: Callable[..., Any], leaf: Any = None, **kwargs: Any) -> None:
    ROWS.append(Row(name, fn, leaf, **kwargs))


# --- functions of each element

for _name in (
    *(
        "abs",
        "acos",
        "asin",
        "atan",
        "cos",
        "cosh",
        "erf",
        "erfc",
        "exp",
        "expm1",
        "frac",
        "lgamma",
        "log",
        "log10",
        "log1p",
        "log2",
        "neg",
        "reciprocal",
    ),
    *("rsqrt", "sigmoid", "sin", "sinh", "sqrt", "square", "tan", "tanh", "nan_to_num", "ceil", "floor", "sign", "trunc", "round"),
):
    row(f"td.{_name}()", lambda a, b, n=_name: getattr(a, n)(), getattr(torch, _name))
row("td.relu()", lambda a, b: a.relu(), torch.relu)
row("td.softplus()", lambda a, b: a.softplus(), functional.softplus)
row("td.round(decimals=1)", lambda a, b: a.round(decimals=1), lambda t: torch.round(t, decimals=1))
for _name in ("isfinite", "isinf", "isnan", "isneginf", "isposinf", "isreal", "logical_not"):
    row(f"td.{_name}()", lambda a, b, n=_name: getattr(a, n)(), getattr(torch, _name), not_held=NO_GRAD)
row("td.bitwise_not()", lambda a, b: (a > 0.5).bitwise_not(), lambda t: ~(t > 0.5), not_held=NO_GRAD)
row("-td", lambda a, b: -a, lambda t: -t)
row("+td", lambda a, b: +a, lambda t: t)
row("abs(td)", lambda a, b: abs(-a), lambda t: abs(-t))
INVERT = "Dynamo does not trace `~` of an object; `td.bitwise_not()` is traced"
row("~td", lambda a, b: ~(a > 0.5), lambda t: ~(t > 0.5), not_held=NO_GRAD | {"compile": INVERT, "dynamic": INVERT})

# --- operations with one operand more

TWO = {
    **{name: getattr(torch, name) for name in ("add", "sub", "rsub", "mul", "div", "pow", "fmod", "atan2", "maximum", "minimum")},
    "mod": torch.remainder,
    "clamp_min": torch.maximum,
    "clamp_max": torch.minimum,
}
for _name, _fn in TWO.items():
    row(f"td.{_name}(td)", lambda a, b, n=_name: getattr(a, n)(b), lambda t, u, f=_fn: f(t, u))
    _ones = lambda t, f=_fn: f(t, torch.full_like(t, 0.3))
    row(f"td.{_name}(0.3)", lambda a, b, n=_name: getattr(a, n)(0.3), _ones)
for _name in ("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor"):
    row(f"td.{_name}(td)", lambda a, b, n=_name: getattr(a, n)(b), getattr(torch, _name), not_held=NO_GRAD)
row("td.floor_divide(td)", lambda a, b: a.floor_divide(b), torch.floor_divide, not_held=NO_GRAD)
for _name in ("and", "or", "xor"):
    row(
        f"td.bitwise_{_name}(td)",
        lambda a, b, n=f"bitwise_{_name}": getattr(a > 0.5, n)(b > 0.5),
        lambda t, u, f=getattr(torch, f"bitwise_{_name}"): f(t > 0.5, u > 0.5),
        not_held=NO_GRAD,
    )
over = lambda t: torch.tensor([0.5, 2.0]).reshape(2, *[1] * (t.dim() - 2))  # over the last batch dim
V = torch.tensor([0.5, 2.0])
row("td + td", lambda a, b: a + b, lambda t, u: t + u)
row("td + number", lambda a, b: a + 2 + 0.5, lambda t: t + 2 + 0.5)
row("td + tensor", lambda a, b: a + V, lambda t: t + over(t))
row("tensor - td", lambda a, b: V - a, lambda t: over(t) - t)
for _name, _op in {"-": operator.sub, "/": operator.truediv, "%": operator.mod, "**": operator.pow}.items():
    row(f"td {_name} tensor", lambda a, b, f=_op: f(a, V), lambda t, f=_op: f(t, over(t)))
    row(f"tensor {_name} td", lambda a, b, f=_op: f(V, a), lambda t, f=_op: f(over(t), t))
    row(f"td {_name} 0-dim tensor", lambda a, b, f=_op: f(a, a["x"].sum()), whole=lambda a, b, f=_op: {p: f(t, a["x",].sum()) for p, t in a.items()})
row("td // tensor, tensor // td", lambda a, b: (a // V) + (V // a), lambda t: (t // over(t)) + (over(t) // t), not_held=NO_GRAD)
row("td - td", lambda a, b: a - b, lambda t, u: t - u)
row("td * td / td", lambda a, b: a * b / (a + 1), lambda t, u: t * u / (t + 1))
row("td ** number, number ** td", lambda a, b: 2**a + a**3, lambda t: 2**t + t**3)
row("1 / td, 1 - td", lambda a, b: 1 / a + (1 - a), lambda t: 1 / t + (1 - t))
row("td % number", lambda a, b: a % 0.3, lambda t: t % 0.3)
row("td // number", lambda a, b: a // 0.3, lambda t: t // 0.3, not_held=NO_GRAD)
row("td & td, td ^ td", lambda a, b: ((a > 0.5) & True) ^ (b > 0.5), lambda t, u: (t > 0.5) ^ (u > 0.5), not_held=NO_GRAD)
row("td == td, td < number", lambda a, b: (a == b) == (a < 0.5), lambda t, u: (t == u) == (t < 0.5), not_held=NO_GRAD)
row("td.add(td, alpha=2)", lambda a, b: a.add(b, alpha=2), lambda t, u: t + 2 * u)
row("td.sub(td, alpha=2)", lambda a, b: a.sub(b, alpha=2), lambda t, u: t - 2 * u)
row("td.rsub(td, alpha=2)", lambda a, b: a.rsub(b, alpha=2), lambda t, u: u - 2 * t)
row("td.div(td, rounding_mode='floor')", lambda a, b: a.div(b, rounding_mode="floor"), lambda t, u: torch.floor(t / u), not_held=NO_GRAD)
row(
    "td.add(td, default=0.5)",
    lambda a, b: a.add(b.exclude("x"), default=0.5),
    whole=lambda a, b: {p: a[p] + (0.5 if p == ("x",) else b[p]) for p in a},
)
row(
    "td.mul(td, default='intersection')",
    lambda a, b: a.mul(b.exclude("x"), default="intersection"),
    whole=lambda a, b: {p: a[p] * b[p] for p in a if p != ("x",)},
    keeps=False,
)
row("td.clamp(min, max)", lambda a, b: a.clamp(0.3, 0.6), lambda t: t.clamp(0.3, 0.6))
row("td.clamp(td, number)", lambda a, b: a.clamp(b * 0.5, 0.6), lambda t, u: torch.minimum(torch.maximum(t, u * 0.5), torch.tensor(0.6)))
row("td.lerp(td, number)", lambda a, b: a.lerp(b, 0.3), lambda t, u: torch.lerp(t, u, 0.3))
row("td.lerp(td, td)", lambda a, b: a.lerp(b, a), lambda t, u: torch.lerp(t, u, t))
row("td.addcmul(td, td)", lambda a, b: a.addcmul(b, a, value=0.5), lambda t, u: t + 0.5 * u * t)
row("td.addcdiv(td, td)", lambda a, b: a.addcdiv(b, a, value=0.5), lambda t, u: t + 0.5 * u / t)
row("td.where(condition, td)", lambda a, b: a.where(torch.tensor([True, False]), b), lambda t, u: torch.where(over(t) < 1, t, u))
row("tdfunc.where(td, td, number)", lambda a, b: tdfunc.where(b > 0.5, a, 0.0), lambda t, u: torch.where(u > 0.5, t, 0.0))

# --- reductions

RED = {
    "sum": torch.sum,
    "mean": torch.mean,
    "nansum": torch.nansum,
    "nanmean": torch.nanmean,
    "std": torch.std,
    "var": torch.var,
    "amax": torch.amax,
    "amin": torch.amin,
}
RED |= {"logsumexp": torch.logsumexp, "norm": torch.linalg.vector_norm}
for _name, _fn in RED.items():
    kw = {"dim": 0} if _name == "logsumexp" else {}
    row(f"td.{_name}()", lambda a, b, n=_name: getattr(a, n)(), lambda t, f=_fn: f(t.reshape(-1), dim=0))
    row(f"td.{_name}(dim=0)", lambda a, b, n=_name: getattr(a, n)(dim=0), lambda t, f=_fn: f(t, dim=0))
    row(
        f"td.{_name}(dim=(0, 1), keepdim=True)",
        lambda a, b, n=_name: getattr(a, n)(dim=(0, 1), keepdim=True),
        lambda t, f=_fn: f(t, dim=(0, 1), keepdim=True),
    )
    row(
        f"td.{_name}('feature')",
        lambda a, b, n=_name: getattr(a.exclude(("y", "z")), n)("feature"),
        lambda t, f=_fn: f(t.flatten(2), dim=2) if t.dim() > 2 else None,
        keeps=False,
    )
    row(
        f"td.{_name}(reduce=True)",
        lambda a, b, n=_name: getattr(a, n)(reduce=True),
        whole=lambda a, b, f=_fn: f(torch.cat([t.reshape(-1) for t in a.values()]), dim=0),
    )
row("td.prod()", lambda a, b: a.prod(), lambda t: t.prod())
row("td.prod(dim=(0, 1))", lambda a, b: a.prod((0, 1)), lambda t: t.prod(0).prod(0))
row("td.prod(1, keepdim=True)", lambda a, b: a.prod(1, keepdim=True), lambda t: t.prod(1, keepdim=True))
for _name in ("max", "min"):
    row(f"td.{_name}()", lambda a, b, n=_name: getattr(a, n)(), lambda t, n=_name: getattr(t, n)())
    row(f"td.{_name}(0)", lambda a, b, n=_name: getattr(a, n)(0).values, lambda t, n=_name: getattr(t, n)(0)[0])
    row(f"td.{_name}(0).indices", lambda a, b, n=_name: getattr(a, n)(0)[1], lambda t, n=_name: getattr(t, n)(0)[1], not_held=NO_GRAD)
    row(
        f"td.{_name}('feature', keepdim=True)",
        lambda a, b, n=_name: getattr(a, n)("feature", True)[0],
        lambda t, n=_name: getattr(t, f"a{n}")(tuple(range(2, t.dim())), keepdim=True) if t.dim() > 2 else t,
    )
    row(f"td.arg{_name}(0)", lambda a, b, n=_name: getattr(a, f"arg{n}")(0), lambda t, n=_name: getattr(t, f"arg{n}")(0), not_held=NO_GRAD)
    row(f"td.arg{_name}()", lambda a, b, n=_name: getattr(a, f"arg{n}")(), lambda t, n=_name: getattr(t, f"arg{n}")(), not_held=NO_GRAD)
    row(f"td.cum{_name}(0)", lambda a, b, n=_name: getattr(a, f"cum{n}")(0).values, lambda t, n=_name: getattr(t, f"cum{n}")(0)[0])
for _name in ("all", "any"):
    _of = getattr(torch, _name)
    row(
        f"td.{_name}()",
        lambda a, b, n=_name: getattr(a > 0.2, n)(),
        whole=lambda a, b, f=_of: f(torch.stack([f(t > 0.2) for t in a.values()])),
        not_held=NO_GRAD,
    )
    row(f"td.{_name}(1)", lambda a, b, n=_name: getattr(a > 0.2, n)(1), lambda t, f=_of: f(t > 0.2, dim=1), not_held=NO_GRAD)
row("td.count_nonzero(0)", lambda a, b: (a > 0.5).count_nonzero(0), lambda t: (t > 0.5).sum(0), not_held=NO_GRAD)
row("td.median()", lambda a, b: a.median(), lambda t: t.median())
row("td.median(0)", lambda a, b: a.median(0)[0], lambda t: t.median(0)[0])
row("td.quantile(0.3)", lambda a, b: a.quantile(0.3), lambda t: torch.quantile(t, 0.3), not_held=QUANTILE)
row(
    "td.quantile([0.3, 0.6], 0)",
    lambda a, b: a.quantile([0.3, 0.6], 0),
    lambda t: torch.quantile(t, torch.tensor([0.3, 0.6], dtype=t.dtype), dim=0),
    not_held=QUANTILE,
)
row(
    "td.global_norm(p)",
    lambda a, b: a.global_norm(0) + a.global_norm(1) + a.global_norm(float("inf")),
    whole=lambda a, b: sum(torch.linalg.vector_norm(torch.cat([t.reshape(-1) for t in a.values()]), p) for p in (0, 1, float("inf"))),
)
row("td.global_norm()", lambda a, b: a.global_norm(), whole=lambda a, b: torch.cat([t.reshape(-1) for t in a.values()]).norm())
row("td.dot(td)", lambda a, b: a.dot(b), whole=lambda a, b: sum((a[p] * b[p]).sum() for p in a))
row("td.cumsum(0)", lambda a, b: a.cumsum(0), lambda t: t.cumsum(0))
row("td.cumprod(1)", lambda a, b: a.cumprod(1), lambda t: t.cumprod(1))
row("td.softmax(0)", lambda a, b: a.softmax(0), lambda t: t.softmax(0))
row("td.log_softmax(1)", lambda a, b: a.log_softmax(1), lambda t: t.log_softmax(1))

# --- shapes

ev = lambda t: t.shape[2:]  # the event shape
row("td.reshape(-1)", lambda a, b: a.reshape(-1), lambda t: t.reshape(-1, *ev(t)) if t.numel() else t)
row("td.reshape(1, -1)", lambda a, b: a.reshape((1, -1)), lambda t: t.reshape(1, -1, *ev(t)))
row("td.view(-1, 1)", lambda a, b: a.view(-1, 1), lambda t: t.reshape(2 * t.shape[0], 1, *ev(t)))
row("td.view(dtype)", lambda a, b: a.view(torch.int32), lambda t: t.view(torch.int32), not_held=NO_GRAD)
row("td.flatten()", lambda a, b: a.flatten(), lambda t: t.flatten(0, 1))
row("td.unflatten(1, (1, -1))", lambda a, b: a.unflatten(1, (1, -1)), lambda t: t.unsqueeze(1))
row("td.permute(1, 0)", lambda a, b: a.permute(1, 0), lambda t: t.transpose(0, 1))
row("td.transpose(0, -1)", lambda a, b: a.transpose(0, -1), lambda t: t.transpose(0, 1))
row("td.swapaxes(0, 1), swapdims", lambda a, b: a.swapaxes(0, 1).swapdims(0, 1), lambda t: t)
row("td.movedim(0, 1), moveaxis", lambda a, b: a.movedim(0, 1).moveaxis(0, 1).movedim((0, 1), (1, 0)), lambda t: t.transpose(0, 1))
row("td.squeeze()", lambda a, b: a.unsqueeze(0).unsqueeze(-1).squeeze(), lambda t: t)
row("td.squeeze(0)", lambda a, b: a[:, :1].squeeze(1).unsqueeze(0).squeeze(-1), lambda t: t[:, 0].unsqueeze(0))
row("td.unsqueeze(-1)", lambda a, b: a.unsqueeze(-1), lambda t: t.unsqueeze(2))
row("td.expand(5, -1, 2)", lambda a, b: a.expand(5, -1, 2), lambda t: t.expand(5, *t.shape))
row("td.expand_as(td)", lambda a, b: a.expand_as(b.unsqueeze(0)), lambda t: t.unsqueeze(0))
row("td.broadcast_to(shape)", lambda a, b: a.broadcast_to((2, *a.batch_size)), lambda t: t.expand(2, *t.shape))
row("td.repeat(2, 1, 3)", lambda a, b: a.repeat(2, 1, 3), lambda t: t.repeat(2, 1, 3, *[1] * len(ev(t))))
row("td.tile(2)", lambda a, b: a.tile(2), lambda t: t.repeat(1, 2, *[1] * len(ev(t))))
row("td.repeat_interleave(2, 1)", lambda a, b: a.repeat_interleave(2, 1), lambda t: t.repeat_interleave(2, 1))
row("td.repeat_interleave(2)", lambda a, b: a.repeat_interleave(2), lambda t: t.flatten(0, 1).repeat_interleave(2, 0))
row("td.flip(0, 1)", lambda a, b: a.flip(0, 1), lambda t: t.flip(0, 1))
row("td.fliplr(), td.flipud()", lambda a, b: a.fliplr().flipud(), lambda t: t.flip(0, 1))
row("td.roll(1, 0)", lambda a, b: a.roll(1, 0), lambda t: t.roll(1, 0))
row("td.roll(1)", lambda a, b: a.roll(1), lambda t: t.flatten(0, 1).roll(1, 0).reshape(t.shape))
row("td.rot90()", lambda a, b: a.rot90(), lambda t: t.rot90(1, (0, 1)))
row("td.narrow(0, 1, 2)", lambda a, b: a.narrow(0, 1, 2), lambda t: t[1:3])
row(
    "td.pad((1, 2, 0, 1), 0.5)",
    lambda a, b: a.pad((1, 2, 0, 1), 0.5),
    lambda t: torch.cat([torch.cat([torch.full_like(t[:1], 0.5), t, torch.full_like(t[:2], 0.5)]), torch.full((t.shape[0] + 3, 1, *ev(t)), 0.5)], 1),
)
row("td.atleast_1d(), 2d, 3d", lambda a, b: a.atleast_1d().atleast_2d().atleast_3d(), lambda t: t.unsqueeze(2))
row("td.contiguous()", lambda a, b: a.transpose(0, 1).contiguous(), lambda t: t.transpose(0, 1))
row("td.unbind(1)", lambda a, b: a.unbind(1), lambda t: t.unbind(1), pieces=True)
row("td.split(1, 1)", lambda a, b: a.split(1, 1), lambda t: t.split(1, 1), pieces=True)
row("td.split([1, 1], 1)", lambda a, b: a.split([1, 1], 1), lambda t: t.split(1, 1), pieces=True)
row("td.chunk(2, 1)", lambda a, b: a.chunk(2, 1), lambda t: t.chunk(2, 1), pieces=True)
row("td.tensor_split(2, 1)", lambda a, b: a.tensor_split(2, 1), lambda t: t.tensor_split(2, 1), pieces=True)
row("tdfunc.stack([td, td], 1)", lambda a, b: tdfunc.stack([a, b], 1), lambda t, u: torch.stack([t, u], 1))
row("tdfunc.cat([td, td], 1)", lambda a, b: tdfunc.cat([a, b], 1), lambda t, u: torch.cat([t, u], 1))

# --- rows

I = torch.tensor([2, 0, 2])
MASK = torch.tensor([True, False])
row("td[0]", lambda a, b: a[0], lambda t: t[0])
row("td[1:, 0]", lambda a, b: a[1:, 0], lambda t: t[1:, 0])
row("td[None, ..., 1]", lambda a, b: a[None, ..., 1], lambda t: t[None, :, 1])
row("td[[0, 2]]", lambda a, b: a[[0, 2]], lambda t: t[[0, 2]])
row("td[tensor]", lambda a, b: a[I], lambda t: t[I])
row("td[tensor, tensor]", lambda a, b: a[I, torch.tensor([0, 1, 1])], lambda t: t[I, torch.tensor([0, 1, 1])])
row("td[range(2)]", lambda a, b: a[range(2)], lambda t: t[:2])
row(
    "td[mask]",
    lambda a, b: a[:, MASK],
    lambda t: t[:, MASK],
    not_held={"compile": DATA["compile"], "dynamic": DATA["dynamic"], "export": DATA["export"]},
)
row("td.at[0].get()", lambda a, b: a.at[0].get(), lambda t: t[0])
row("td.at[0].set(number)", lambda a, b: a.at[0].set(7.0), lambda t: torch.cat([torch.full_like(t[:1], 7.0), t[1:]]))
row("td.at[1:, 0].set(td)", lambda a, b: a.at[1:, 0].set(b[1:, 0]), lambda t, u: torch.cat([t[:1], torch.stack([u[1:, 0], t[1:, 1]], 1)]))
row("td.at[:, 1].set(tensor)", lambda a, b: a.at[:, 1].set(V[:1]), lambda t: torch.stack([t[:, 0], torch.full_like(t[:, 0], 0.5)], 1))
row(
    "td.at[mask].set(number)",
    lambda a, b: a.at[(b["y", "z"] > 0.5)].set(0.0),
    whole=lambda a, b: {p: torch.where((b["y", "z"] > 0.5).reshape(*t.shape[:2], *[1] * (t.dim() - 2)), 0.0, t) for p, t in a.items()},
)
row("td.at[tensor].add(td)", lambda a, b: a.at[I].add(b[I]), lambda t, u: torch.cat([t[:1] + u[:1], t[1:2], t[2:3] + 2 * u[2:3], t[3:]]))
row("td.at[tensor].mul(number)", lambda a, b: a.at[I].mul(2.0), lambda t: torch.cat([2 * t[:1], t[1:2], 4 * t[2:3], t[3:]]))
row(
    "td.at['x', 0].set(number)",
    lambda a, b: a.at["x", 0].set(7.0),
    whole=lambda a, b: {**a, ("x",): torch.cat([torch.full_like(a["x",][:1], 7.0), a["x",][1:]])},
)
row(
    "td.gather(0, tensor)",
    lambda a, b: a.gather(0, torch.tensor([[1, 0], [0, 2]])),
    lambda t: torch.stack([torch.stack([t[1, 0], t[0, 1]]), torch.stack([t[0, 0], t[2, 1]])]),
)
row("td.index_select(0, tensor)", lambda a, b: a.index_select(0, I), lambda t: t[I])
row("td.take(tensor)", lambda a, b: a.take(torch.tensor([[3, 0]])), lambda t: t.flatten(0, 1)[torch.tensor([[3, 0]])])
row(
    "td.masked_fill(mask, number)",
    lambda a, b: a.masked_fill(b["y", "z"] > 0.5, 0.0),
    whole=lambda a, b: {p: torch.where((b["y", "z"] > 0.5).reshape(*t.shape[:2], *[1] * (t.dim() - 2)), 0.0, t) for p, t in a.items()},
)
row(
    "td.masked_select(mask)",
    lambda a, b: a.masked_select(b["y", "z"] > 0.5),
    whole=lambda a, b: {p: t[b["y", "z"] > 0.5] for p, t in a.items()},
    not_held=DATA,
)

# --- entries

same = lambda t: t
row("td['x']", lambda a, b: a["x"], whole=lambda a, b: a["x",])
row("td['y', 'z'], td['y']['z']", lambda a, b: a["y", "z"] + a["y"]["z"], whole=lambda a, b: 2 * a["y", "z"])
row("td.get('nope', default)", lambda a, b: a.get("nope", a["x"]), whole=lambda a, b: a["x",])
row("td.set('n', tensor)", lambda a, b: a.set("n", b["x"]), whole=lambda a, b: {**a, ("n",): b["x",]})
row("td.set(('y', 'k'), tensor)", lambda a, b: a.set(("y", "k"), b["x"]), whole=lambda a, b: {**a, ("y", "k"): b["x",]})
row("td.set('one', tensor), tied", lambda a, b: a.set("two", b["x"]), whole=lambda a, b: {**a, ("one",): b["x",]})
row("td.update(dict)", lambda a, b: a.update({"x": b["x"], "y": {"k": b["x"]}}), whole=lambda a, b: {**a, ("x",): b["x",], ("y", "k"): b["x",]})
row("td | td", lambda a, b: a | b.select("x"), whole=lambda a, b: {**a, ("x",): b["x",]})
row("tdfunc.merge(td, td)", lambda a, b: tdfunc.merge(a, b.select("y")), whole=lambda a, b: {p: b[p] if p[0] == "y" else a[p] for p in a})
row("td.with_default('n', tensor)", lambda a, b: a.with_default("n", b["x"]).with_default("x", b["x"]), whole=lambda a, b: {**a, ("n",): b["x",]})
row("td.select('x', ('y', '*'))", lambda a, b: a.select("x", ("y", "*")), whole=lambda a, b: {p: a[p] for p in a if p != ("one",)}, keeps=False)
row(
    "td.select(predicate)",
    lambda a, b: a.select(lambda path, leaf: leaf.ndim == 3),
    whole=lambda a, b: {p: a[p] for p in (("x",), ("one",))},
    keeps=False,
)
row("td.exclude(('**', 'z'))", lambda a, b: a.exclude(("**", "z")), whole=lambda a, b: {p: a[p] for p in a if p[-1] != "z"}, keeps=False)
row("td.pop('x')", lambda a, b: a.pop("x")[1].set("x", a.pop("x")[0]), whole=lambda a, b: dict(a))
row("td.filter(('y', '**'))", lambda a, b: a.filter(("y", "**")), whole=lambda a, b: {p: a[p] for p in a if p[0] == "y"}, keeps=False)
row("td.partition(predicate)", lambda a, b: tdfunc.merge(*a.partition(lambda path, leaf: len(path) > 1)), same)
row("td.split_keys('x', ['one'])", lambda a, b: a.split_keys("x", ["one"])[2], whole=lambda a, b: {p: a[p] for p in a if p[0] == "y"}, keeps=False)
row(
    "td.rename_key('x', ('y', 'k'))",
    lambda a, b: a.rename_key("x", ("y", "k")),
    whole=lambda a, b: {("y", "k") if p == ("x",) else p: t for p, t in a.items()},
)
row(
    "td.rename_keys(swap)",
    lambda a, b: a.rename_keys({"x": ("y", "z"), ("y", "z"): "x"}),
    whole=lambda a, b: {**a, ("x",): a["y", "z"], ("y", "z"): a["x",]},
)
row("td.flatten_keys(), unflatten_keys()", lambda a, b: a.flatten_keys("/").unflatten_keys("/"), same)
row("td.flatten_keys()", lambda a, b: a.flatten_keys("/"), whole=lambda a, b: {("/".join(p),): t for p, t in a.items()}, keeps=False)
row("td.sort_keys()", lambda a, b: a.sort_keys(), same)
row("td.prune()", lambda a, b: a.prune(), same)
row("td.empty()", lambda a, b: a.empty().set("x", a["x"]), whole=lambda a, b: {("x",): a["x",]}, keeps=False, not_held=SIZE)
row(
    "td.empty(recurse=True)", lambda a, b: a.empty(True).set(("y", "n"), a["x"]), whole=lambda a, b: {("y", "n"): a["x",]}, keeps=False, not_held=SIZE
)
row("td.tie(), td.untie()", lambda a, b: a.untie("one").tie("one", "two"), same)
row("td.map(fn, td)", lambda a, b: a.map(lambda t, u: t * u, b), lambda t, u: t * u)
row("td.map_with_path(fn)", lambda a, b: a.map_with_path(lambda path, t: t * len(path)), whole=lambda a, b: {p: t * len(p) for p, t in a.items()})
row("td.with_batch_size(n)", lambda a, b: a.with_batch_size(a.batch_size[:1]), same)
row("td.auto_batch_size()", lambda a, b: a.with_batch_size(()).auto_batch_size(), same)
row(
    "TensorDict(dict, batch_size)",
    lambda a, b: TensorDict({"x": a["x"], "y": {"z": b["y", "z"]}, "s": "t"}, a.batch_size),
    whole=lambda a, b: {("x",): a["x",], ("y", "z"): b["y", "z"]},
    keeps=False,
)
row(
    "tdfunc.from_flat(dict)",
    lambda a, b: tdfunc.from_flat({"x": a["x"], "y.z": b["y", "z"]}, batch_size=a.batch_size),
    whole=lambda a, b: {("x",): a["x",], ("y", "z"): b["y", "z"]},
    keeps=False,
)
row("td.to_dict()", lambda a, b: a.to_dict()["y"]["z"], whole=lambda a, b: a["y", "z"])
row("td.to_flat()", lambda a, b: a.to_flat()["y.z"], whole=lambda a, b: a["y", "z"])
row(
    "td.keys(), values(), items(), in, len",
    lambda a, b: [v for v in a.values(True, True)] + [a["x"] * (len(a) + ("y" in a) + (("y", "q") in a))],
    whole=lambda a, b: [a["x",], a["y", "z"], a["y", "w"], a["one",], a["one",], a["x",] * 6],
)
row(
    "td.equal(td)",
    lambda a, b: a.equal(a) and not a.equal(b),
    whole=lambda a, b: True,
    not_held=BOOL,
)
row(
    "td.allclose(td)",
    lambda a, b: a.allclose(a + 1e-9) and not a.allclose(a + 1),
    whole=lambda a, b: True,
    not_held=BOOL,
)
row(
    "td.param_count(), is_cpu, is_meta, sorted_keys, ndimension()",
    lambda a, b: a["x"] * a.param_count() * a.is_cpu * (not a.is_meta) * len(a.sorted_keys) * a.ndimension(),
    whole=lambda a, b: a["x",] * (sum(t.numel() for t in a.values()) + a["one",].numel()) * 5 * 2,
)
row(
    "td.numel(), td.bytes(), ndim, size",
    lambda a, b: a["x"] * a.numel() * a.bytes() * a.ndim * a.size(1) * a.dim() * a.depth,
    whole=lambda a, b: a["x",] * (n := sum(t.numel() for t in a.values())) * (a["x",].element_size() * (n + a["one",].numel())) * 2 * 2 * 2,
)


# --- leaves joined

flat = lambda a: torch.cat([t.flatten(2) if t.dim() > 2 else t.unsqueeze(2) for t in a.values()], 2)
row("td.pack()", lambda a, b: a.pack()[0], whole=lambda a, b: flat(a))
row("td.pack(0)", lambda a, b: a.pack(0)[0], whole=lambda a, b: flat(a).movedim(2, 0))
row(
    "td.pack(dtype=dtype)",
    lambda a, b: a.set("x", a["x"].double()).pack(dtype=torch.float64)[0],
    whole=lambda a, b: flat({p: t.double() for p, t in a.items()}),
)
row("layout.unpack(tensor)", lambda a, b: (p := a.pack())[1].unpack(p[0] * 2), lambda t: 2 * t)
row(
    "layout.unpack(tensor), cast back",
    lambda a, b: (p := a.set("x", a["x"].double()).pack(1, dtype=torch.float64))[1].unpack(p[0] * 2),
    whole=lambda a, b: {p: 2 * (t.double() if p == ("x",) else t) for p, t in a.items()},
)
row("td.stack_leaves(1)", lambda a, b: a.select("x", "one").stack_leaves(1), whole=lambda a, b: torch.stack([a["x",], a["one",]], 1))
row("td.cat_leaves(-1)", lambda a, b: a.select("x", "one").cat_leaves(-1), whole=lambda a, b: torch.cat([a["x",], a["one",]], -1))
row(
    "td.stack_tensors('x', 'one', out_key='n', dim=-1)",
    lambda a, b: a.stack_tensors("x", "one", out_key="n", dim=-1, keep_entries=True),
    whole=lambda a, b: {**a, ("n",): torch.stack([a["x",], a["one",]], -1)},
)
row(
    "td.cat_tensors('x', 'one', out_key=('y', 'n'), dim=-1)",
    lambda a, b: a.cat_tensors("x", "one", out_key=("y", "n"), dim=-1),
    whole=lambda a, b: {
        **{p: t for p, t in a.items() if p[0] == "y"},
        ("y", "n"): torch.cat([a["x",], a["one",]], -1),
        ("two",): a["one",],
    },
    keeps=False,
)
row("td.get_at('x', index)", lambda a, b: a.get_at("x", (slice(None), 0)), whole=lambda a, b: a["x",][:, 0])
row("td.to_padded_tensor()", lambda a, b: a.to_padded_tensor(), same)

# --- casts and new leaves

for _name, _dtype in (
    *(("float", torch.float32), ("double", torch.float64), ("half", torch.float16), ("bfloat16", torch.bfloat16)),
    *((str(dtype).split(".")[1], dtype) for dtype in (torch.float16, torch.float32, torch.float64)),
):
    row(f"td.{_name}()", lambda a, b, n=_name: getattr(a, n)(), lambda t, d=_dtype: t.to(d))
for _name, _dtype in (
    *(("int", torch.int32), ("long", torch.int64), ("bool", torch.bool)),
    *((str(dtype).split(".")[1], dtype) for dtype in (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)),
):
    row(f"td.{_name}()", lambda a, b, n=_name: getattr(a, n)(), lambda t, d=_dtype: t.to(d), not_held=NO_GRAD)
for _dtype in (torch.complex64, torch.complex128):
    row(
        f"td.{str(_dtype).split('.')[1]}()",
        lambda a, b, d=_dtype: getattr(a, str(d).split(".")[1])().map(torch.view_as_real),
        lambda t, d=_dtype: torch.view_as_real(t.to(d)),
    )
row("td.to(dtype)", lambda a, b: a.to("cpu", torch.float64), lambda t: t.to(torch.float64))
row("td.cpu()", lambda a, b: a.cpu(), same)
row(
    "td.type(dtype, where=key)",
    lambda a, b: a.type(torch.float64, where="x"),
    whole=lambda a, b: {p: t.double() if p == ("x",) else t for p, t in a.items()},
)
row("td.detach()", lambda a, b: a.detach(), same, not_held={"grad": "it cuts the graph; tested by itself"})
row("td.clone()", lambda a, b: a.clone(), same)
row("td.requires_grad(False)", lambda a, b: a.requires_grad(False), same, not_held={"grad": "it makes new leaves of autograd; tested by itself"})
for _name, _dtype in (("zeros_like", 0.0), ("ones_like", 1.0)):
    row(f"td.{_name}()", lambda a, b, n=_name: getattr(a, n)() + a, lambda t, v=_dtype: t + v)
row("td.full_like(2.0)", lambda a, b: a.full_like(2.0) * a, lambda t: 2 * t)
row("td.empty_like()", lambda a, b: a.empty_like().zeros_like() + a, same)
row("td.rand_like()", lambda a, b: a.rand_like() * 0 + a, same, not_held={"vmap": "vmap wants to be told the randomness; tested by itself"})
row("td.randn_like()", lambda a, b: a.randn_like() * 0 + a, same, not_held={"vmap": "vmap wants to be told the randomness; tested by itself"})
row("td.new_zeros(5)", lambda a, b: a.new_zeros(5), lambda t: torch.zeros(5, *ev(t)), not_held={"grad": "constant"})
row("td.new_ones((2, 2))", lambda a, b: a.new_ones((2, 2)), lambda t: torch.ones(2, 2, *ev(t)), not_held={"grad": "constant"})
row("td.new_full(5, 0.5)", lambda a, b: a.new_full(5, 0.5), lambda t: torch.full((5, *ev(t)), 0.5), not_held={"grad": "constant"})
row(
    "td.new_empty(5)",
    lambda a, b: a.new_empty(5) * 0 == 0,
    lambda t: torch.empty(5, *ev(t)) * 0 == 0,
    not_held={cell: "uninitialised" for cell in CELLS if cell != "export"} | {"export": "uninitialised"},
)

# --- torch's own functions

row(
    "torch.stack, torch.cat",
    lambda a, b: torch.stack([torch.cat([a, b]), torch.cat([b, a])]),
    lambda t, u: torch.stack([torch.cat([t, u]), torch.cat([u, t])]),
)
row("torch.where(condition, td, td)", lambda a, b: torch.where(torch.tensor([True, False]), a, b), lambda t, u: torch.where(over(t) < 1, t, u))
row("torch.sum(td, 0), torch.mean", lambda a, b: torch.sum(a, 0) + torch.mean(b, dim=0), lambda t, u: t.sum(0) + u.mean(0))
row("torch.exp, torch.clamp", lambda a, b: torch.exp(torch.clamp(a, 0.3, 0.6)), lambda t: t.clamp(0.3, 0.6).exp())
row("torch.add(td, td, alpha=2)", lambda a, b: torch.add(a, b, alpha=2), lambda t, u: t + 2 * u)
row("torch.maximum(tensor, td)", lambda a, b: torch.maximum(V, a), lambda t: torch.maximum(over(t), t))
row("tensor * td", lambda a, b: V * a + torch.ones(2) / a, lambda t: over(t) * t + 1 / t)
row(
    "torch.unbind, torch.split, torch.chunk",
    lambda a, b: (*torch.unbind(a, 1), *torch.split(a, 1, 1), *torch.chunk(a, 2, 1)),
    lambda t: (*t.unbind(1), *t.split(1, 1), *t.chunk(2, 1)),
    pieces=True,
)
row("torch.zeros_like, torch.full_like", lambda a, b: torch.zeros_like(a) + torch.full_like(a, 2.0) + a, lambda t: t + 2)
row("torch.reshape, torch.permute", lambda a, b: torch.permute(torch.reshape(a, (1, -1)), (1, 0)), lambda t: t.flatten(0, 1).unsqueeze(1))
row("torch.nn.functional.mse_loss(td, td)", lambda a, b: functional.mse_loss(a, b), functional.mse_loss)
