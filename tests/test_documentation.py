"""The documentation: code blocks run, links and names exist, figures match the results."""

import inspect
import math
import re
import shlex
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kstwo
from threadpoolctl import threadpool_limits
from typer.testing import CliRunner

import twinned
from paper.records import Records
from twinned.app.cli import app
from twinned.datasets import KEYS, STANDARD_KEYS, info

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINKED = [
    *PAGES,
    *(ROOT / f"{name}.md" for name in ("CONTRIBUTING", "CHANGELOG", "RELEASING", "SECURITY")),
]
# Appended to `twinned fit`; the last of two equal options is used.
QUICK = ("--model", "ridge", "--pairs", "2")
# In code of pages, as written and as tested: within so short a time, a single member is fitted.
SHORT_BUDGET = "budget=60", "budget=0.1"


def name(page):
    return str(page.relative_to(ROOT))


def blocks(page, language):
    """(line, text) of each fenced block of a language."""
    text = page.read_text(encoding="utf-8")
    fence = re.compile(rf"^```{language}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, m.start(1)), m[1]) for m in fence.finditer(text)]


def prose(page):
    """The text of a page without its code."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


def console_lines(page):
    return [
        line.removeprefix("$ ")
        for _, block in blocks(page, "console")
        for line in block.splitlines()
        if line.startswith("$ ")
    ]


def run_python(page):
    namespace = {"__name__": "documentation"}
    for line, block in blocks(page, "python"):
        block = block.replace(*SHORT_BUDGET)
        # preceded by blank lines, so that a traceback shows the line of the page
        exec(compile("\n" * line + block, name(page), "exec"), namespace)


@pytest.fixture
def empty_folder(tmp_path, monkeypatch):
    """The current folder is empty, and there are no data files and no cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TWINNED_DATA", raising=False)
    monkeypatch.setenv("TWINNED_CACHE", str(tmp_path / "cache"))
    with threadpool_limits(1):
        yield tmp_path


# --- code -------------------------------------------------------------------------------------


# The code of these pages fits several models with the shipped defaults.
LONG_PAGES = {
    "batches.md",
    "getting-started.md",
    "inverse.md",
    "trees-or-networks.md",
    "neural.md",
    "prediction-intervals.md",
    "scaling-out.md",
    "advice.md",
    "auto.md",
    "displays.md",
    "semi-supervised.md",
}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow if page.name in LONG_PAGES else (), id=name(page))
        for page in PAGES
        if blocks(page, "python")
        and page.name != "with-other-libraries.md"  # tests/test_clients.py
    ],
)
def test_python_blocks_run(page, empty_folder):
    if page.name == "molecules.md":
        pytest.importorskip("rdkit", reason="RDKit is not installed: make test-chem")
    run_python(page)


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "command-line.md"], ids=name)
def test_console_lines_run(page, empty_folder, monkeypatch):
    monkeypatch.setattr("twinned.datasets.fetch", lambda key: None)  # no network
    run_python(ROOT / "docs" / "command-line.md")  # houses.csv and new.csv
    lines = [line for line in console_lines(page) if line.startswith("twinned ")]
    commands = [shlex.split(line, comments=True) for line in lines]
    assert len(commands) >= 3
    fitted = False
    for _, *arguments in commands:
        fits = arguments[0] in ("fit", "advise") and "--help" not in arguments
        quick = QUICK if fits else ()
        if quick and "--model" not in arguments:
            quick = ("--budget", "0.1s")  # a single member is fitted
        elif quick and fitted:
            quick = (*quick, "--no-check")  # check only once
        fitted |= bool(quick)
        result = CliRunner().invoke(app, [*arguments, *quick], env={"COLUMNS": "200"})
        assert result.exit_code == 0, f"twinned {shlex.join(arguments)}\n{result.output}"


@pytest.mark.parametrize("page", LINKED, ids=name)
def test_make_targets_exist(page):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = [line.split()[-1] for line in console_lines(page) if line.startswith("make")]
    named += re.findall(r"`make ([a-z-]+)", page.read_text(encoding="utf-8"))
    assert set(named) <= set(targets)


def test_failing_block_is_reported_with_its_line(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n")
    monkeypatch.setattr(f"{__name__}.name", lambda page: "page.md")
    with pytest.raises(AssertionError) as error:
        run_python(page)
    assert error.traceback[-1].lineno + 1 == 8


# --- links and names --------------------------------------------------------------------------


def heading_id(heading):
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading.lower())).strip("-")


