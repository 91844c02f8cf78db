"""What is measured of predictions: plain functions of log-probabilities and labels."""

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
    at = (confidence * bins).long().clamp(0, bins - 1)
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


def interval(rate: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return the ends of Wilson's 95 % interval for a rate seen in `count` trials, elementwise.

    .. math::
        \frac{p + z^2/2n \pm z \sqrt{p(1-p)/n + z^2/4n^2}}{1 + z^2/n}, \qquad z = 1.96

    Example:
        >>> interval(torch.tensor([1.0]), torch.tensor([10.0]))
        (tensor([0.7225]), tensor([1.]))
    """
    z2 = 1.96**2
    middle = rate + z2 / (2 * count)
    reach = (z2 * (rate * (1 - rate) / count + z2 / (4 * count**2))).sqrt()
    return (middle - reach) / (1 + z2 / count), (middle + reach) / (1 + z2 / count)


def scores(log_probs: Tensor, labels: Tensor) -> Scores:
    """Return all scores of one predictor.

    Example:
        >>> found = scores(torch.tensor([[0.9, 0.1], [0.3, 0.7]]).log(), torch.tensor([0, 0]))
        >>> Scores(*[round(value, 3) for value in found])
        Scores(accuracy=0.5, nll=0.655, ece=0.4)
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
    probs = log_probs.exp()
    return probs.xlogy(1 / probs).sum(-1)
