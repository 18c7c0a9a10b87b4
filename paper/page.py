"""The pages of the reproduction in the documentation, written from templates and records.

A template in `paper/pages` is Markdown in which {{name}} stands for a text that is computed here,
so that no number is typed. `python -m paper page` writes the pages into `docs`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.frame import ROOT, markdown_table, write_figure, write_file
from paper import anchor_weights, decomposition
from paper.changed_rules import FITTED, candidate_values, hypothesis_values
from paper.comparison import (
    NEAR,
    NEAR_ERRORS,
    compare,
    count_near,
    gain_columns,
    published_gains,
    published_rmse,
)
from paper.conclusions import VARIANTS, evaluate
from paper.conclusions.evaluation import MIN_DATASETS
from paper.conclusions.measured import Outcome, Status, on, percent
from paper.dual_figure import draw_dual_formulation
from paper.experiments import EXPERIMENTS, Experiment, current_records, draw_figures, table_text
from paper.forests import N_TREES
from paper.loop_gains import loop_gain_values
from paper.loop_relabelling import ROUND_TREES
from paper.networks import N_MEMBERS, NEAREST_PAIRS, NEIGHBORS
from paper.origins import origin_values, time_values
from paper.records import LABELS, Record, Records
from paper.semi_supervised_networks import PUBLISHED_MEMBERS, PUBLISHED_PARTS
from twinned.datasets import KEYS, PAPER_SEEDS, info

TEMPLATES = ROOT / "paper" / "pages"
DOCS = ROOT / "docs"
NETWORK_TABLES = ("T1", "T2", "T3")
FIXED_VARIANTS = ("as_published", "as_written")
STATEMENTS = ROOT / "paper" / "statements.csv"  # where, what the paper claims, check or item
# The checks whose conclusions the paper map names.
NUMBERED = (
    "anchors_are_an_ensemble", "differences_help_forests", "ensembles_reduce_variance",
    "files_follow_the_formulas", "iteration_is_not_better", "loops_and_spread_rank_errors",
    "loops_help_twins", "relabelling_works_for_networks", "uncertainty_weights_do_not_help",
)  # fmt: skip
PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")


def write_pages(records: Records, folder: Path = DOCS) -> list[Path]:
    """Write all tables, pages and pictures, and return their paths."""
    records = CachedRecords(records.folder)
    values = page_values(records)
    written = []
    for template in sorted(TEMPLATES.glob("*.md")):
        path = folder / template.name
        write_file(path, render(template.read_text("utf-8"), values).encode())
        written.append(path)
    return written + write_tables(records) + write_pictures(records, folder / "pictures")


def write_tables(records: Records) -> list[Path]:
    """Write the tables that have records, beside these."""
    written = []
    for key, variant in comparisons(records):
        path = records.folder / f"{key}-{variant}.md"
        write_file(path, _table_text(records, EXPERIMENTS[key], variant).encode())
        written.append(path)
    return written


def write_pictures(records: Records, folder: Path) -> list[Path]:
    """Draw figure 1, and all figures that have records."""
    first = folder / "paper-1.png"
    write_figure(first, draw_dual_formulation())
    return [first, *draw_figures(records, folder)]


def render(template: str, values: dict[str, str]) -> str:
    """Return the template with its placeholders replaced.

    >>> render("{{n}} sets", {"n": "9"})
    '9 sets'
    """
    return PLACEHOLDER.sub(lambda match: values[match[1]], template)


class CachedRecords(Records):
    """Records that are read once."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._found: dict[tuple[str, str], list[Record]] = {}

    def read(self, study: str, variant: str) -> list[Record]:
        if (study, variant) not in self._found:
            self._found[study, variant] = super().read(study, variant)
        return self._found[study, variant]


def page_values(records: Records) -> dict[str, str]:
    """Return the text of each placeholder."""
    records = CachedRecords(records.folder)
    tables = comparisons(records)
    values = conclusion_values(evaluate(records))
    values |= cell_values(tables)
    values |= {
        f"{key}_{variant}": _without_title(_table_text(records, EXPERIMENTS[key], variant))
        for key, variant in tables
    }
    values |= time_values(records) | setting_values()
    values |= candidate_values(tables) | hypothesis_values(tables)
    values |= forest_feature_values(records)
    values |= loop_gain_values(current_records(records, "semi-supervised-forests", "as_published"))
    values |= result_links(records) | origin_values(records)
    return values