@pytest.mark.parametrize("page", LINKED, ids=name)
def test_relative_links_exist(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if target.startswith(("https://", "http://")):
            continue
        path, _, heading = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), target
        if heading:
            headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in map(heading_id, headings), target


@pytest.mark.parametrize("public", twinned.__all__)
def test_public_names_are_described(public):
    assert f"`twinned.{public}`" in (ROOT / "docs" / "api.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("public", [name for name in twinned.__all__ if name[0] != "_"])
def test_docstrings_have_the_parameters_of_the_signature(public):
    described = getattr(twinned, public)
    if inspect.ismodule(described):
        return
    section = re.search(
        r"Parameters\n-+\n(.*?)(\n\n\w+\n-+\n|$(?!\n))", inspect.getdoc(described), re.DOTALL
    )
    lines = re.findall(r"^(\w+(?:, \w+)*) : ", section[1] if section else "", re.MULTILINE)
    names = [name for line in lines for name in line.split(", ")]
    assert sorted(names) == sorted(inspect.signature(described).parameters)


def resolve(dotted):
    """Return the object of a dotted name; raise ImportError or AttributeError if there is none."""
    parts = dotted.split(".")
    found = import_module(parts[0])
    for end, part in enumerate(parts[1:], 2):
        if not hasattr(found, part):
            # a function of a package may have the name of a module in it
            found = sys.modules.get(".".join(parts[: end - 1]), found)
        if not hasattr(found, part):
            import_module(".".join(parts[:end]))
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("pages", ["api.md", "api/*.md", "paper-map.md"])
def test_dotted_names_exist(pages):
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob(pages))
    names = re.findall(r"(?:`|^::: )((?:twinned|paper|benchmarks)\.[\w.]+)", text, re.MULTILINE)
    assert len(names) > 20
    for dotted in names:
        resolve(dotted)


def test_tests_and_files_of_the_paper_map_exist():
    text = (ROOT / "docs" / "paper-map.md").read_text(encoding="utf-8")
    tests = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert len(tests) > 15
    for path, test in tests:
        assert f"def {test}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path}::{test}"
    for path in re.findall(r"`(benchmarks/[\w/.]+)`", text):
        assert (ROOT / path).is_file(), path


# --- figures ----------------------------------------------------------------------------------


