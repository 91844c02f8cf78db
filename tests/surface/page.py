"""The table as a page of the documentation: `python -m tests.surface.page` writes it."""

from __future__ import annotations

import pathlib

from tests.surface.table import CELLS, ROWS


def page() -> str:
    """Return docs/surface.md."""
    reasons: list[str] = []
    lines = []
    for row in ROWS:
        cells = []
        for cell in CELLS:
            reason = row.not_held.get(cell)
            if reason is not None and reason not in reasons:
                reasons.append(reason)
            cells.append("yes" if reason is None else f"({reasons.index(reason) + 1})")
        lines.append(f"| `{row.name.replace('|', chr(92) + '|')}` | {' | '.join(cells)} |")
    held = sum(len(CELLS) - len(row.not_held) for row in ROWS)
    whole = len(ROWS) * len(CELLS)
    text = [
        "# What holds where",
        "",
        "Each operation on trees is tested six ways: in eager against plain torch on the leaves; compiled with `fullgraph=True`, one trace for",
        "three calls; under `vmap` over a batch dim; gradients through it; compiled with `dynamic=True`, one trace for four batch sizes; exported",
        f"by `torch.export`. {held} of {whole} cells hold ({100 * held / whole:.1f} %); the others have their reason below the table.",
        "",
        f"| operation | {' | '.join(CELLS)} |",
        f"|---|{'---|' * len(CELLS)}",
        *lines,
        "",
        *[f"{i + 1}. {reason[0].upper()}{reason[1:]}." for i, reason in enumerate(reasons)],
        "",
    ]
    return "\n".join(text)


if __name__ == "__main__":
    pathlib.Path(__file__).parents[2].joinpath("docs", "surface.md").write_text(page())