def comparisons(records: Records) -> dict[tuple[str, str], pd.DataFrame]:
    """Return (table, variant) → its comparison with the published values, where it has records."""
    found = {}
    for experiment in EXPERIMENTS.values():
        for variant in experiment.variants:
            own = {key: current_records(records, key, variant) for key in experiment.studies}
            if experiment.table is not None and own[experiment.studies[0]]:
                found[experiment.key, variant] = compare(experiment.key, experiment.table(own))
    return found


def result_links(records: Records) -> dict[str, str]:
    """Return the files of the results of each table and figure, in all variants with records."""
    values = {}
    for key, experiment in EXPERIMENTS.items():
        links = []
        for variant in experiment.variants:
            if current_records(records, experiment.studies[0], variant):
                picture = f"[{LABELS[variant]}](pictures/paper-{key}-{variant}.png)"
                links.append(picture if experiment.draw else f"`paper/results/{key}-{variant}.md`")
        values[f"result_{key}"] = ", ".join(links)
    return values


def _table_text(records: Records, experiment: Experiment, variant: str) -> str:
    own = {key: current_records(records, key, variant) for key in experiment.studies}
    return table_text(experiment, own, variant)


def _without_title(page: str) -> str:
    return page.split("\n", 2)[2].strip()


def cell_values(tables: dict[tuple[str, str], pd.DataFrame]) -> dict[str, str]:
    """Return counts of the cells that are near the published ones, and those that are not."""
    counts = {name: _count_cells(tables, NETWORK_TABLES, name) for name in FIXED_VARIANTS}
    near, by_share, total = counts["as_published"]
    far = pd.concat([_far_rows(key, tables[key, "as_published"]) for key in NETWORK_TABLES])
    low = far["dataset"].isin(FITTED)
    beyond = ~far["within two standard errors"]
    return {
        "cells_as_written": str(counts["as_written"][0]),
        "cells_by_share_as_written": str(counts["as_written"][1]),
        "cells": str(total),
        "cells_near": str(near),
        "cells_near_by_share": str(by_share),
        "near_share": percent(NEAR),
        "cells_repeated": str(len(KEYS)),
        "cells_distinct": str(total - len(KEYS)),
        "n_far": str(len(far)),
        "n_far_fitted": str(int(low.sum())),
        "n_far_hidden": str(int((~beyond).sum())),
        "n_far_beyond": str(int(beyond.sum())),
        "n_far_lower": "all" if (far["ratio"] < 1)[beyond].all() else "not all",
        "far_others": "; ".join(
            f"`{method}` on {dataset} (table {table[1:]})"
            for table, method, dataset, *_ in _cells(far[~low])
        )
        or "none",
        "far_table": "\n".join(markdown_table([str(name) for name in far], _cells(far))),
        "other_signs": "; ".join(
            text
            for key in NETWORK_TABLES
            for text in _other_signs(key, tables[key, "as_published"])
        ),
        **_summary_values(tables),
        **_baseline_values(tables["T4", "as_published"]),
        **_forest_cells(tables),
        **_forest_ratios(tables),
    }


def _summary_values(tables: dict[tuple[str, str], pd.DataFrame]) -> dict[str, str]:
    """Counts of near cells of each table, and where ensembles of twins beat those of networks."""
    values: dict[str, str] = {}
    for (key, variant), compared in tables.items():
        near, _, total = count_near(compared)
        if variant in FIXED_VARIANTS and total:
            values |= {f"near_{key}_{variant}": str(near), f"n_{key}": str(total)}
    for variant in ("as_published", "modern"):
        both = pd.concat(tables[key, variant] for key in ("T1", "T2"))
        errors = both.pivot_table(index="dataset", columns="method", values="rmse")
        better = errors["tnnr_ensemble_32"] < errors["ann_ensemble_32"]
        values[f"twins_better_{variant}"] = on(better)
    return values


def _baseline_values(compared: pd.DataFrame) -> dict[str, str]:
    """How Λ = 0 retrained compares with the printed supervised column of table 4."""
    ours = compared.pivot_table(index="dataset", columns="method", values="rmse")
    supervised = published_rmse("T4")["twinned_rf_supervised"]
    gain = 1 - ours["twinned_rf_semi_supervised"] / ours["twinned_rf_weight_0"]
    printed_gain = {
        key: gain for (table, key, _), gain in published_gains().items() if table == "T4"
    }
    ratio = ours["twinned_rf_weight_0"] / ours["twinned_rf_supervised"]
    correlation = ratio.corr(supervised / published_rmse("T5")["twinned_rf"])
    apart = (ours["twinned_rf_weight_0"] / supervised - 1).abs()
    return {
        "T4_correlation": f"{correlation:.2f}",
        "T4_zero_near": str(int((apart <= NEAR).sum())),
        "T4_zero_gains": ", ".join(
            f"{key} {percent(gain[key])} (printed {printed_gain[key]:g} %)" for key in KEYS
        ),
    }


