"""What is measured of predictions: plain functions of log-probabilities and labels."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

BINS = 10


class Scores(NamedTuple):
    """How good predictions are: accuracy, negative log-likelihood (nats), expected calibration error."""

    accuracy: float
    nll: float
    ece: float


def accuracy(log_probs: Tensor, labels: Tensor) -> float:
    """Return the share of images whose most probable class is the right one.

    Shapes:
        `(n, classes)` and `(n,)`.

    Example:
        >>> accuracy(torch.tensor([[0.9, 0.1], [0.2, 0.8]]).log(), torch.tensor([0, 0]))
        0.5
    """
    return float((log_probs.argmax(-1) == labels).double().mean())


def nll(log_probs: Tensor, labels: Tensor) -> float:
    r"""Return the mean negative log-likelihood of the labels, :math:`-\frac1n \sum_i \log p_i(y_i)`, in nats.

    Shapes:
        `(n, classes)` and `(n,)`.

    Example:
        >>> round(nll(torch.tensor([[0.5, 0.5], [0.25, 0.75]]).log(), torch.tensor([0, 0])) / math.log(2), 6)
        1.5
    """
    return float(-log_probs.gather(-1, labels[:, None]).double().mean())


def reliability(log_probs: Tensor, labels: Tensor, bins: int = BINS) -> Tensor:
    """Return the share of images, the mean confidence and the accuracy by confidence, in bins of equal width.

    Confidence is the probability of the most probable class; a bin without images has zeros.

    Shapes:
        `(n, classes)` and `(n,)` to `(bins, 3)`.

    Example:
        >>> reliability(torch.tensor([[0.9, 0.1], [0.3, 0.7]]).log(), torch.tensor([0, 0]), bins=2)
        tensor([[0.0000, 0.0000, 0.0000],
                [1.0000, 0.8000, 0.5000]], dtype=torch.float64)
    """
    confidence, found = log_probs.double().exp().max(-1)
    at = (confidence * bins).long().clamp(max=bins - 1)
    facts = torch.stack([torch.ones_like(confidence), confidence, (found == labels).double()], -1)  # (n, 3)
    sums = facts.new_zeros(bins, 3).index_add(0, at, facts)
    count = sums[:, :1]
    return torch.cat([count / len(labels), sums[:, 1:] / count.clamp(min=1)], -1)


def ece(log_probs: Tensor, labels: Tensor, bins: int = BINS) -> float:
    r"""Return the expected calibration error: how far confidence and accuracy are apart.

    .. math::
        \sum_b \frac{n_b}{n} \left| \mathrm{accuracy}_b - \mathrm{confidence}_b \right|

    over bins of equal width in confidence.

    Shapes:
        `(n, classes)` and `(n,)`.

    References:
        Guo, Pleiss, Sun, Weinberger: On Calibration of Modern Neural Networks. ICML 2017.

    Example:
        >>> round(ece(torch.tensor([[0.9, 0.1], [0.3, 0.7]]).log(), torch.tensor([0, 0]), bins=2), 6)
        0.3
    """
    share, confidence, right = reliability(log_probs, labels, bins).unbind(-1)
    return float((share * (right - confidence).abs()).sum())


def scores(log_probs: Tensor, labels: Tensor) -> Scores:
    """Return all scores of one predictor.

    Example:
        >>> scores(torch.tensor([[1.0, 0.0], [0.0, 1.0]]).log(), torch.tensor([0, 1]))
        Scores(accuracy=1.0, nll=-0.0, ece=0.0)
    """
    return Scores(accuracy(log_probs, labels), nll(log_probs, labels), ece(log_probs, labels))


def mean_scores(log_probs: Tensor, labels: Tensor) -> Scores:
    """Return the scores of the mean member, from log-probabilities `(members, n, classes)`."""
    columns = zip(*[scores(member, labels) for member in log_probs], strict=True)
    return Scores(*[sum(column) / len(log_probs) for column in columns])


def mixture(log_probs: Tensor) -> Tensor:
    """Return the ensemble's log-probabilities: those of the mean of the members' probabilities.

    Shapes:
        `(members, n, classes)` to `(n, classes)`.

    Example:
        >>> mixture(torch.tensor([[[0.9, 0.1]], [[0.5, 0.5]]]).log()).exp()
        tensor([[0.7000, 0.3000]])
    """
    return log_probs.logsumexp(0) - math.log(len(log_probs))


def entropy(log_probs: Tensor) -> Tensor:
    """Return how uncertain each prediction is, in nats.

    Shapes:
        `(*, classes)` to `(*,)`.

    Example:
        >>> entropy(torch.tensor([[1.0, 0.0], [0.5, 0.5]]).log())
        tensor([0.0000, 0.6931])
    """
    return torch.special.entr(log_probs.exp()).sum(-1)
