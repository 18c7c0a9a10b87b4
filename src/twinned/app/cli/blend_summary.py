"""Results of `twinned fit --model auto`: leaderboard, contribution of twins, skipped members."""

from __future__ import annotations

import math
from typing import Any

_RATIO = ("ratio", "lower", "upper", "rmse", "baseline_rmse")


def blend_facts(blend: Any) -> dict[str, Any]:
    """Return what a fitted `AutoTwinRegressor` has found, as plain values for JSON."""
    contribution = blend.contribution_
    if contribution is not None:
        weights = dict(zip(blend.member_names_, contribution["baseline_weights"], strict=True))
        contribution = {
            **{name: _finite(value) for name, value in contribution.items() if name in _RATIO},
            "baseline_weights": {name: float(weight) for name, weight in weights.items()},
        }
    return {
        "effort": blend.effort,
        "time_budget": blend.time_budget,
        "leaderboard": blend.leaderboard_.to_dict("records"),
        "blend": blend.blend_,
        "contribution": contribution,
        "skipped": blend.skipped_,
    }


def blend_lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return (heading, text) lines of the summary."""
    from twinned.diagnostics.recommendation import describe_contribution

    logarithm = " of the logarithm" if facts["log_target"] else ""
    lines = [("members", f"RMSE{logarithm} on held-out rows of the cross-validation:")]
    lines += [("", f"  {line}") for line in _leaderboard_lines(facts)]
    lines.append(("twins", describe_contribution(facts["contribution"])))
    lines += [("skipped", f"{name}: {reason}") for name, reason in facts["skipped"].items()]
    return lines


def rounded(score: float, digits: int = 4) -> str:
    """Return significant digits, with an exponent only for very small or large numbers.

    >>> rounded(65327.42), rounded(0.0123456), rounded(1.5e-9), rounded(0.0123456, 2)
    ('65,327', '0.01235', '1.5e-09', '0.012')
    """
    if not 1e-5 <= score < 1e9:
        return f"{score:.{digits}g}"
    return f"{score:,.{max(0, digits - 1 - math.floor(math.log10(score)))}f}"


def _leaderboard_lines(facts: dict[str, Any]) -> list[str]:
    """Return the leaderboard and the blend as aligned lines."""
    rows = [("member", "RMSE", "weight", "seconds")]
    for entry in facts["leaderboard"]:
        error = f"{rounded(entry['rmse'])} ± {rounded(entry['rmse_se'], 2)}"
        rows.append(
            (entry["member"], error, f"{entry['weight']:.2f}", f"{entry['fit_seconds']:.1f}")
        )
    rows.append(("blend", rounded(facts["blend"]["rmse"]), "", f"{facts['seconds']:.1f}"))
    return align_columns(rows)


def align_columns(rows: list[tuple[str, str, str, str]]) -> list[str]:
    """Return rows as lines: the first two columns are aligned left, the others right.

    >>> align_columns([("member", "RMSE", "weight", "s"), ("ridge", "12 ± 3", "0.50", "1.0")])
    ['member  RMSE    weight    s', 'ridge   12 ± 3    0.50  1.0']
    """
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return [
        "  ".join(
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def _finite(value: float) -> float | None:
    """Return a number that JSON can hold, or None."""
    return float(value) if math.isfinite(value) else None
