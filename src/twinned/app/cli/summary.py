"""Results of `twinned fit` and `twinned advise` as lines of text."""

from collections.abc import Iterator

from twinned.app.cli import messages
from twinned.app.cli.options import Facts
from twinned.app.cli.training_data import TrainingData
from twinned.app.report.collect import Content
from twinned.app.report.render import leaderboard_rows
from twinned.rows.formatting import aligned, format_number, format_significant

_MAX_BATCHES = 10  # whose offsets are printed


# --- advise -----------------------------------------------------------------------------------


def format_advice(content: Content, data: TrainingData) -> str:
    """Return the summary, the errors, the features and the code as lines of text."""
    errors = [f"  {line}" for line in aligned(content["error_summary"])]
    lines = [content["summary"], f"Errors of {content['target']} on held-out rows:", *errors]
    features = [f"  {line}" for line in aligned(dict(data.feature_lines()))]
    lines += ["Features:", *features, "", *format_findings(content), ""]
    lines.append(f"Root mean square errors (RMSE) of {content['target']} on held-out rows:")
    lines += [f"  {line}" for line in leaderboard_lines(content["leaderboard"])]
    for check in content["checks"].values():
        model = f" ({check['model']})" if check["model"] else ""
        lines.append(f"{check['title']}{model} {check['summary']}")
    if content["batches"]:
        lines += ["Batches:", *batch_lines(content["batches"], content["log_target"])]
    lines += content["notes"]
    lines += [f"skipped {name}: {reason}" for name, reason in content["skipped"].items()]
    lines.append("To make it in Python, from features X and target y:")
    lines += [f"  {line}" for line in content["code"].splitlines()]
    files = (("output", "model"), ("report", "report"))
    lines += [f"{name}: {content[key]}" for key, name in files if key in content]
    return "\n".join(line.rstrip() for line in lines)


def leaderboard_lines(board: list[Content]) -> list[str]:
    """Return the errors of all models as a table."""
    table = messages.make_table("model", "RMSE", "weight", "seconds", "", left=2)
    table.columns[-1].justify = "left"
    for row in leaderboard_rows(board):
        table.add_row(*(row[key] for key in ("name", "rmse", "weight", "seconds", "mark")))
    return messages.table_lines(table)


def batch_lines(batches: Content, is_log: bool) -> list[str]:
    """Return the errors of known and new batches, and the largest offsets with standard errors."""
    scale, shown = " of the logarithm" if is_log else "", {}
    known, new = (format_number(batches["errors"][name]) for name in ("known", "new"))
    for row in batches["offsets"][:_MAX_BATCHES]:
        error = format_significant(row["std_error"], 2)
        shown[row["batch"]] = f"{format_number(row['offset'])} ± {error} ({row['n_rows']:g} rows)"
    return [
        f"RMSE{scale} of rows of known batches {known}, of a new batch {new}",
        f"offsets{scale} from their mean ({len(shown)} of {len(batches['offsets'])}):",
        *(f"  {line}" for line in aligned(shown)),
    ]


def format_findings(content: Content) -> list[str]:
    """Return the findings of the data checks as lines of text."""
    if not content["findings"]:
        return ["Data checks: no finding."]
    lines = ['Data checks (the page "Data checks" of the documentation describes each code):']
    for finding in content["findings"]:
        heading = f"  {finding['code']} {finding['level']}: {finding['title']}."
        lines += [f"{heading} {finding['message']}", f"    {finding['advice']}"]
    return lines


# --- fit --------------------------------------------------------------------------------------


def format_fit(facts: Facts, data: TrainingData) -> str:
    """Return the table, the features, the model and its errors as lines of text."""
    limits = f", {facts['censored_rows']:,} with a limit" if facts["censored_rows"] else ""
    logarithm = " (its logarithm is fitted)" if facts["log_target"] else ""
    lines = [("result", facts["summary"])] if facts["summary"] else []
    lines.append(("table", f"{facts['table']}, {messages.counted(facts['rows'], 'row')}{limits}"))
    target = facts["target"]
    named = target if isinstance(target, str) else ", ".join(target)
    lines.append(("target", named + logarithm))
    lines += data.feature_lines()
    is_blend, size = facts["model"] == "auto", facts["bytes"]
    shown = f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{max(1, size // 1000)} kB"
    lines += _blend_lines(facts) if is_blend else _twin_lines(facts)
    lines.append(("saved", f"{facts['output']} ({shown})"))
    return "\n".join(f"{heading:<12} {text}" for heading, text in lines)


def _blend_lines(facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield (heading, text) lines: the errors of all members, and skipped members."""
    yield "model", f"auto ({facts['effort']}), in {facts['seconds']:.1f} s of {facts['budget']:g} s"
    target, boards = facts["target"], facts["leaderboard"]
    for name, board in (boards if isinstance(boards, dict) else {target: boards}).items():
        yield "members", f"RMSE of {name} on held-out rows of the cross-validation:"
        yield from (("", f"  {line}") for line in leaderboard_lines(board))
    yield from (("skipped", f"{name}: {reason}") for name, reason in facts["skipped"].items())
    if facts.get("batches"):
        first, *lines = batch_lines(facts["batches"], facts["log_target"])
        yield from (("batches", first), *(("", line) for line in lines))


def _twin_lines(facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield (heading, text) lines: a twin and its cross-validation."""
    pairs = f"{messages.counted(facts['pairs'], 'pair')} in {facts['seconds']:.1f} s"
    yield (
        "model",
        f"{facts['model']}, fitted to {pairs}, predicts from {facts['anchors']:,} anchors",
    )
    if not (check := facts["check"]):
        return
    yield "check", f"RMSE of held-out rows, {check['folds']}-fold cross-validation:"
    errors = {"twin": check["rmse_twin"], "mean of y": check["rmse_mean"]}
    shown = {name: format_number(error) for name, error in errors.items()}
    yield from (("", f"  {line}") for line in aligned(shown))
