"""Gradients of one sample at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tdfunc.structure import named_after

from ._grad import grad
from ._vmap import vmap


def per_sample_grad(
    fn: Callable[..., Any],
    argnums: int | tuple[int, ...] = 0,
    has_aux: bool = False,
    *,
    wrt: Any = None,
    in_dims: Any = None,
    randomness: str = "error",
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """Give the gradients of each sample of a batch: `vmap(grad(fn))` with the parameters shared.

    Args:
        fn: A function of parameters and one sample that returns a scalar, or `(scalar, aux)` with `has_aux`.
        argnums: Which positional argument the gradients are of, or several; these are shared by all samples.
        has_aux: The function returns something else beside the scalar: any pytree.
        wrt: Which leaves of a TensorDict the gradients are of, as for `grad`.
        in_dims: The sample dim of each positional argument, as for `vmap`. None: 0 for all but those of `argnums`.
        randomness: "error", "different" (masks for each sample) or "same": what random operations inside do.
        chunk_size: Take this many samples at a time, to bound memory.

    Returns:
        A function with the arguments of `fn`, samples stacked, that returns gradients with a batch dim of samples in front,
        or `(grads, aux)`.

    Raises:
        StructureError: As `grad` and `vmap` do.

    Shapes:
        Parameters `(*shape)` and samples `(n, *sample)` to gradients `(n, *shape)`, batch size `(n,)`.

    Note:
        The function sees one sample without a batch dim; modules that want one take `x[None]`.

    Example:
        >>> import torch, tdfunc
        >>> p = tdfunc.TensorDict(w=torch.ones(2))
        >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> tdfunc.per_sample_grad(lambda p, x: p["w"] @ x)(p, x)["w"]
        tensor([[1., 2.],
                [3., 4.]])
    """
    single = grad(fn, argnums, has_aux, wrt=wrt)

    def call(*args: Any, **kwargs: Any) -> Any:
        shared = {n % len(args) for n in ((argnums,) if isinstance(argnums, int) else argnums)} if args else set[int]()
        dims = tuple([None if n in shared else 0 for n in range(len(args))]) if in_dims is None else in_dims
        return vmap(single, dims, randomness=randomness, chunk_size=chunk_size)(*args, **kwargs)

    return named_after(fn, call)
