"""The images: scikit-learn's scanned digits, and minibatches of them."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

TRAIN_IMAGES = 1347
"""Of 1,797: the options are checked by it before the images are read."""


class Digits(NamedTuple):
    """A fixed split of the digits: images `(n, 1, 8, 8)` in [0, 1], labels `(n,)`."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor


def load_digits() -> Digits:
    """Return the 1,797 digits, a quarter of each class kept for the test. The split is the same each time."""
    from sklearn import datasets, model_selection  # pyright: ignore[reportMissingImports, reportUnknownVariableType]

    images, labels = datasets.load_digits(return_X_y=True)  # pyright: ignore[reportUnknownVariableType]
    split = model_selection.train_test_split(images, labels, test_size=0.25, stratify=labels, random_state=0)  # pyright: ignore[reportUnknownVariableType]
    train_x, test_x, train_y, test_y = map(torch.as_tensor, split)  # pyright: ignore[reportUnknownArgumentType]
    return Digits(_as_images(train_x), train_y, _as_images(test_x), test_y)


def _as_images(pixels: Tensor) -> Tensor:
    return pixels.float().div(16).view(-1, 1, 8, 8)  # the scanner's grey levels are 0 to 16


def minibatches(x: Tensor, y: Tensor, *, members: int, batch_size: int, epochs: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Go through the data epoch by epoch, each member in an order of its own.

    Every minibatch is full, the rest of an epoch is left out: shapes that never change are compiled once.

    Args:
        x: The images.
        y: The labels.
        members: How many orders there are.
        batch_size: Images per member and minibatch.
        epochs: How often to go through the data.
        seed: Decides the orders; the global random generator is neither read nor moved.

    Shapes:
        Gives pairs `(members, batch, 1, 8, 8)` and `(members, batch)`.

    Example:
        >>> x, y = torch.zeros(10, 1, 8, 8), torch.arange(10)
        >>> [tuple(labels.shape) for _, labels in minibatches(x, y, members=2, batch_size=4, epochs=1, seed=0)]
        [(2, 4), (2, 4)]
    """
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        order = torch.stack([torch.randperm(len(y), generator=generator) for _ in range(members)])  # (members, n)
        for start in range(0, len(y) - batch_size + 1, batch_size):
            index = order[:, start : start + batch_size]
            yield x[index], y[index]
