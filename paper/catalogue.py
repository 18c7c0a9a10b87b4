"""What there is: the studies that are run, and the tables and figures that are views of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paper import (
    decomposition,
    figures,
    forests,
    neighbors,
    networks,
    semi,
    storage,
    timing,
    views,
    weighted,
)
from paper.runner import Study

STUDIES = {
    study.key: study
    for study in (
        Study(
            "plain-networks",
            networks.FLAVOURS,
            networks.expand_plain,
            networks.execute_plain,
            program=networks.shared_program,
        ),
        Study(
            "twin-networks",
            networks.FLAVOURS,
            networks.expand_twins,
            networks.execute_twins,
            program=networks.shared_program,
        ),
        Study(
            "paired-networks",
            networks.FLAVOURS,
            networks.expand_paired,
            networks.execute_paired,
            program=networks.shared_program,
        ),
        Study(
            "neighbours",
            networks.FLAVOURS,
            neighbors.expand_neighbours,
            neighbors.execute_neighbours,
        ),
        Study("timing", timing.FLAVOURS, timing.expand_timing, timing.execute_timing),
        Study(
            "decomposition",
            timing.FLAVOURS,
            decomposition.expand_decomposition,
            decomposition.execute_decomposition,
        ),
        Study("semi-supervised-forests", semi.FLAVOURS, semi.expand_semi, semi.execute_semi),
        Study("iterated-loops", semi.FLAVOURS, semi.expand_iterated, semi.execute_iterated),
        Study(
            "weighted-anchors",
            weighted.FLAVOURS,
            weighted.expand_weighted,
            weighted.execute_weighted,
            program=networks.shared_program,
        ),
        Study("forests", forests.FLAVOURS, forests.expand_table5, forests.execute_table5),
        Study(
            "storage",
            storage.FLAVOURS,
            storage.expand_figure_f,
            storage.execute_figure_f,
            of_data=False,
        ),
    )
}


@dataclass(frozen=True)
class Experiment:
    """A table, a figure or a further result of the paper.

    Parameters
    ----------
    key : str
        As on the command line: "T2", "A".
    kind : {"table", "figure", "study"}
        The last is of what the paper says without a table or a figure.
    title : str
        What it shows, in a few words.
    studies : tuple of str
        Keys of what must be run for it.
    table : callable (records by study) → DataFrame, or None
        Its rows: dataset, split, method, rmse.
    draw : callable (records by study, flavour) → Panels, or None
        Its picture.
    """

    key: str
    kind: str
    title: str
    studies: tuple[str, ...]
    table: Callable[[views.Found], Any] | None = None
    draw: Callable[[views.Found, str], figures.Panels] | None = None  # where there is no table

    @property
    def flavours(self) -> tuple[str, ...]:
        """Those that all of its studies have."""
        first, *others = (STUDIES[key].flavours for key in self.studies)
        return tuple(name for name in first if all(name in other for other in others))


EXPERIMENTS = {
    one.key: one
    for one in (
        Experiment(
            "T1", "table", "networks, and ensembles of 32", ("plain-networks",), views.table1
        ),
        Experiment(
            "T2",
            "table",
            "twin networks with one anchor, with all, and ensembles of 32",
            ("twin-networks",),
            views.table2,
        ),
        Experiment(
            "T3",
            "table",
            "twin networks with nearest anchors, and trained on nearest pairs",
            ("twin-networks", "paired-networks"),
            views.table3,
        ),
        Experiment(
            "T4",
            "table",
            "the twinned forest with and without loops through unlabelled points",
            ("semi-supervised-forests",),
            views.table4,
        ),
        Experiment(
            "T5",
            "table",
            "a random forest and its twin, 100 of the first 200 rows",
            ("forests",),
            views.table5,
        ),
        Experiment(
            "A",
            "figure",
            "four kinds of ensemble, by size",
            ("plain-networks", "twin-networks"),
            draw=figures.figure_a,
        ),
        Experiment(
            "B",
            "figure",
            "k-NN, and twin networks with nearest neighbours",
            ("neighbours", "twin-networks", "paired-networks"),
            draw=figures.figure_b,
        ),
        Experiment(
            "C",
            "figure",
            "training and predicting time, by neighbours",
            ("timing", "plain-networks", "twin-networks", "paired-networks"),
            draw=figures.figure_c,
        ),
        Experiment(
            "D",
            "figure",
            "nearest neighbours as anchors and as pairs",
            ("twin-networks", "paired-networks"),
            draw=figures.figure_d,
        ),
        Experiment(
            "E",
            "figure",
            "the training-set multiplier",
            ("paired-networks", "twin-networks"),
            draw=figures.figure_e,
        ),
        Experiment(
            "F",
            "figure",
            "numbers stored by an ensemble, by size",
            ("storage",),
            draw=figures.figure_f,
        ),
        Experiment(
            "G",
            "figure",
            "loops through unlabelled points, by their weight",
            ("semi-supervised-forests",),
            draw=figures.figure_g,
        ),
        Experiment(
            "I",
            "study",
            "relabelling loops again and again: a negative result",
            ("iterated-loops",),
            draw=figures.figure_i,
        ),
        Experiment(
            "V",
            "study",
            "bias, variance and covariance of ensembles: the appendix",
            ("decomposition",),
            draw=figures.figure_v,
        ),
        Experiment(
            "W",
            "study",
            "weighting anchors by how certain they are: a negative result",
            ("weighted-anchors",),
            draw=figures.figure_w,
        ),
    )
}
