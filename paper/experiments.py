"""The studies that are run, and the tables and figures that show their records."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

import pandas as pd

from paper import (
    anchor_weights,
    decomposition,
    forests,
    knn,
    loop_relabelling,
    model_size,
    networks,
    semi_supervised_networks,
    semi_supervised_table,
    tables,
    timing,
)
from paper.commits import name_earlier_commits
from paper.comparison import as_markdown, compare
from paper.panels import Panels
from paper.records import LABELS, Record, Records
from paper.studies import Study, list_trials
from paper.tables import RecordsByStudy
from twinned.datasets import KEYS, PAPER_SEEDS

STUDIES = {  # in the order of the paper
    study.key: study
    for study in (
        Study(
            "plain-networks",
            networks.VARIANTS,
            networks.plain_trials,
            networks.run_plain,
            together=True,
        ),
        Study(
            "twin-networks",
            networks.VARIANTS,
            networks.twin_trials,
            networks.run_twins,
            together=True,
        ),
        Study(
            "paired-networks",
            networks.VARIANTS,
            networks.paired_trials,
            networks.run_paired,
            together=True,
        ),
        Study("neighbors", networks.VARIANTS, knn.knn_trials, knn.run_knn),
        Study(
            "storage",
            model_size.VARIANTS,
            model_size.size_trials,
            model_size.run_sizes,
            uses_datasets=False,
        ),
        Study(
            "semi-supervised-forests",
            loop_relabelling.VARIANTS,
            loop_relabelling.semi_supervised_trials,
            loop_relabelling.run_semi_supervised,
        ),
        Study(
            semi_supervised_networks.STUDY,
            semi_supervised_networks.VARIANTS,
            semi_supervised_networks.semi_supervised_network_trials,
            semi_supervised_networks.run_semi_supervised_networks,
            together=True,
        ),
        Study(
            "weighted-anchors",
            anchor_weights.VARIANTS,
            anchor_weights.weight_trials,
            anchor_weights.run_weights,
            together=True,
        ),
        Study(
            "iterated-loops",
            loop_relabelling.ITERATED_VARIANTS,
            loop_relabelling.iterated_trials,
            loop_relabelling.run_iterated,
        ),
        Study("timing", timing.VARIANTS, timing.timing_trials, timing.run_timing),
        Study(
            "decomposition",
            decomposition.VARIANTS,
            decomposition.decomposition_trials,
            decomposition.run_decomposition,
        ),
        Study("forests", forests.VARIANTS, forests.forest_trials, forests.run_forests),
    )
}


def current_records(records: Records, study: str, variant: str) -> list[Record]:
    """Return the records of a study's current trials.

    Records of settings that are no longer used are ignored.
    """
    identities = _identities(study, variant)
    return [r for r in records.read(study, variant) if r["identity"] in identities]


@cache
def _identities(study: str, variant: str) -> frozenset[str]:
    """Identities of all trials of a study."""
    trials = list_trials(STUDIES[study], variant, KEYS, PAPER_SEEDS)
    return frozenset(trial.identity for trial in trials)


@dataclass(frozen=True)
class Experiment:
    """A table, a figure or a further result of the paper.

    Parameters
    ----------
    key : str
        As on the command line: "T2", "A".
    item : str
        Table, figure or section of the paper: "figure 2".
    title : str
        A short description.
    studies : tuple of str
        Keys of the studies that it shows.
    table : callable (records by study) → DataFrame, or None
        Its rows: dataset, split, method, rmse.
    text : callable (records by study) → str, or None
        Its table as Markdown, where the paper prints no values to compare with.
    draw : callable (records by study) → Panels, or None
        Its figure, where it has no table.
    """

    key: str
    item: str
    title: str
    studies: tuple[str, ...]
    table: Callable[[RecordsByStudy], pd.DataFrame] | None = None
    text: Callable[[RecordsByStudy], str] | None = None
    draw: Callable[[RecordsByStudy], Panels] | None = None

    @property
    def variants(self) -> tuple[str, ...]:
        """The variants that all of its studies have."""
        first, *others = (STUDIES[key].variants for key in self.studies)
        return tuple(name for name in first if all(name in other for other in others))


def draw_figure(experiment: Experiment, records: RecordsByStudy, variant: str) -> Panels:
    """Return the figure of an experiment, which names the records of an earlier commit."""
    assert experiment.draw is not None
    panels = experiment.draw(records)
    item = experiment.item[0].upper() + experiment.item[1:]
    panels.add_to_title(f"{item} of the paper ({experiment.key})", LABELS[variant])
    if earlier := name_earlier_commits(tables.shown_records(records), KEYS):
        panels.add_note(f"records {earlier}")
    return panels


def draw_figures(records: Records, folder: Path) -> list[Path]:
    """Write a picture of each figure that has records, in each variant; return their paths."""
    written = []
    for experiment in EXPERIMENTS.values():
        for variant in experiment.variants:
            found = {key: current_records(records, key, variant) for key in experiment.studies}
            if experiment.draw is not None and found[experiment.studies[0]]:
                panels = draw_figure(experiment, found, variant)
                written.append(panels.save(folder, f"paper-{experiment.key}-{variant}"))
    return written


def table_text(experiment: Experiment, records: RecordsByStudy, variant: str) -> str:
    """Return the table of an experiment as a Markdown page."""
    assert experiment.table is not None
    if experiment.text is not None:
        title = f"# {experiment.key}, {variant}: {experiment.title}"
        return f"{title}\n\n{experiment.text(records)}"
    compared = compare(experiment.key, experiment.table(records))
    earlier = name_earlier_commits(tables.shown_records(records), KEYS)
    return as_markdown(experiment.key, experiment.title, variant, compared, earlier)


def read_experiments() -> Iterator[Experiment]:
    """Yield the rows of `paper/experiments.csv`, in the order of the paper."""
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            module, name = row["shown_by"].split(".")
            shown = getattr(import_module(f"paper.{module}"), name)
            text = semi_supervised_table.text_s if row["key"] == "S" else None
            table, draw = (None, shown) if module == "figures" else (shown, None)
            studies = tuple(row["studies"].split())
            yield Experiment(row["key"], row["item"], row["title"], studies, table, text, draw)


EXPERIMENTS = {experiment.key: experiment for experiment in read_experiments()}
