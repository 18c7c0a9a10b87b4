"""The studies that are run, and the tables and figures that show their records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pandas as pd

from paper import (
    anchor_weights,
    decomposition,
    figures,
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


EXPERIMENTS = {  # in the order of the paper
    experiment.key: experiment
    for experiment in (
        Experiment(
            "A",
            "figure 2",
            "four kinds of ensemble, by size",
            ("plain-networks", "twin-networks"),
            draw=figures.figure_a,
        ),
        Experiment(
            "T1", "table 1", "networks, and ensembles of 32", ("plain-networks",), tables.table1
        ),
        Experiment(
            "T2",
            "table 2",
            "twin networks with one anchor, with all, and ensembles of 32",
            ("twin-networks",),
            tables.table2,
        ),
        Experiment(
            "E",
            "figure 3",
            "the training-set multiplier",
            ("paired-networks", "twin-networks"),
            draw=figures.figure_e,
        ),
        Experiment(
            "D",
            "figure 4",
            "nearest neighbors as anchors and as pairs",
            ("twin-networks", "paired-networks"),
            draw=figures.figure_d,
        ),
        Experiment(
            "T3",
            "table 3",
            "twin networks with nearest anchors, and trained on nearest pairs",
            ("twin-networks", "paired-networks"),
            tables.table3,
        ),
        Experiment(
            "B",
            "figure 5",
            "k-NN, and twin networks with nearest neighbors",
            ("neighbors", "twin-networks", "paired-networks"),
            draw=figures.figure_b,
        ),
        Experiment(
            "F",
            "figure 6",
            "numbers stored by an ensemble, by size",
            ("storage",),
            draw=figures.figure_f,
        ),
        Experiment(
            "G",
            "figure 7",
            "loops through unlabelled points, by their weight",
            ("semi-supervised-forests",),
            draw=figures.figure_g,
        ),
        Experiment(
            "T4",
            "table 4",
            "the twinned forest with and without loops through unlabelled points",
            ("semi-supervised-forests",),
            tables.table4,
        ),
        Experiment(
            "S",
            "section 11",
            "semi-supervised twin networks and co-training, by the share of labelled rows",
            (semi_supervised_networks.STUDY,),
            semi_supervised_table.table_s,
            semi_supervised_table.text_s,
        ),
        Experiment(
            "W",
            "section 12",
            "weighting anchors by how certain they are: a negative result",
            ("weighted-anchors",),
            draw=figures.figure_w,
        ),
        Experiment(
            "I",
            "section 12",
            "repeated relabelling of loops: a negative result",
            ("iterated-loops",),
            draw=figures.figure_i,
        ),
        Experiment(
            "C",
            "figure 8",
            "training and prediction time, by the number of neighbors",
            ("timing",),
            draw=figures.figure_c,
        ),
        Experiment(
            "V",
            "appendix B",
            "bias, variance and covariance of ensembles: the appendix",
            ("decomposition",),
            draw=figures.figure_v,
        ),
        Experiment(
            "T5",
            "table 5",
            "a random forest and its twin, 100 of 200 rows",
            ("forests",),
            tables.table5,
        ),
    )
}
