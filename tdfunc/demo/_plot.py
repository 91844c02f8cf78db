"""The picture: how the members learn, how far their confidence can be trusted, and where they disagree."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ._files import replacing
from ._metrics import BINS, ece, entropy, interval, mean_scores, mixture, reliability
from ._net import CLASSES

# Two of Okabe and Ito's colours, which colour-blind people tell apart, and a grey.
ENSEMBLE, MEMBER, FAINT = "#0072B2", "#D55E00", "#8C8C8C"


def draw(path: Path, losses: Tensor | None, log_probs: Tensor, images: Tensor, labels: Tensor) -> None:
    """Write the picture as a PNG, whole or not at all.

    Args:
        path: Where to.
        losses: The members' losses by epoch and step; without them there is no panel of curves.
        log_probs: The members' predictions for the test images.
        images: The test images.
        labels: Their labels.

    Shapes:
        Losses `(epochs, steps, members)`, log-probabilities `(members, n, classes)`, images `(n, 1, 8, 8)`, labels `(n,)`.
    """
    from matplotlib.figure import Figure  # and not pyplot, which would choose a backend for the whole process

    widths = ([] if losses is None else [1.0]) + [1.0, 1.35]
    figure: Any = Figure(figsize=(4.6 * sum(widths), 4.8), dpi=150, layout="constrained")
    panels = iter(figure.subfigures(1, len(widths), width_ratios=widths, wspace=0.03))
    if losses is not None:
        _curves(next(panels), losses)
    _reliability(next(panels), log_probs, labels)
    _disagreement(next(panels), log_probs, images, labels)
    with replacing(path) as part:
        figure.savefig(part, format="png")


def _curves(panel: Any, losses: Tensor) -> None:
    """Draw each member's loss and the mean of all: a point per epoch, or per step where epochs are few."""
    epochs = len(losses)
    points = losses.mean(1) if epochs >= 5 else losses.flatten(0, 1)
    at = [epochs * (i + 1) / len(points) for i in range(len(points))]
    axes = panel.subplots()
    for i, member in enumerate(points.T):
        axes.plot(at, member.numpy(), color=MEMBER, alpha=0.45, linewidth=1, label="a member" if i == 0 else None)
    axes.plot(at, points.mean(1).numpy(), color=ENSEMBLE, linewidth=2, label="mean of all")
    axes.set(title="Training loss", xlabel="epoch", ylabel="cross-entropy (nats)", yscale="log")
    axes.legend(frameon=False)
    _plain(axes)


def _reliability(panel: Any, log_probs: Tensor, labels: Tensor) -> None:
    """Draw accuracy by confidence, and below it how many predictions that is."""
    axes = panel.subplots(2, 1, sharex=True, height_ratios=(5, 2))
    upper, lower = axes
    upper.plot([0, 1], [0, 1], color=FAINT, linestyle="--", linewidth=1)
    both, pooled = mixture(log_probs), log_probs.flatten(0, 1)
    name = f"mean member, ECE {mean_scores(log_probs, labels).ece:.3f}"
    _by_confidence(axes, reliability(pooled, labels.repeat(len(log_probs))), len(labels), shift=-0.2, color=MEMBER, label=name)
    name = f"ensemble, ECE {ece(both, labels):.3f}"
    _by_confidence(axes, reliability(both, labels), len(labels), shift=0.2, color=ENSEMBLE, label=name)
    upper.set(title="Reliability on the test images", ylabel="accuracy, 95 % interval", xlim=(0, 1.02), ylim=(-0.03, 1.03))
    lower.set(xlabel="confidence", ylabel="share", yscale="log")
    lower.legend(frameon=False, loc="upper left", fontsize=8)
    for each in axes:
        _plain(each)


def _by_confidence(axes: Any, bins: Tensor, images: int, *, shift: float, color: str, label: str) -> None:
    """Draw the bins that are not empty; `shift` (in bins) sets bars side by side."""
    middles = (torch.arange(BINS) + 0.5 + shift) / BINS
    full = bins[:, 0] > 0
    share, confidence, accuracy = bins[full].T
    low, high = interval(accuracy, share * images)
    axes[0].vlines(confidence.numpy(), low.numpy(), high.numpy(), color=color, alpha=0.5, linewidth=2)
    axes[0].plot(confidence.numpy(), accuracy.numpy(), color=color, linestyle="none", marker="o", markersize=6)
    axes[1].bar(middles[full].numpy(), share.numpy(), width=0.4 / BINS, color=color, label=label)


def _disagreement(panel: Any, log_probs: Tensor, images: Tensor, labels: Tensor, columns: int = 4) -> None:
    """Draw the test images that the ensemble is least sure of, and below each what its members make of it."""
    doubtful = entropy(mixture(log_probs)).topk(2 * columns).indices
    panel.suptitle("Most uncertain test images, and what each member makes of them")
    panel.supxlabel("class, the right one in bold; a row per member, dark for probability 1", fontsize=9)
    grid = panel.subplots(4, columns)
    for place, i in enumerate(map(int, doubtful)):
        row, column = divmod(place, columns)
        _image(grid[2 * row, column], images[i, 0], int(labels[i]))
        _votes(grid[2 * row + 1, column], log_probs[:, i].exp(), int(labels[i]), first=column == 0)


def _image(axes: Any, image: Tensor, label: int) -> None:
    axes.imshow(image.numpy(), cmap="gray_r", vmin=0, vmax=1)
    axes.set_title(f"a {label}", fontsize=9, pad=2)
    axes.set(xticks=[], yticks=[])


def _votes(axes: Any, probs: Tensor, label: int, *, first: bool) -> None:
    """Draw the probabilities `(members, classes)` as shades; the right class is marked on the axis."""
    axes.imshow(probs.numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    axes.set(xticks=range(CLASSES), yticks=[], ylabel="members" if first else "")
    axes.tick_params(length=0, labelsize=7, pad=1)
    axes.get_xticklabels()[label].set(color=MEMBER, weight="bold")


def _plain(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=FAINT, alpha=0.2, linewidth=0.6)
    axes.set_axisbelow(True)