def _forest_cells(tables: dict[tuple[str, str], pd.DataFrame]) -> dict[str, str]:
    """Counts of the near cells of table 5, and those that are not."""
    compared = tables["T5", "as_published"]
    _, by_share, _ = count_near(compared)
    known = compared.dropna(subset="published")
    far = known[(known["ratio"] - 1).abs() > NEAR]
    return {
        "T5_near": str(by_share),
        "T5_far": ", ".join(
            f"`{row['method']}` on {row['dataset']} {row['ratio']:.3f}" for _, row in far.iterrows()
        )
        or "none",
    }


def forest_feature_values(records: Records) -> dict[str, str]:
    """Return the errors of the forest on TF where the search chose one feature, and where both."""
    errors: dict[int, list[float]] = {1: [], 2: []}
    for record in current_records(records, "forests", "as_published"):
        if record["config"]["dataset"] == "TF" and "rf" in record["result"]:
            n_tried = max(1, int(2 * record["result"]["parameters"]["max_features"]))
            errors[n_tried].append(record["result"]["rf"])
    printed = float(published_rmse("T5")["rf"]["TF"])
    one, both = (float(np.mean(own)) / printed for own in errors.values())
    return {
        "T5_TF_splits_one": str(len(errors[1])),
        "T5_TF_one": f"{one:.3f}",
        "T5_TF_both": f"{both:.3f}",
    }


def _forest_ratios(tables: dict[tuple[str, str], pd.DataFrame]) -> dict[str, str]:
    """Two errors of twinned forests as ratios to print, as published and as written."""
    values: dict[str, str] = {}
    printed = published_rmse("T4")["twinned_rf_supervised"]
    for name, variant in (("T4", "as_published"), ("T4_written", "as_written")):
        compared = tables["T4", variant].set_index(["method", "dataset"])["rmse"]
        own = compared["twinned_rf_supervised"]
        values |= {f"{name}_{one}": f"{own[one] / printed[one]:.3f}" for one in ("CS", "TF")}
    return values


def _count_cells(
    tables: dict[tuple[str, str], pd.DataFrame], keys: Sequence[str], variant: str
) -> tuple[int, int, int]:
    """Cells of some tables: near the published ones by share or errors, by share, all."""
    counts = [count_near(tables[key, variant]) for key in keys]
    near, by_share, total = (sum(column) for column in zip(*counts, strict=True))
    return near, by_share, total


def _far_rows(key: str, compared: pd.DataFrame) -> pd.DataFrame:
    """The errors that are not within NEAR of the printed ones."""
    known = compared.dropna(subset="published")
    far = known[(known["ratio"] - 1).abs() > NEAR]
    in_errors = (far["rmse"] - far["published"]).abs() / far["published_error"]
    columns = far[["method", "dataset", "ratio"]].assign(table=key)
    columns["within two standard errors"] = in_errors <= NEAR_ERRORS
    return columns[["table", *columns.columns.drop("table")]]


def _cells(far: pd.DataFrame) -> list[list[str]]:
    return [
        [table, method, dataset, f"{ratio:.3f}", "yes" if is_within else "no"]
        for table, method, dataset, ratio, is_within in far.itertuples(index=False)
    ]


def _other_signs(key: str, compared: pd.DataFrame) -> list[str]:
    """The gains whose sign is not the printed one."""
    return [
        f"`{heading.removeprefix('gain of ')}` on {dataset} ({cell.replace('; ', ', printed ')})"
        for heading, column in gain_columns(key, compared).items()
        for dataset, cell in column.items()
        if cell.startswith("−") != ("; −" in cell)
    ]


