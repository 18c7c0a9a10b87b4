"""The paper's conclusions, each with a result that is computed from records.

A conclusion quotes the paper and has a check, which is evaluated for each variant, on the data sets
that have the records it needs. Where these are few, it gives "not run yet" and what is missing; it
is filled in once the records exist.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

from paper.conclusions import costs, ensembles, forests, neighbors, semi_supervised
from paper.conclusions.evaluation import evaluate_check
from paper.conclusions.measured import Measured, Outcome
from paper.experiments import STUDIES, current_records
from paper.records import Record, Records

VARIANTS = ("as_published", "modern", "as_written")
# Networks as written store the same numbers as those as published.
SAME_RECORDS = {("as_written", "storage"): "as_published"}


@dataclass(frozen=True)
class Conclusion:
    """A statement of the paper.

    Parameters
    ----------
    source : str
        Section, table or figure of the paper.
    quote : str
        The paper's own words; "…" where words are omitted, brackets where they are added.
    check : callable (Measured) → Outcome
    note : str, default=""
        What a reader must know about the statement itself.
    """

    source: str
    quote: str
    check: Callable[[Measured], Outcome]
    note: str = ""

    def evaluate(self, measured: Measured) -> Outcome:
        """Return the outcome for one variant."""
        return evaluate_check(self.check, measured)


CONCLUSIONS = (
    Conclusion(
        "abstract",
        "We combine twin neural network regression with k-nearest neighbor regression to design a "
        "more accurate and efficient regression method",
        costs.neighbors_are_accurate_and_fast,
        "On most sets a lower error than all pairs and than k-NN, and less training time.",
    ),
    Conclusion(
        "section 5, figure 2",
        "TNNR almost always yields a lower RMSE than ANN regression",
        ensembles.twin_beats_network,
    ),
    Conclusion(
        "section 2, tables 1, 2 and 5",
        "Twinned regression methods tend to be more accurate than the underlying base algorithm on "
        "many data sets",
        ensembles.twins_beat_their_base,
        "A result of earlier papers. Six sets, as many as in the printed table 5.",
    ),
    Conclusion(
        "section 3, table 2",
        "A more accurate estimate … is obtained by averaging over many differences between a "
        "fixed unknown data point and different anchor data points",
        ensembles.anchors_are_an_ensemble,
    ),
    Conclusion(
        "section 5, figure 2",
        "both curves [anchors of one TNNR, and several ANNs] reduce the RMSE as we increase the "
        "ensemble size",
        ensembles.both_curves_fall,
    ),
    Conclusion(
        "section 5, figure 2",
        "TNNR ensembles and ANN ensembles are not equivalent, they neither have a uniform slope "
        "nor do they converge to similar RMSEs",
        ensembles.anchors_differ_from_networks,
    ),
    Conclusion(
        "section 5, figure 2",
        "Since retraining increases the ensemble diversity the red line is consistently below the "
        "blue line",
        ensembles.retrained_anchors_are_better,
        "The red line is of twins trained anew, with one anchor each; the blue one of one twin.",
    ),
    Conclusion(
        "section 5, figure 2",
        "the performance of these independently trained TNNRs increases faster with the number of "
        "anchors",
        ensembles.retrained_anchors_fall_faster,
    ),
    Conclusion(
        "section 5, figure 2",
        "[An ensemble of TNNR models with all anchors]: On seven out of nine data sets this yields "
        "clearly the best performance",
        ensembles.ensembles_of_twins_are_best,
        "Clearly better is by more than two standard errors. In the printed tables the gain "
        "exceeds 3 % on five of the seven sets.",
    ),
    Conclusion(
        "sections 5 and 13, figure 2",
        "an ensemble of single anchor TNNs converges towards an ensemble of full anchor TNNs at "
        "around 32 ensemble members. Increasing the number of anchors would not yield any "
        "additional gain",
        ensembles.single_anchors_meet_all_anchors,
    ),
    Conclusion(
        "sections 5 and 13, tables 1 and 2",
        "The combined anchor+direct ensemling containing multiple TNNs causes a much larger "
        "improvement than the ensembling of traditional ANNs",
        ensembles.combined_gain_exceeds_networks,
        "In the printed tables twins gain more on eight sets, all but WN.",
    ),
    Conclusion(
        "table 2",
        "[All gains of] Ensemble of 32 TNNR [over] All Anchor TNNR [are positive]",
        ensembles.several_twins_beat_one,
    ),
    Conclusion(
        "section 10, table 1",
        "Ensembles of neural networks tend to be more accurate than single neural networks",
        ensembles.several_networks_beat_one,
    ),
    Conclusion(
        "sections 6 and 13, figure 3",
        "in all data sets, except two, increasing the training set multiplier increases the "
        "performance of TNNR",
        ensembles.partners_help_except_on_two,
        "The two are BC and WN. One partner of each point is compared with all pairs.",
    ),
    Conclusion(
        "section 6, figure 3",
        "a training set multiplier of ≈ 8-16 seems already to be enough to reach the accuracy of "
        "standard TNNR",
        ensembles.few_partners_suffice,
        "The author's code counts pairs among partners, too: see the deviations.",
    ),
    Conclusion(
        "section 13, figure 3",
        "on two data sets (BC,WN) TNNR had the lowest RMSE if only one pairing per training data "
        "point was allowed",
        ensembles.one_partner_is_best_on_two,
        "As published, multipliers of 1 and 2 train alike, and are one point.",
    ),
    Conclusion(
        "sections 6, 8, 9 and 13, figures 2, 3 and 5",
        "This coincides with other algorithms beating TNNR",
        ensembles.failures_coincide,
    ),
    Conclusion(
        "section 6",
        "A data scientist using TNNR might do a training set multiplier check, if he finds a "
        "decreasing accuracy while increasing the multiplier, he can reject TNNR as optimal "
        "regression algorithm",
        ensembles.check_rejects_rightly,
        "On tables outside the paper: `benchmarks/results/multiplier.md`.",
    ),
    Conclusion(
        "section 7, figure 4",
        "When only using the very nearest neighbor as an anchor … for 7 out of 9 data sets both "
        "training versions underperform traditional TNNR, while training on all possible pairs "
        "performs better than just training on neighboring training data points",
        neighbors.one_neighbor_is_worse,
    ),
    Conclusion(
        "section 7, figure 4",
        "On all data sets both versions of nearest neighbor TNNR converge to standard TNNR in the "
        "limit of increasing the number of neighbors to the training set size",
        neighbors.neighbors_converge,
        "The limit itself holds by definition; judged is the approach to it. The largest number of "
        "nearest pairs that was run is 128, which is most of the training rows of WSB and few of "
        "those of RCL.",
    ),
    Conclusion(
        "section 7, figure 4",
        "In 7 out of 9 data sets there is a sweet spot where nearest neighbor TNNR with nearest "
        "neighbor training outperforms at around 16 to 64 neighbors",
        neighbors.sweet_spot,
        "In part: better with one of 16, 32 and 64 neighbors, even where another number is best.",
    ),
    Conclusion(
        "section 7, table 3",
        "in 3 out of those data sets nearest neighbor training outperforms by a very large margin "
        "culminating in reducing the RMSE by ≈ 60% on the TF data set",
        neighbors.large_margins,
    ),
    Conclusion(
        "section 13",
        "nearest-neighbor predictions tend to yield the most accurate results",
        neighbors.nearest_anchors_help,
    ),
    Conclusion(
        "section 13, figure 4",
        "Restricting to nearest-neighbor training tends to yield slightly better results",
        neighbors.nearest_pairs_help,
    ),
    Conclusion(
        "section 13, table 3",
        "Both versions outperform standard TNNR especially on low noise data sets",
        neighbors.both_beat_standard,
        "In the printed table, too, nearest pairs are worse than standard TNNR on BH and WSB.",
    ),
    Conclusion(
        "section 8, figure 5",
        "NNTNNR beats k-NN regression by an enormous margin on 7 out of 9 data sets. However, "
        "there are two data sets, namely BC, WN where k-NN is the winner",
        neighbors.neighbors_beat_knn,
    ),
    Conclusion(
        "section 8, figure 5",
        "the number of optimal TNNR anchors is much larger than the optimal number of neighbors in "
        "k-NN",
        neighbors.more_anchors_than_knn,
    ),
    Conclusion(
        "sections 8 and 13, figure 5",
        "NNTNNR is not just a minor improvement to k-NN regression since it has a very different "
        "performance profile when it comes to varying the number of anchors, or nearest neighbors",
        neighbors.knn_profile_differs,
    ),
    Conclusion(
        "section 9, figures 2 and 5",
        "TNNR has a distinct performance profile that beats ANNs and k-NN on the same 7 of 9 data "
        "sets and underperforms both on the remaining two data sets",
        ensembles.same_sets_beat_networks_and_neighbors,
        "As many twins as networks (figure 2), and one twin against k-NN (figure 5).",
    ),
    Conclusion(
        "section 9, figures 2 and 5",
        "the reformulation to a dual problem itself tends to have a positive effect on accuracy on "
        "most data sets",
        ensembles.reformulation_helps,
    ),
    Conclusion(
        "section 13",
        "twinned regression methods perform best on continuous data sets where the label can be "
        "approximated through a deterministic function",
        ensembles.deterministic_sets_gain_most,
        "In the printed tables, two of the three formulas are among the first three gains.",
    ),
    Conclusion(
        "section 10, figure 6",
        "storing them [ensembles of networks] requires linearly more memory capacity per each "
        "ensemble member",
        costs.networks_need_linear_storage,
    ),
    Conclusion(
        "sections 10 and 13, figure 6",
        "in all cases TNNR parameters plus anchors need far less storage capacity to achieve a "
        "similar ensemble size as ANNs",
        costs.twins_need_less_storage,
    ),
    Conclusion(
        "section 10",
        "the qualitative trend remains the same as long as the feature size is smaller than the "
        "number of parameters of the model",
        costs.storage_trend_is_general,
    ),
    Conclusion(
        "section 11, table 5",
        "Twinned random forests perform equally well, or slightly worse, compared to traditional "
        "random forests on three data sets (BC,EE,WN). It moderately outperforms on four data sets "
        "(BH,CS,RCL,YH) and it massively outperforms by cutting the RMSE by more than 35% on two "
        "data sets (TF,WSB)",
        forests.twinned_forests,
    ),
    Conclusion(
        "section 11, figure 7",
        "the optimal choice of Λ≈1 leads to a reduction of RMSE on six out of nine data sets",
        forests.loops_help,
        "The text has six sets, the caption of figure 7 almost all, and table 4 prints a gain on "
        "all nine.",
    ),
    Conclusion(
        "table 4",
        "[The improvement of] Semi-Supervised RF [is positive on all nine data sets]",
        forests.loops_help_everywhere,
    ),
    Conclusion(
        "section 13, figure 7",
        "This method yielded a clearly visible improvement over their supervised counterparts",
        forests.loops_help_clearly,
    ),
    Conclusion(
        "caption of figure 7",
        "Tuning Λ≈1 reduces the RMSE on almost all data sets compared to purely supervised "
        "learning",
        forests.weight_near_one_is_best,
    ),
    Conclusion(
        "sections 11 and 13, table 4",
        "the magnitude of the reduction of the RMSE is relatively small and almost always less "
        "than 1%",
        forests.loop_gains_are_small,
    ),
    Conclusion(
        "section 2",
        "loops containing unlabelled data points can be supplied while training, hence turning the "
        "method [TNNR] into a semi-supervised regression algorithm",
        semi_supervised.loops_help_twins,
        "A result of an earlier paper, without values here; checked is whether the error falls.",
    ),
    Conclusion(
        "sections 11 and 13",
        "this improvement [of forests] is significantly less than semi-supervised TNNR",
        semi_supervised.twins_gain_more,
        "The paper compares with values of an earlier one, which it does not print; here with our "
        "own networks, other rows and shares of labelled rows than those of the forests.",
    ),
    Conclusion(
        "sections 11 and 13",
        "and slightly less than co-training with neural networks",
        semi_supervised.co_training_gains_more,
        "Gains are over plain networks on the labelled rows alone. “Slightly” is less than the "
        "gain of semi-supervised TNNR.",
    ),
    Conclusion(
        "section 12",
        "[Weighting anchors by ensemble standard deviation or loop consistency]: While we observed "
        "some benefit, we could not consistently show that this process improved the accuracy in a "
        "statistically significant manner",
        costs.uncertainty_weights_do_not_help,
        "Consistent would be a gain of more than two standard errors on seven sets or more.",
    ),
    Conclusion(
        "section 12",
        "We believe that other uncertainty metrics … might be better suited as for example in "
        "Gaussian processes",
        costs.process_weights_help,
        "A conjecture. Both forests and networks must gain.",
    ),
    Conclusion(
        "section 12",
        "many times this process [iterated relabelling] would either not converge for Λ>1/3,",
        forests.iteration_diverges,
        "One value of Λ above 1/3, forests of 20 trees and five rounds were run.",
    ),
    Conclusion(
        "section 12",
        "or eventually converge to sub-optimal solutions, worse than the initial supervised "
        "version",
        forests.iteration_is_not_better,
    ),
    Conclusion(
        "section 12, figure 8",
        "[With nearest-neighbor pairs] there is a tendency for a reduced computational cost on "
        "most data sets. However, the training time scaling is too minor and inconsistent to use "
        "it as a sole justification",
        costs.neighbors_train_faster,
        "With few neighbors and with many. That it is no sole justification holds in each variant.",
    ),
    Conclusion(
        "appendix B",
        "an ensemble consisting of weakly correlated ensemble members reduce the MSE",
        costs.ensembles_reduce_variance,
        "The appendix derives it for two members and does not measure it. Here new training sets "
        "are drawn, which needs a formula: three sets. The formula is an identity.",
    ),
    Conclusion(
        "appendix C",
        "it is enough to set the number of epochs large enough such that the early stopping is "
        "always triggered",
        costs.training_stops_early,
        "The text has at most 2000 epochs for ANNs and 10000 for TNNR, the code the reverse.",
    ),
)


def evaluate(records: Records) -> dict[Conclusion, dict[str, Outcome]]:
    """Return the outcome of each conclusion in each variant."""

    @cache
    def read(variant: str, study: str) -> list[Record]:
        if (variant, study) in SAME_RECORDS:
            variant = SAME_RECORDS[variant, study]
        if variant not in STUDIES[study].variants:
            return []
        return current_records(records, study, variant)

    measured = {
        variant: Measured(
            variant,
            partial(read, variant),
            not_studied=frozenset(
                study
                for study in STUDIES
                if variant not in STUDIES[study].variants and (variant, study) not in SAME_RECORDS
            ),
        )
        for variant in VARIANTS
    }
    return {
        conclusion: {
            variant: conclusion.evaluate(replace(own, studies=set()))
            for variant, own in measured.items()
        }
        for conclusion in CONCLUSIONS
    }
