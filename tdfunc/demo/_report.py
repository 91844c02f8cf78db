"""What is printed at the end: tables for people, and one line of JSON for programs."""

import json
import math
from typing import NamedTuple

from ._metrics import Scores
from ._rates import Rates


class Report(NamedTuple):
    """The results of a run; the rates are None where nothing was trained."""

    members: int
    member: Scores
    ensemble: Scores
    rates: Rates
    compilations: int


def table(report: Report) -> str:
    """Return the tables of scores and, where steps were taken, of their rates.

    Example:
        >>> scores = Scores(accuracy=0.98, nll=0.05, ece=0.01)
        >>> print(table(Report(8, scores, scores, Rates(eager=150.0, loop=100.0), 0)))
        test set              accuracy     NLL     ECE
        mean member             0.9800  0.0500  0.0100
        ensemble of 8           0.9800  0.0500  0.0100
        <BLANKLINE>
        training               steps/s
        step in eager            150.0    1.5x
        loop over modules        100.0    1.0x
    """
    lines = [f"{'test set':20}  accuracy     NLL     ECE"]
    for name, found in (("mean member", report.member), (f"ensemble of {report.members}", report.ensemble)):
        lines.append(f"{name:20}  {found.accuracy:8.4f}  {found.nll:6.4f}  {found.ece:6.4f}")
    if report.rates.loop is not None:
        lines += ["", f"{'training':20}   steps/s"]
        names = ("compiled step", "step in eager", "loop over modules")
        for name, rate in zip(names, report.rates, strict=True):
            if rate is not None:
                lines.append(f"{name:20}  {rate:8.1f}  {rate / report.rates.loop:5.1f}x")
    return "\n".join(lines)


def json_line(report: Report) -> str:
    """Return the results as one line of JSON; what was not measured, or is not finite, is null.

    Example:
        >>> nothing = Scores(0.1, float("nan"), 0.9)
        >>> json.loads(json_line(Report(1, nothing, nothing, Rates(), 0)))["member_nll"] is None
        True
    """
    values: dict[str, float | None] = {}
    for name in Scores._fields:
        values[f"ensemble_{name}"] = getattr(report.ensemble, name)
        values[f"member_{name}"] = getattr(report.member, name)
    for name in Rates._fields:
        values[f"{name}_steps_per_s"] = getattr(report.rates, name)
    values["compilations"] = report.compilations
    return json.dumps({name: _number(value) for name, value in values.items()}, allow_nan=False)


def _number(value: float | None) -> float | None:
    return round(value, 6) if value is not None and math.isfinite(value) else None
