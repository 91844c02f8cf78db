"""The network: an ordinary torch module that knows nothing of ensembles."""

from torch import nn

CLASSES = 10


def make_net() -> nn.Module:
    """Make one member, for images `(batch, 1, 8, 8)`, with weights from the global random generator.

    It is small on purpose: the members differ on hard images, so that there is something for an ensemble to win.

    Example:
        >>> import torch
        >>> make_net()(torch.zeros(5, 1, 8, 8)).shape
        torch.Size([5, 10])
    """
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 4 * 4, CLASSES),
    )