def conclusion_values(outcomes: dict[Any, dict[str, Outcome]]) -> dict[str, str]:
    """Return the summary and the details of all conclusions."""
    summary, details, numbers, results = [], [], {}, {}
    for number, (conclusion, own) in enumerate(outcomes.items(), 1):
        numbers[conclusion.check.__name__] = number
        studied = next(v for v in VARIANTS if own[v].status != Status.NOT_STUDIED)
        verdict = f"{own[studied].status}{', our training' * (studied == 'modern')}"
        results[conclusion.check.__name__] = f"conclusion {number}: {verdict}"
        statuses = [_status_cell(own[variant]) for variant in VARIANTS]
        summary.append([str(number), f"“{conclusion.quote}”", conclusion.source, *statuses])
        note = f" {conclusion.note}" if conclusion.note else ""
        details.append(f"**{number}.** “{conclusion.quote}” ({conclusion.source}).{note}\n")
        studies = sorted(set().union(*(outcome.studies for outcome in own.values())))
        check = f"{conclusion.check.__module__}.{conclusion.check.__name__}"
        read = ", ".join(map(_with_command, studies)) or "none"
        tests = _tests_of(conclusion.check.__name__)
        details.append(f"Check: `{check}`; tests: {tests}; reads: {read}.\n")
        for variant in VARIANTS:
            outcome = own[variant]
            details.append(f"- *{LABELS[variant]}*: {outcome.status}. {outcome.details}.")
        details.append("")
    header = ["", "the paper", "where", *(LABELS[variant] for variant in VARIANTS)]
    values = {
        "conclusions": str(len(outcomes)),
        "conclusion_table": "\n".join(markdown_table(header, summary)),
        "conclusion_details": "\n".join(details).strip(),
        "statement_table": "\n".join(_statement_rows(results)),
    }
    values |= {f"number_{name}": str(numbers[name]) for name in NUMBERED}
    for variant in VARIANTS:
        counts = Counter(own[variant].status for own in outcomes.values())
        values[f"counts_{variant}"] = ", ".join(
            f"{status}: {counts[status]}" for status in Status if counts[status]
        )
    return values


def _tests_of(check: str) -> str:
    """The test files that name a check."""
    files = sorted((ROOT / "tests" / "paper").glob("test_*.py"))
    named = re.compile(rf'[."]{check}\b')
    return ", ".join(f"`{path.name}`" for path in files if named.search(path.read_text("utf-8")))


def _with_command(read: str) -> str:
    """A study, or a file of results and the command that writes it."""
    file = Path(read.strip("`"))
    if file.suffix == "":
        return read
    paths = (*ROOT.glob(f"benchmarks/*/{file.stem}.py"), ROOT / "paper" / f"{file.stem}.py")
    module = ".".join(paths[0].relative_to(ROOT).with_suffix("").parts)
    return f"{read} (`python -m {module}`)"


def _statement_rows(results: dict[str, str]) -> list[str]:
    """The claims of the text, each with its conclusion and result, or its item of the map."""
    found = pd.read_csv(STATEMENTS)
    named = found["row"].str.extract(r"^[a-z_]+\.(\w+)$")[0].map(results)
    found["row"] = named.fillna(found["row"])
    return markdown_table(["where", "the paper", "here"], found.to_numpy().tolist())


def _status_cell(outcome: Outcome) -> str:
    """The status, emphasized where it is not "holds", and the number of data sets where not all.

    >>> _status_cell(Outcome(Status.FAILS, "", 6))
    '**does not hold** (6 sets)'
    >>> _status_cell(Outcome(Status.FAILS, "", other=(Status.HOLDS, "with loops")))
    '**does not hold**; with loops holds'
    """
    status = outcome.status
    text = _emphasized(status)
    has_result = status not in (Status.MISSING, Status.NOT_STUDIED)
    if has_result and outcome.n_datasets < len(KEYS):
        text = f"{text} ({outcome.n_datasets} sets)"
    if outcome.other is not None:
        other, reading = outcome.other
        text = f"{text}; {reading} {_emphasized(other)}"
    return text


def _emphasized(status: Status) -> str:
    return f"**{status}**" if status in (Status.FAILS, Status.IN_PART) else str(status)


def setting_values() -> dict[str, str]:
    """Return constants of the studies."""
    return {
        "splits": str(len(PAPER_SEEDS)),
        "min_datasets": str(MIN_DATASETS),
        "members": str(N_MEMBERS),
        "most_pairs": str(max(NEAREST_PAIRS)),
        "most_anchors": str(max(NEIGHBORS)),
        "weight_members": str(anchor_weights.N_MEMBERS),
        "weight_loops": str(anchor_weights.N_LOOPS),
        "drawn_sets": str(decomposition.N_SETS),
        "drawn_rows": str(decomposition.N_TRAIN),
        "forest_trees": str(N_TREES),
        "round_trees": str(ROUND_TREES),
        "bc_features": str(info("BC").features),
        "co_training_members": str(PUBLISHED_MEMBERS),
        "published_shares": ", ".join(
            f"{percent(share)} {name}" for name, share in PUBLISHED_PARTS.items()
        ),
    }
