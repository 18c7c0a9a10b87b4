"""The pages of the reproduction: every number is computed from the committed records."""

import csv
import re
from statistics import fmean

import numpy as np
import pytest

from benchmarks.frame import RESULTS
from paper.conclusions import CONCLUSIONS, others
from paper.experiments import STUDIES, current_records
from paper.page import DOCS, PLACEHOLDER, STATEMENTS, TEMPLATES, page_values, render
from paper.records import Records
from paper.studies import list_trials
from twinned.datasets import KEYS, PAPER_SEEDS

PAGES = sorted(path.name for path in TEMPLATES.glob("*.md"))
# Numbers of items of the paper and of names, which are no results.
NAMES = (
    r"(?:(?:[Ff]igures?|[Tt]ables?|[Ss]ections?|Appendix|and|to) \d+|\bT\d\b|H200|Λ = 0|"
    r"arXiv:[\d.]+)"
)


@pytest.fixture(scope="module")
def values(outcomes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("paper.page.evaluate", lambda records: outcomes)  # of the same records
        return page_values(Records(DOCS.parent / "paper" / "results"))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_its_template_with_the_records(page, values):
    """Run `python -m paper page` where this fails."""
    rendered = render((TEMPLATES / page).read_text("utf-8"), values)
    assert (DOCS / page).read_text("utf-8") == rendered


def test_every_value_is_used(values):
    used = {name for page in PAGES for name in PLACEHOLDER.findall((TEMPLATES / page).read_text())}
    assert used == set(values)


# the paper map has numbers of the paper, and no results
@pytest.mark.parametrize("page", [page for page in PAGES if page != "paper-map.md"])
def test_no_number_is_typed_in_a_template(page):
    text = (TEMPLATES / page).read_text("utf-8")
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for pattern in (PLACEHOLDER.pattern, r"`[^`\n]*`", r"\]\([^)]*\)", NAMES):
        text = re.sub(pattern, "", text)
    assert not [line for line in text.splitlines() if re.search(r"\d", line)]


def test_the_correlation_of_the_baselines_of_table_4_by_a_slow_version(values):
    ours, printed = {}, {}
    records = Records(DOCS.parent / "paper" / "results")
    for record in current_records(records, "semi-supervised-forests", "as_published"):
        if "0" in record["result"]["loops"]:
            own = ours.setdefault(record["config"]["dataset"], [])
            own.append((record["result"]["loops"]["0"], record["result"]["supervised"]))
    with (DOCS.parent / "paper" / "published.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            printed[row["table"], row["dataset"], row["method"]] = float(row["rmse"])
    pairs = []
    for key, own in ours.items():
        retrained, supervised = np.mean(own, axis=0)
        theirs = printed["T4", key, "twinned_rf_supervised"] / printed["T5", key, "twinned_rf"]
        pairs.append((retrained / supervised, theirs))
    expected = np.corrcoef(np.transpose(pairs))[0, 1]
    assert float(values["T4_correlation"]) == pytest.approx(expected, abs=0.006)


def test_counts_of_cells_by_a_slow_version(values):
    text = (DOCS / "reproduction-tables.md").read_text("utf-8")
    near = 0
    for table in ("T1", "T2", "T3"):
        section = text.split(f"### {table}, as published")[1].split("###")[0]
        for ours, theirs, error in re.findall(
            r"\| ([\d.e-]+) ± [\d.e-]+; ([\d.e-]+) ± ([\d.e-]+); [\d.]+", section
        ):
            apart = abs(float(ours) - float(theirs))
            near += apart <= 0.03 * float(theirs) or apart <= 2 * float(error)
    assert abs(near - int(values["cells_near"])) <= 1  # the table is rounded


def test_every_committed_record_is_of_a_current_trial():
    """A changed setting leaves records behind that no table reads."""
    committed = Records(DOCS.parent / "paper" / "results")
    for study in STUDIES.values():
        for variant in study.variants:
            current = {t.identity for t in list_trials(study, variant, KEYS, PAPER_SEEDS)}
            finished = committed.finished(study.key, variant)
            assert finished == current, (study.key, variant)


def test_every_picture_of_the_pages_exists():
    found = set()
    for page in PAGES:
        found |= set(re.findall(r"\]\((pictures/[^)]+)\)", (DOCS / page).read_text("utf-8")))
    assert len(found) >= 21
    for picture in found:
        assert (DOCS / picture).is_file(), picture


def test_every_drawn_figure_is_shown():
    text = (DOCS / "reproduction-figures.md").read_text("utf-8")
    for picture in (DOCS / "pictures").glob("paper-*.png"):
        assert f"pictures/{picture.name}" in text


def test_factors_of_candidates_by_a_slow_version(values):
    rows = csv.DictReader((RESULTS / "as_published_candidates.csv").open(encoding="utf-8"))
    own = {(r["candidate"], r["dataset"]): r for r in rows}
    lines = [line.strip("| ").split(" | ") for line in values["candidate_table"].splitlines()]
    table = {line[0]: line[1:] for line in lines}
    changed, unchanged = own["loss × 1/8", "TF"], own["none", "TF"]
    kinds = ("rmse_1_anchor", "rmse_all_anchors", "rmse_nearest")
    expected = ", ".join(f"{float(changed[k]) / float(unchanged[k]):.2f}" for k in kinds)
    assert table["loss × 1/8"][0] == expected
    assert len(table) == int(values["n_candidates"]) + 3  # header, its line, what is needed


def test_twins_and_boosting_by_a_slow_version(outcomes):
    """Our training; the other variants have the errors of tables 2 and 3."""
    errors = {}
    for row in csv.DictReader((RESULTS / "accuracy_neural.csv").open(encoding="utf-8")):
        errors.setdefault((row["model"], row["dataset"]), []).append(float(row["rmse"]))
    boosting = {key: fmean(errors["catboost", key]) for key in KEYS}
    below = [key for key in KEYS if fmean(errors["twin:balanced", key]) < boosting[key]]
    (own,) = (o for c, o in outcomes.items() if c.check is others.twins_are_state_of_the_art)
    listed = f"lower on {len(below)} of 9 sets ({', '.join(below[:-1])} and {below[-1]})"
    assert listed in own["modern"].details


def test_every_statement_of_the_text_has_a_row():
    """Each has a conclusion or an item of the map, and each conclusion belongs to a statement."""
    checks = {f"{c.check.__module__.split('.')[-1]}.{c.check.__name__}" for c in CONCLUSIONS}
    template = (TEMPLATES / "paper-map.md").read_text("utf-8")
    cells = [line.strip("| ").split(" | ") for line in template.splitlines() if "|" in line]
    items = {cell for line in cells for cell in line[:2]}
    with STATEMENTS.open(encoding="utf-8") as file:
        statements = list(csv.DictReader(file))
    for row in statements:
        assert row["row"] in checks | items, row
    assert checks <= {row["row"] for row in statements}
    sections = {f"section {i}" for i in range(1, 14)} | {f"appendix {c}" for c in "ABCD"}
    assert sections <= {row["where"] for row in statements}


def test_every_row_of_the_map_has_a_function_a_test_and_a_result():
    text = (DOCS / "paper-map.md").read_text("utf-8").split("## Statements")[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    rows = [row for row in rows if row[0] != "item"]
    assert len(rows) >= 37
    for row in rows:
        assert len(row) == 5, row
        assert all(row), row
        assert "tests/" in row[3]


def test_the_summary_names_what_does_not_hold_and_some_that_holds(outcomes):
    statuses = {
        c.check.__name__: [str(o.status) for o in own.values()] for c, own in outcomes.items()
    }
    failed = {name for name, (published, *_) in statuses.items() if published == "does not hold"}
    assert failed == {"loops_help_clearly", "networks_scale_well", "neighbors_train_faster"}
    for name in ("anchors_are_an_ensemble", "several_twins_beat_one", "twins_need_less_storage"):
        assert set(statuses[name]) == {"holds"}


def test_every_check_of_a_conclusion_has_a_test_and_a_source():
    text = (DOCS / "reproduction-conclusions.md").read_text("utf-8")
    rows = re.findall(r"^Check: `[\w.]+`; tests: (.*); reads: (.*)\.$", text, re.MULTILINE)
    assert len(rows) == len(CONCLUSIONS)
    for tests, read in rows:
        assert tests.startswith("`test_")
        assert read != "none"
