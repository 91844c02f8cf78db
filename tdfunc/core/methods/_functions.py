"""Elementwise functions of one tree."""

from __future__ import annotations

import operator
from typing import Self

import torch
from torch.nn import functional

from tdfunc import ops
from tdfunc.core._slots import Tree


class Functions(Tree):
    """Functions of each element: the shapes, the structure and the batch size stay, gradients flow."""

    __slots__ = ()

    def abs(self) -> Self:
        """Return the absolute values."""
        return ops.unary(self, torch.abs, "abs")

    def neg(self) -> Self:
        """Return the negatives."""
        return ops.unary(self, torch.neg, "neg")

    def round(self, *, decimals: int = 0) -> Self:
        """Return each element rounded, halves to even, to this many decimals."""
        return ops.unary(self, torch.round, "round", decimals=decimals) if decimals else ops.unary(self, torch.round, "round")

    def acos(self) -> Self:
        """Return the inverse cosine."""
        return ops.unary(self, torch.acos, "acos")

    def asin(self) -> Self:
        """Return the inverse sine."""
        return ops.unary(self, torch.asin, "asin")

    def atan(self) -> Self:
        """Return the inverse tangent."""
        return ops.unary(self, torch.atan, "atan")

    def ceil(self) -> Self:
        """Return each element rounded up."""
        return ops.unary(self, torch.ceil, "ceil")

    def cos(self) -> Self:
        """Return the cosine."""
        return ops.unary(self, torch.cos, "cos")

    def cosh(self) -> Self:
        """Return the hyperbolic cosine."""
        return ops.unary(self, torch.cosh, "cosh")

    def erf(self) -> Self:
        """Return the error function."""
        return ops.unary(self, torch.erf, "erf")

    def erfc(self) -> Self:
        """Return one minus the error function."""
        return ops.unary(self, torch.erfc, "erfc")

    def exp(self) -> Self:
        """Return e to the power of each element."""
        return ops.unary(self, torch.exp, "exp")

    def expm1(self) -> Self:
        """Return e to the power of each element, minus 1, exact near 0."""
        return ops.unary(self, torch.expm1, "expm1")

    def floor(self) -> Self:
        """Return each element rounded down."""
        return ops.unary(self, torch.floor, "floor")

    def frac(self) -> Self:
        """Return the fractional part."""
        return ops.unary(self, torch.frac, "frac")

    def lgamma(self) -> Self:
        """Return the logarithm of the absolute gamma function."""
        return ops.unary(self, torch.lgamma, "lgamma")

    def log(self) -> Self:
        """Return the natural logarithm."""
        return ops.unary(self, torch.log, "log")

    def log10(self) -> Self:
        """Return the logarithm to base 10."""
        return ops.unary(self, torch.log10, "log10")

    def log1p(self) -> Self:
        """Return the natural logarithm of 1 plus each element, exact near 0."""
        return ops.unary(self, torch.log1p, "log1p")

    def log2(self) -> Self:
        """Return the logarithm to base 2."""
        return ops.unary(self, torch.log2, "log2")

    def reciprocal(self) -> Self:
        """Return one over each element."""
        return ops.unary(self, torch.reciprocal, "reciprocal")

    def relu(self) -> Self:
        """Return each element, or 0 where it is negative."""
        return ops.unary(self, functional.relu, "relu")

    def rsqrt(self) -> Self:
        """Return one over the square root."""
        return ops.unary(self, torch.rsqrt, "rsqrt")

    def sigmoid(self) -> Self:
        """Return the logistic function."""
        return ops.unary(self, torch.sigmoid, "sigmoid")

    def sign(self) -> Self:
        """Return -1, 0 or 1."""
        return ops.unary(self, torch.sign, "sign")

    def sin(self) -> Self:
        """Return the sine."""
        return ops.unary(self, torch.sin, "sin")

    def sinh(self) -> Self:
        """Return the hyperbolic sine."""
        return ops.unary(self, torch.sinh, "sinh")

    def softplus(self) -> Self:
        """Return log(1 + e to the power of each element)."""
        return ops.unary(self, functional.softplus, "softplus")

    def sqrt(self) -> Self:
        """Return the square root."""
        return ops.unary(self, torch.sqrt, "sqrt")

    def square(self) -> Self:
        """Return the square."""
        return ops.unary(self, torch.square, "square")

    def tan(self) -> Self:
        """Return the tangent."""
        return ops.unary(self, torch.tan, "tan")

    def tanh(self) -> Self:
        """Return the hyperbolic tangent."""
        return ops.unary(self, torch.tanh, "tanh")

    def trunc(self) -> Self:
        """Return each element without its fractional part."""
        return ops.unary(self, torch.trunc, "trunc")

    def isfinite(self) -> Self:
        """Return bools that say where elements are neither infinite nor nan."""
        return ops.unary(self, torch.isfinite, "isfinite")

    def isinf(self) -> Self:
        """Return bools that say where elements are infinite."""
        return ops.unary(self, torch.isinf, "isinf")

    def isnan(self) -> Self:
        """Return bools that say where elements are nan."""
        return ops.unary(self, torch.isnan, "isnan")

    def isneginf(self) -> Self:
        """Return bools that say where elements are minus infinity."""
        return ops.unary(self, torch.isneginf, "isneginf")

    def isposinf(self) -> Self:
        """Return bools that say where elements are plus infinity."""
        return ops.unary(self, torch.isposinf, "isposinf")

    def isreal(self) -> Self:
        """Return bools that say where elements have no imaginary part."""
        return ops.unary(self, torch.isreal, "isreal")

    def logical_not(self) -> Self:
        """Return bools that say where elements are zero or False."""
        return ops.unary(self, torch.logical_not, "logical_not")

    def bitwise_not(self) -> Self:
        """Return the bits inverted, of bools their opposite; leaves of other dtypes than integers and bool are an error."""
        return ops.unary(self, torch.bitwise_not, "bitwise_not")

    def nan_to_num(self, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Self:
        """Return each element, with numbers in the place of nan and of infinities (the dtype's largest ones by default)."""
        return ops.unary(self, torch.nan_to_num, "nan_to_num", nan=nan, posinf=posinf, neginf=neginf)

    def __neg__(self) -> Self:
        return ops.unary(self, operator.neg, "-")

    def __pos__(self) -> Self:
        return self

    def __abs__(self) -> Self:
        return ops.unary(self, operator.abs, "abs")

    def __invert__(self) -> Self:
        return ops.unary(self, operator.invert, "~")