def cells(text):
    """Return the rows of the Markdown tables in a text."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip("` ") for cell in row] for row in rows]


def test_modules_are_the_layers_of_the_import_contract():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (layers,) = (
        contract["layers"]
        for contract in project["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers" and contract["containers"] == ["twinned"]
    )
    modules = cells((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))[2:]
    names = [name for layer in layers for name in layer.split(" | ")]
    assert [re.sub(r"/$|\.py$", "", module) for module, _ in modules] == names


def test_modules_are_the_files_of_the_package():
    modules = cells((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))[2:]
    files = [
        path.name + "/" * path.is_dir()
        for path in (ROOT / "src" / "twinned").iterdir()
        if path.name not in ("__init__.py", "__pycache__", "py.typed")
    ]
    assert sorted(module for module, _ in modules) == sorted(files)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_results_that_are_cited_exist(page):
    cited = re.findall(r"`(benchmarks/results/[^`]+)`", page.read_text(encoding="utf-8"))
    # converted to records
    names = ("semi_supervised_neural", "table4", "table4_choice", "table5_tuned")
    former = {f"benchmarks/results/{name}.csv" for name in names}
    assert [name for name in cited if not (ROOT / name).exists() and name not in former] == []


def test_table_of_data_sets_matches_the_registry():
    text = (ROOT / "docs" / "data-sets.md").read_text(encoding="utf-8")
    paper, standard = (cells(part)[2:] for part in text.split("## UCI standard splits"))
    records = [info(key) for key in KEYS]
    assert [[key.split()[0], *rest] for key, *rest in paper] == [
        [r.key, r.name, str(r.rows), str(r.features), r.licence] for r in records
    ]
    records = [info(key) for key in STANDARD_KEYS]
    assert [row[:3] for row in standard] == [[r.key, str(r.rows), str(r.features)] for r in records]


def test_table_5_matches_the_results():
    text = (ROOT / "docs/twins.md").read_text(encoding="utf-8")
    table = text.split("<!-- table5:begin -->")[1].split("<!-- table5:end -->")[0]
    records = Records(ROOT / "paper/results").read("forests", "modern")
    runs = pd.DataFrame([{"dataset": r["config"]["dataset"], **r["result"]} for r in records])
    mean = runs.groupby("dataset")[["rf", "twinned_rf"]].mean()
    rows = {re.search(r"\((\w+)\)", row[0])[1]: row[1:4] for row in cells(table)[2:]}
    assert sorted(rows) == sorted(KEYS)
    for key, (plain, twin, ratio) in rows.items():
        assert plain.split()[0] == f"{mean.loc[key, 'rf']:.4f}"
        assert twin.split()[0] == f"{mean.loc[key, 'twinned_rf']:.4f}"
        assert ratio == f"{mean.loc[key, 'twinned_rf'] / mean.loc[key, 'rf']:.2f}"


def test_every_page_is_in_the_navigation():
    """Parsed line by line: the navigation has two levels and lists each page once."""
    navigation = (
        (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1].split("\n\n")[0]
    )
    listed, inside = [], False
    for line in navigation.splitlines():
        match = re.fullmatch(r"(  |      )- [^:]+:( (\S+\.md))?", line)
        assert match, line
        deep, page = len(match[1]) > 2, match[3]
        assert inside or not deep, f"{line!r} is indented below a page"
        inside = deep or page is None
        listed += [page] if page else []
    pages = (path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))
    assert sorted(listed) == sorted(pages)


def test_neural_figures_match_the_results():
    text = (ROOT / "docs/neural.md").read_text(encoding="utf-8")
    runs = pd.read_csv(ROOT / "benchmarks/results/accuracy_neural.csv")
    mean = runs.groupby(["dataset", "model"])["rmse"].mean()
    models = [f"twin:{effort}" for effort in ("thorough", "balanced", "fast")]
    models += ["plain:balanced", "catboost"]
    rows = {row[0]: row[2:] for row in cells(text) if row[0] in KEYS and row[1] not in KEYS}
    assert sorted(rows) == sorted(KEYS)
    for key, values in rows.items():
        ratio = mean[key, "twin:balanced"] / mean[key, "plain:balanced"]
        assert values == [*(f"{mean[key, model]:.4g}" for model in models), f"{ratio:.3f}"]


def test_figures_of_trees_and_networks_match_the_results():
    files = ("accuracy_trees", "accuracy_neural")
    runs = pd.concat([pd.read_csv(ROOT / f"benchmarks/results/{name}.csv") for name in files])
    mean = runs.groupby(["dataset", "model"])["rmse"].mean()
    models = ("twin", "twin:fast", "twin:balanced", "catboost")
    rows = cells((ROOT / "docs/trees-or-networks.md").read_text(encoding="utf-8"))
    shown = {row[0]: [cell.strip("*") for cell in row[2:]] for row in rows if row[0] in KEYS}
    for key in KEYS:
        n_decimals = [len(cell.partition(".")[2]) for cell in shown[key]]
        pairs = zip(models, n_decimals, strict=True)
        assert shown[key] == [f"{mean[key, model]:.{n}f}" for model, n in pairs]


def test_figures_of_coverage_and_width_match_the_results():
    runs = pd.read_csv(ROOT / "benchmarks/results/uncertainty.csv")
    table = runs.pivot_table(index=["model", "dataset", "seed"], columns="what", values="value")
    rows = cells((ROOT / "docs/prediction-intervals.md").read_text(encoding="utf-8"))
    names = {"tree": "TwinRegressor()", "neural": 'TwinNeuralRegressor(effort="fast")'}
    for model, label in names.items():
        (shown,) = (row for row in rows if row[0].strip("`") == label and len(row) == 4)
        own = table.loc[model]
        covered = [100 * own[f"cross coverage {level}"] for level in (0.8, 0.9, 0.95)]
        means = [column.groupby("dataset").mean().mean() for column in covered]
        assert shown[1] == str(own.groupby("dataset").size().max())
        assert shown[2] == ", ".join(f"{mean:.1f}" for mean in means) + " %"


def test_weights_of_anchors_match_the_results():
    kinds = {"default": 1, "forest": 2, "neural": 3}  # columns of the page
    names = {
        "distance": "inverse distance",
        "loops": "loop inconsistency (paper)",
        "members": "spread of the members (paper)",
        "process": "variance of the difference from a Gaussian process (suggested in the paper)",
        "local": "out-of-fold errors of near anchors: the default of `TwinRegressor()",
    }
    page = (ROOT / "docs/pairs-and-anchors.md").read_text(encoding="utf-8")
    rows = [[cell.strip(" `") for cell in line.split("|")[1:]] for line in page.splitlines()]
    shown = {row[0]: row for row in rows if row and row[0] in names.values()}
    assert set(shown) == set(names.values())
    text = (ROOT / "benchmarks/results/anchor_weights.md").read_text(encoding="utf-8")
    for section in text.split("\n## ")[1:]:
        header, *rows = cells(section)
        means = dict(zip(header, rows[-1][1:], strict=True))
        column = kinds[section.split(",")[0]]
        for name, mean in means.items():
            rounded = float(shown[names[name]][column])
            assert abs(rounded - float(mean.strip("*"))) < 0.0051


def result_rows(name, section=1):
    """Return the rows of one section of a file of results, by their first cell."""
    text = (ROOT / f"benchmarks/results/{name}.md").read_text(encoding="utf-8")
    return {row[0]: row[1:] for row in cells(text.split("\n## ")[section])}


def test_figures_of_detection_limits_match_the_results():
    page = cells((ROOT / "docs/detection-limits.md").read_text(encoding="utf-8"))
    shown = [[cell.replace("**", "") for cell in row[1:]] for row in page if " % " in row[0]]
    found = result_rows("censored_labels")
    columns = [found[key][: len(shown)] for key in (*KEYS, "mean")]
    assert shown == [list(row) for row in zip(*columns, strict=True)]


def test_figures_of_active_learning_match_the_results():
    page = cells((ROOT / "docs/active-learning.md").read_text(encoding="utf-8"))
    shown = [row[1:] for row in page if len(row) == 3 and " of 9" in row[1]]
    found = result_rows("active_learning", 0)
    assert [row[0] for row in shown] == found["below random"]
    for (_, ratio), mean in zip(shown, found["geometric mean"], strict=True):
        assert abs(float(ratio) - float(mean.strip("*"))) < 0.0051


def test_figures_of_the_next_experiment_match_the_results():
    page = cells((ROOT / "docs/next-experiment.md").read_text(encoding="utf-8"))
    shown = {row[0]: [cell.replace(" ", "") for cell in row[1:]] for row in page}
    found = result_rows("next_experiment", 0)
    assert shown["five smooth functions"] == found["mean regret, functions"]
    assert shown["six tables"] == found["mean regret, tables"]
    assert shown["best candidate found"] == found["best candidate found"]


def test_figures_of_applicability_match_the_results():
    text = (ROOT / "benchmarks/results/applicability.md").read_text(encoding="utf-8")
    pattern = r"inside (\d+)% \((\d+)%\), edge (\d+)% \((\d+)%\), outside (\d+)% \((\d+)%\)\."
    found = re.findall(pattern, text)
    page = (ROOT / "docs/prediction-intervals.md").read_text(encoding="utf-8")
    for name, values in zip(("largest y", "largest feature", "both together"), found, strict=True):
        shown = " | ".join(f"{values[i]} % ({values[i + 1]} %)" for i in (0, 2, 4))
        assert f"| {name} | {shown} |" in page


def test_coverage_outside_matches_the_results():
    from benchmarks.intervals.outside import pit_distances

    runs = pd.read_csv(ROOT / "benchmarks/results/outside.csv")
    runs["rows"] = runs["rows"].str.split(",").str[0]
    runs["chosen"] = runs["dataset"].isin(["waves", "growth", "friedman"])
    columns = ["coverage_90", "width", "nll", "rmse", "median"]
    means = runs.groupby(["kind", "chosen", "dataset", "rows", "version"])[columns].mean()
    text = (ROOT / "docs/prediction-intervals.md").read_text(encoding="utf-8")
    beyond = means.loc["beyond"].groupby(["chosen", "rows", "version"])[columns].mean()
    for rows, name in (("inside", "inside"), *((d, f"up to {d}") for d in ("0.15", "0.5", "2"))):
        shown = []
        for chosen in (True, False):
            before, after = (beyond.loc[chosen, rows, version] for version in ("before", "after"))
            shown += [f"{100 * v['coverage_90']:.0f}, {v['width']:.2g}" for v in (before, after)]
        assert f"| {name} | {' | '.join(shown)} |" in text
    for dataset in means.loc["missing", False].index.unique("dataset"):
        shown = []
        for rows in ("complete", "one", "two"):
            before, after = (
                means.loc["missing", False, dataset, rows, version]
                for version in ("before", "after")
            )
            shown += [f"{100 * v['coverage_90']:.0f}" for v in (before, after)]
        ratio = after["rmse"] / after["median"]
        assert f"| {dataset} | {' | '.join(shown)} | {ratio:.2f} |" in text
    levels = ["coverage_80", "coverage_90", "coverage_95"]
    of_kind = runs[runs["kind"] == "unseen"]
    unseen = of_kind.groupby("dataset")[levels].mean()
    shown = [f"{100 * value:.1f}" for value in unseen.mean()]
    assert f"cover {shown[0]}, {shown[1]} and {shown[2]} % (`benchmarks/results/outside.md`" in text
    distances, numbers = (values.drop("all") for values in pit_distances(of_kind))
    share = f"at most 0.05 on {(distances <= 0.05).sum()} of {len(distances)} tables"
    uniform = f"on {kstwo.cdf(0.05, numbers.to_numpy()).sum():.1f} of them"
    assert share in text
    assert uniform in text
    assert kstwo.cdf(0.05, 453) < 0.8 < kstwo.cdf(0.05, 454)
    large = distances[numbers >= 454]
    assert len(large) == 6
    assert (large <= 0.05).all()
    together, n_rows = (values["all"] for values in pit_distances(of_kind))
    assert f"of all {n_rows:,} values together is {together:.3f}" in text
    optima = runs[runs["kind"] == "optimum"].groupby("version")["coverage_90"].mean()
    text = (ROOT / "docs/inverse.md").read_text(encoding="utf-8")
    assert f"{100 * optima['after']:.0f} % of the true values" in text
    assert f"{100 * optima['before']:.0f} % without" in text


def test_figures_of_blends_match_the_results():
    runs = pd.read_csv(ROOT / "benchmarks/results/accuracy_auto.csv")
    runs = runs[runs["effort"] == "thorough"]
    mean = runs.groupby(["dataset", "model"])["rmse"].mean()
    rows = cells((ROOT / "docs/auto.md").read_text(encoding="utf-8"))
    shown = {row[0]: (row[1], row[5]) for row in rows if row[0] in KEYS}
    models = ("blend", "blend without twins")
    assert shown == {key: tuple(f"{mean[key, model]:.4g}" for model in models) for key in KEYS}


def test_figures_of_blends_are_those_of_the_benchmarks():
    """The page of benchmarks is written from the results."""
    auto = (ROOT / "docs/auto.md").read_text(encoding="utf-8")
    benchmarks = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    compared = {row[0]: row for row in cells(benchmarks) if row[0] in KEYS}
    for row in (row for row in cells(auto) if row[0] in KEYS):
        _, _, _, thorough, ratio, catboost, _ = compared[row[0]]
        name = row[2].partition(", ")[2]
        assert (row[1], f"{row[3]}, {name}", row[4]) == (thorough, ratio, catboost)
    (ratio,) = re.findall(r'"thorough"`, the error is ([\d.]+) of the paper', benchmarks)
    assert f"The ratio to the paper's lowest error of a twin is {ratio} " in auto
    (coverage,) = re.findall(r'"thorough"`.* cover (.*) %\. All members', benchmarks)
    numbers = coverage.split(" / ")
    assert f"80, 90 and 95 % cover {', '.join(numbers[:2])} and {numbers[2]} %" in auto


def test_figures_of_published_training_match_the_results():
    shown = {row[0]: row[1:] for row in cells((ROOT / "docs/neural.md").read_text("utf-8"))}
    for name, table, column in (("TNNR, all anchors", "T2", 2), ("ANN", "T1", 1)):
        rows = cells((ROOT / f"paper/results/{table}-as_published.md").read_text("utf-8"))
        ratios = [row[column].split("; ")[2].split(" ")[0] for row in rows if row[0] in KEYS]
        assert shown[name] == ratios


def changes(share, column):
    """Return (change, standard error), in per cent, of the data sets of a table of study S."""
    text = (ROOT / "docs/reproduction-tables.md").read_text(encoding="utf-8")
    own = text.split("\n### S, our training\n")[1]
    header, _, *rows = cells(own.split(f"\n{share} % of the rows labelled:")[1])
    place = 1 + header.index(column)
    found = {row[0]: row[place].strip(")").split(" (") for row in rows[: len(KEYS)]}
    assert list(found) == list(KEYS)
    return {key: (100 * float(ratio) - 100, 100 * float(se)) for key, (ratio, se) in found.items()}


def mean_change(found, without=()):
    """Return the change of the geometric mean of errors, in per cent."""
    ratios = [1 + change / 100 for key, (change, _) in found.items() if key not in without]
    return 100 * math.prod(ratios) ** (1 / len(ratios)) - 100


def signed(change, n_decimals=0):
    return f"{change:+.{n_decimals}f} %".replace("-", "−")


def test_figures_of_semi_supervised_networks_match_the_tables_of_the_reproduction():
    page = (ROOT / "docs/semi-supervised.md").read_text(encoding="utf-8")
    page = " ".join(page.split())
    tenth, three, seven = (changes(share, "loops, chosen") for share in (10, 30, 70))
    for name, found in (("one", tenth), ("three", three), ("seven", seven)):
        means = mean_change(found), mean_change(found, without=["YH"])
        shown = " | ".join(signed(mean, 1) for mean in means)
        assert re.search(rf"\| {name} tenths? \| {shown} \|", page)
    assert sum(change < 0 for change, _ in tenth.values()) == 8
    signs = [round(change, 1) for change, _ in three.values()]
    assert (sum(sign < 0 for sign in signs), max(signs)) == (6, 0)
    clear = {key: change for key, (change, se) in seven.items() if abs(change) > 2 * se}
    shown = (
        f"lower on the Wheatstone bridge ({signed(clear['WSB'])}) and yacht hydrodynamics "
        f"({signed(clear['YH'])}), higher on bio concentration ({signed(clear['BC'])}) and wine "
        f"({signed(clear['WN'], 1)})"
    )
    assert len(clear) == 4
    assert shown in page
    yacht = [signed(found["YH"][0], 1) for found in (tenth, three)]
    assert f"({yacht[0]} with one tenth labelled, {yacht[1]} with three tenths)" in page
    means = [f"{mean_change(changes(share, 'co-training')):.0f}" for share in (10, 30, 70)]
    assert f"on average {means[0]}, {means[1]} and {means[2]} % *worse*" in page


def test_figures_of_semi_supervised_forests_match_the_results():
    page = " ".join((ROOT / "docs/semi-supervised.md").read_text(encoding="utf-8").split())
    rows = cells((ROOT / "paper/results/T4-modern.md").read_text(encoding="utf-8"))
    gains = [float(row[4].split(" %")[0].replace("−", "-")) for row in rows if row[0] in KEYS]
    change = f"{-np.mean(gains):.2f}".replace("-", "−")
    error = f"{np.std(gains, ddof=1) / 3:.2f}"
    assert f"error of {change} % over the nine data sets (standard error {error})" in page
    assert sum(gain > 0 for gain in gains) == 4
    assert "with an improvement on four of them" in page


# Pages of lists and tables.
WITHOUT_PICTURE = {
    "api.md",
    "architecture.md",
    "checks.md",
    "command-line.md",
    "export.md",
    "microcontrollers.md",
    "paper-map.md",
    "release-notes.md",
    "reproduction.md",  # its figures are on a page of their own
    "reproduction-conclusions.md",
    "reproduction-tables.md",
    "saving.md",
    "scaling-out.md",
    "with-other-libraries.md",
}


@pytest.mark.parametrize("page", PAGES[1:], ids=name)
def test_pages_have_a_picture(page):
    shown = re.findall(r"!\[[^\]]+\]\([\w/-]+\.(?:png|svg)\)", prose(page))
    assert bool(shown) == (page.name not in WITHOUT_PICTURE)


def test_drawn_pictures_are_shown():
    from benchmarks.pages.page_pictures import PICTURES

    texts = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for picture in PICTURES:
        assert (ROOT / f"docs/pictures/{picture}.svg").is_file()
        assert f"](pictures/{picture}.svg)" in texts


def test_page_of_benchmarks_matches_the_results():
    """Run `python -m benchmarks.pages.page` where this fails."""
    from benchmarks.pages.page import page_text

    assert (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8") == page_text()


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_figures_of_the_first_pages_match_the_results(page):
    """Run `python -m benchmarks.pages.front_page` where this fails."""
    from benchmarks.pages.front_page import MARKS, text

    (shown,) = MARKS.findall((ROOT / page).read_text(encoding="utf-8"))
    assert shown == text()


def test_table_of_libraries_is_complete():
    header, _, *features = cells((ROOT / "README.md").read_text(encoding="utf-8"))
    assert header[0] == "twinned"
    assert all(len(row) == 1 + len(header) and all(row) for row in features)


def test_gallery_links_pictures_to_runnable_code():
    text = (ROOT / "docs/gallery.md").read_text(encoding="utf-8")
    items = re.split(r"^-   ", text, flags=re.MULTILINE)[1:]
    assert len(items) >= 10
    for item in items:
        assert re.match(r"\[!\[[^\]]+\]\([\w/-]+\.(?:png|svg)\)\]\([\w/-]+\.md", item), item
        if module := re.search(r"`python -m ([\w.]+)", item):
            import_module(module[1])
        else:
            assert (ROOT / re.search(r"`(examples/[\w/]+\.py)`", item)[1]).is_file(), item


def test_factors_of_inverse_twins_are_those_of_the_benchmark():
    from benchmarks.inverse.inverse import PUBLISHED

    runs = pd.read_csv(ROOT / "benchmarks/results/inverse.csv")
    means = runs[runs["method"] == "inverse twin"].groupby("problem")["mse"].mean()
    factors = [PUBLISHED[problem][2] / mse for problem, mse in means.items()]
    text = f"below the published figure for data on all nine, by factors of {min(factors):.0f} to "
    text += f"{max(factors):.0f} in the mean of five draws"
    assert len(factors) == 9
    assert min(factors) > 1
    page = (ROOT / "docs/inverse.md").read_text(encoding="utf-8")
    assert text in " ".join(page.split())
    solved = runs[runs["method"] == "solve"].groupby("problem")["mse"].mean()
    above = [problem for problem, mse in solved.items() if mse > PUBLISHED[problem][2]]
    assert len(above) == 1
    assert f"on all but problem {above[0]}" in " ".join(page.split())
    below = [str(problem) for problem, mse in solved.items() if mse < PUBLISHED[problem][4]]
    listed = f"On problems {', '.join(below[:-1])} and {below[-1]} it is also below"
    assert listed in " ".join(page.split())


def test_figures_of_the_check_by_the_number_of_pairs_are_those_of_the_benchmark():
    results = (ROOT / "benchmarks/results/multiplier.md").read_text(encoding="utf-8")
    networks = results.partition("## Twins of networks")[2].partition("\n## ")[0]
    worse, n_tables = re.search(r"the twin is worse in (\d+) of (\d+) runs", networks).groups()
    right = re.search(r"\*direct\*: .* on the right side of 1 in (\d+) of", networks)[1]
    ratios = [float(ratio) for ratio in re.findall(r"\| 0 \| ([\d.]+) \(", networks)]
    page = " ".join((ROOT / "docs/advice.md").read_text(encoding="utf-8").split())
    assert f"on {n_tables} tables outside the paper" in page
    assert f"is on the right side on {right} of {n_tables} tables" in page
    assert (worse, "also on the eight where" in page) == ("8", True)
    assert len(ratios) == int(n_tables)
    assert max(ratios) < 1  # "on every table"


@pytest.mark.parametrize("name", ["batches", "new_batches", "real_batches"])
def test_results_of_batches_are_those_of_the_benchmark(name):
    """Run `python -m benchmarks.batches.<name> --only-table --page` where this fails."""
    committed = (ROOT / f"benchmarks/results/{name}.md").read_text(encoding="utf-8")
    page = (ROOT / "docs/batches.md").read_text(encoding="utf-8")
    assert committed.split("\n", 4)[4] in page


def test_citation_has_the_version():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {twinned.__version__}\n" in citation
    assert twinned.__version__ in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_figures_of_molecules_match_the_results():
    page = cells((ROOT / "docs/molecules.md").read_text("utf-8").split("\n## Accuracy")[1])
    assert page == cells((ROOT / "benchmarks/results/molecules.md").read_text("utf-8"))
