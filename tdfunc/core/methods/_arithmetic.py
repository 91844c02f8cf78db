"""Operations on a tree and a number, a tensor or another tree; comparisons; the operators."""

from __future__ import annotations

import operator
from typing import Any, Self

import torch

from tdfunc import ops
from tdfunc.core._slots import Tree


class Arithmetic(Tree):
    """Elementwise operations with one operand more.

    The operand is a number; a tensor over the batch shape, whose last dim meets the last batch dim (torch's broadcasting
    rule; the event dims of each leaf are taken as added on the right); or a tree with the same key paths in any order.
    `default` stands for a leaf that only one of two trees has; with `default="intersection"` such leaves are left out.
    """

    __slots__ = ()

    def add(self, other: Any, *, alpha: float = 1, default: Any = None) -> Self:
        """Return the sum with the other, multiplied by alpha."""
        return ops.binary(self, other, torch.add, "add", default=default, **ops.unless(1, alpha=alpha))

    def sub(self, other: Any, *, alpha: float = 1, default: Any = None) -> Self:
        """Return the difference to the other, multiplied by alpha."""
        return ops.binary(self, other, torch.sub, "sub", default=default, **ops.unless(1, alpha=alpha))

    def rsub(self, other: Any, *, alpha: float = 1, default: Any = None) -> Self:
        """Return the other minus this one, multiplied by alpha."""
        return ops.binary(self, other, ops.rsub, "rsub", default=default) if alpha == 1 else (self * alpha).rsub(other, default=default)

    def div(self, other: Any, *, rounding_mode: str | None = None, default: Any = None) -> Self:
        """Return the quotient; `rounding_mode` "trunc" or "floor" gives whole numbers."""
        return ops.binary(self, other, torch.div, "div", default=default, **ops.unless(None, rounding_mode=rounding_mode))

    def mul(self, other: Any, *, default: Any = None) -> Self:
        """Return the product."""
        return ops.binary(self, other, torch.mul, "mul", default=default)

    def pow(self, other: Any, *, default: Any = None) -> Self:
        """Return this one to the power of the other."""
        return ops.binary(self, other, operator.pow, "pow", default=default)

    def mod(self, other: Any, *, default: Any = None) -> Self:
        """Return the remainder, with the sign of the other."""
        return ops.binary(self, other, torch.remainder, "mod", default=default)

    def fmod(self, other: Any, *, default: Any = None) -> Self:
        """Return the remainder, with the sign of this one."""
        return ops.binary(self, other, torch.fmod, "fmod", default=default)

    def floor_divide(self, other: Any, *, default: Any = None) -> Self:
        """Return the quotient rounded down."""
        return ops.binary(self, other, torch.floor_divide, "floor_divide", default=default)

    def atan2(self, other: Any, *, default: Any = None) -> Self:
        """Return the angle whose tangent is this one over the other."""
        return ops.binary(self, other, ops.atan2, "atan2", default=default)

    def maximum(self, other: Any, *, default: Any = None) -> Self:
        """Return the larger of the two."""
        return ops.binary(self, other, ops.maximum, "maximum", default=default)

    def minimum(self, other: Any, *, default: Any = None) -> Self:
        """Return the smaller of the two."""
        return ops.binary(self, other, ops.minimum, "minimum", default=default)

    def bitwise_and(self, other: Any, *, default: Any = None) -> Self:
        """Return the bits that both have."""
        return ops.binary(self, other, torch.bitwise_and, "bitwise_and", default=default)

    def bitwise_or(self, other: Any, *, default: Any = None) -> Self:
        """Return the bits that either has."""
        return ops.binary(self, other, torch.bitwise_or, "bitwise_or", default=default)

    def bitwise_xor(self, other: Any, *, default: Any = None) -> Self:
        """Return the bits that one of the two has."""
        return ops.binary(self, other, torch.bitwise_xor, "bitwise_xor", default=default)

    def logical_and(self, other: Any, *, default: Any = None) -> Self:
        """Return bools: both are not zero."""
        return ops.binary(self, other, ops.logical_and, "logical_and", default=default)

    def logical_or(self, other: Any, *, default: Any = None) -> Self:
        """Return bools: either is not zero."""
        return ops.binary(self, other, ops.logical_or, "logical_or", default=default)

    def logical_xor(self, other: Any, *, default: Any = None) -> Self:
        """Return bools: one of the two is not zero."""
        return ops.binary(self, other, ops.logical_xor, "logical_xor", default=default)

    def eq(self, other: Any, *, default: Any = None) -> Self:
        """Return bools: the two are equal."""
        return ops.binary(self, other, operator.eq, "eq", default=default)

    def ne(self, other: Any, *, default: Any = None) -> Self:
        """Return bools: the two differ."""
        return ops.binary(self, other, operator.ne, "ne", default=default)

    def lt(self, other: Any, *, default: Any = None) -> Self:
        """Return bools: this one is smaller."""
        return ops.binary(self, other, operator.lt, "lt", default=default)

    def le(self, other: Any, *, default: Any = None) -> Self:
        """Return bools: this one is smaller or equal."""
        return ops.binary(self, other, operator.le, "le", default=default)

    def gt(self, other: Any, *, default: Any = None) -> Self:
        """Return bools: this one is larger."""
        return ops.binary(self, other, operator.gt, "gt", default=default)

    def ge(self, other: Any, *, default: Any = None) -> Self:
        """Return bools: this one is larger or equal."""
        return ops.binary(self, other, operator.ge, "ge", default=default)

    def clamp_min(self, other: Any, *, default: Any = None) -> Self:
        """Return each element, or the bound where it is smaller."""
        return ops.binary(self, other, ops.maximum, "clamp_min", default=default)

    def clamp_max(self, other: Any, *, default: Any = None) -> Self:
        """Return each element, or the bound where it is larger."""
        return ops.binary(self, other, ops.minimum, "clamp_max", default=default)

    def clamp(self, min: Any = None, max: Any = None) -> Self:
        """Return each element within two bounds, either of which may be None."""
        return ops.clamp(self, min, max)

    def lerp(self, end: Any, weight: Any) -> Self:
        """Return the point between this tree and another: this one at weight 0, the end at weight 1."""
        return ops.ternary(self, end, weight, ops.lerp, "lerp")

    def addcmul(self, tensor1: Any, tensor2: Any, *, value: float = 1) -> Self:
        """Return this tree plus the product of two others, multiplied by value."""
        return ops.ternary(self, tensor1, tensor2, ops.addcmul, "addcmul", **ops.unless(1, value=value))

    def addcdiv(self, tensor1: Any, tensor2: Any, *, value: float = 1) -> Self:
        """Return this tree plus the quotient of two others, multiplied by value."""
        return ops.ternary(self, tensor1, tensor2, ops.addcdiv, "addcdiv", **ops.unless(1, value=value))

    def __add__(self, other: Any) -> Self:
        return ops.binary(self, other, operator.add, "+")

    def __sub__(self, other: Any) -> Self:
        return ops.binary(self, other, operator.sub, "-")

    def __mul__(self, other: Any) -> Self:
        return ops.binary(self, other, operator.mul, "*")

    def __truediv__(self, other: Any) -> Self:
        return ops.binary(self, other, operator.truediv, "/")

    def __floordiv__(self, other: Any) -> Self:
        return ops.binary(self, other, operator.floordiv, "//")

    def __mod__(self, other: Any) -> Self:
        return ops.binary(self, other, operator.mod, "%")

    def __pow__(self, other: Any) -> Self:
        return ops.binary(self, other, operator.pow, "**")

    def __rsub__(self, other: Any) -> Self:
        return ops.binary(self, other, ops.rsub, "-")

    def __rtruediv__(self, other: Any) -> Self:
        return ops.binary(self, other, ops.rdiv, "/")

    def __rfloordiv__(self, other: Any) -> Self:
        return ops.binary(self, other, ops.rfloordiv, "//")

    def __rmod__(self, other: Any) -> Self:
        return ops.binary(self, other, ops.rmod, "%")

    def __rpow__(self, other: Any) -> Self:
        return ops.binary(self, other, ops.rpow, "**")

    def __and__(self, other: Any) -> Self:
        return ops.binary(self, other, operator.and_, "&")

    def __xor__(self, other: Any) -> Self:
        return ops.binary(self, other, operator.xor, "^")

    def __lt__(self, other: Any) -> Self:
        return ops.binary(self, other, operator.lt, "<")

    def __le__(self, other: Any) -> Self:
        return ops.binary(self, other, operator.le, "<=")

    def __gt__(self, other: Any) -> Self:
        return ops.binary(self, other, operator.gt, ">")

    def __ge__(self, other: Any) -> Self:
        return ops.binary(self, other, operator.ge, ">=")

    def __eq__(self, other: object) -> Self:  # type: ignore[override]
        return ops.binary(self, other, operator.eq, "==")

    def __ne__(self, other: object) -> Self:  # type: ignore[override]
        return ops.binary(self, other, operator.ne, "!=")

    __radd__, __rmul__, __rand__, __rxor__ = __add__, __mul__, __and__, __xor__

    __hash__ = object.__hash__  # type: ignore[assignment]  # `==` is elementwise, as for tensors
