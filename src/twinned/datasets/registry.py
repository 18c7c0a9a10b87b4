"""Records of the nine data sets: source, file format, and differences from the paper."""

from dataclasses import dataclass, field

from twinned.datasets.formulas import RCL_COLUMNS, TF_COLUMNS, WSB_COLUMNS

REPOSITORY = "sjwetzel/Public-How-to-get-the-most-out-of-Twinned-Regression-Methods"
COMMIT = "1c19dc14973b2faedd54f88a183f59020d244f42"
# Pinned to a commit, so that the files cannot change.
BASE_URL = f"https://raw.githubusercontent.com/{REPOSITORY}/{COMMIT}/AnnEnsemble/data/"

# As stated by the publisher of the original (in parentheses); the author's copies add no terms.
_UCI_LICENCE = "CC BY 4.0 (UCI)"
_AUTHOR_LICENCE = "none found (author)"
_WHITE_SPACE = None


@dataclass(frozen=True)
class Reader:
    """Format of a data file.

    Parameters
    ----------
    separator : str or None
        Character between two values; None is any white space.
    header_lines : int
        Number of lines to skip at the top.
    columns : tuple of str
        Name of each column of the file, including those that are dropped.
    """

    separator: str | None
    header_lines: int
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Dataset:
    """Record of a data set of the paper.

    Parameters
    ----------
    key, name : str
        As in the paper.
    rows, features : int
        Shape of the X that `load` returns.
    columns : tuple of str
        Names of the features.
    target : str
        Name of the target.
    source, licence : str
        Where the data were first published, and on which terms.
    file, sha256 : str or None
        Name and hash of the file; None for a data set that is generated.
    reader : Reader or None
        Format of the file.
    notes : tuple of str
        Differences between the file and the paper, and other remarks.
    """

    key: str
    name: str
    rows: int
    features: int
    columns: tuple[str, ...]
    target: str
    source: str
    licence: str
    file: str | None = None
    sha256: str | None = None
    reader: Reader | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()

    @property
    def url(self) -> str | None:
        """Address of the file; None if there is no file."""
        return None if self.file is None else BASE_URL + self.file


_BC_COLUMNS = ("nHM", "piPC09", "PCD", "X2Av", "MLOGP", "ON1V", "N-072", "B02[C-N]", "F04[C-O]")
_BH_COLUMNS = (
    *("CRIM", "ZN", "INDUS", "CHAS", "NOX", "RM", "AGE"),
    *("DIS", "RAD", "TAX", "PTRATIO", "B", "LSTAT"),
)
_CS_COLUMNS = (
    *("cement", "blast_furnace_slag", "fly_ash", "water", "superplasticizer"),
    *("coarse_aggregate", "fine_aggregate", "age"),
)
_EE_COLUMNS = (
    *("relative_compactness", "surface_area", "wall_area", "roof_area", "overall_height"),
    *("orientation", "glazing_area", "glazing_area_distribution"),
)
_WN_COLUMNS = (
    *("fixed acidity", "volatile acidity", "citric acid", "residual sugar", "chlorides"),
    *("free sulfur dioxide", "total sulfur dioxide", "density", "pH", "sulphates", "alcohol"),
)
_YH_COLUMNS = (
    *("longitudinal_position", "prismatic_coefficient", "length_displacement_ratio"),
    *("beam_draught_ratio", "length_beam_ratio", "froude_number"),
)

_ALL = (
    Dataset(
        key="BC",
        name="Bio Concentration",
        rows=779,
        features=9,
        columns=_BC_COLUMNS,
        target="logBCF",
        source=(
            "F. Grisoni, V. Consonni, M. Vighi, S. Villa, R. Todeschini (2016), Investigating "
            "the mechanisms of bioconcentration through QSAR classification trees, Environment "
            "International 88, 198-205; "
            "https://archive.ics.uci.edu/dataset/510/qsar+bioconcentration+classes+dataset"
        ),
        licence=_UCI_LICENCE,
        file="Grisoni_et_al_2016_EnvInt88.csv",
        sha256="db3a8f325e4650f9d355602e8c2f89f4948c9f14aa76e638a18140916d443fcf",
        reader=Reader(",", 1, ("CAS", "SMILES", "Set", *_BC_COLUMNS, "Class", "logBCF")),
        notes=(
            "The paper counts 14 features: that is every column of the file, including the target. "
            "9 remain without CAS, SMILES, Set, Class and the target logBCF.",
            "The division of the original into training and test rows (Set) is not used.",
            "33 rows repeat the features of an earlier one, all but one of them with another "
            "target: the descriptors do not distinguish all substances.",
        ),
    ),
    Dataset(
        key="BH",
        name="Boston Housing",
        rows=506,
        features=13,
        columns=_BH_COLUMNS,
        target="MEDV",
        source=(
            "D. Harrison, D. L. Rubinfeld (1978), Hedonic housing prices and the demand for "
            "clean air, Journal of Environmental Economics and Management 5, 81-102; "
            "http://lib.stat.cmu.edu/datasets/boston"
        ),
        licence="none found (StatLib)",
        file="BostonHousing.csv",
        sha256="a0fa9c84ae718b675d8d73880847e33ac33371edea5290fd938f2e9e05c296e9",
        reader=Reader(",", 0, (*_BH_COLUMNS, "MEDV")),
        notes=(
            "The rows are in the order of Keras, not of the original; the random forests use the "
            "first 200 of them.",
            "Column B is computed from the share of Black residents, for which scikit-learn "
            "removed the data set; use it to reproduce the paper, not to study housing.",
        ),
    ),
    Dataset(
        key="CS",
        name="Concrete Strength",
        rows=1030,
        features=8,
        columns=_CS_COLUMNS,
        target="compressive_strength",
        source=(
            "I-C. Yeh (1998), Modeling of strength of high-performance concrete using artificial "
            "neural networks, Cement and Concrete Research 28, 1797-1808; "
            "https://archive.ics.uci.edu/dataset/165/concrete+compressive+strength"
        ),
        licence=_UCI_LICENCE,
        file="Concrete_Data.csv",
        sha256="63ef5aeb287add256681d54e0b91bc674980b9784428e035a7c7ebf1564ede6f",
        reader=Reader(",", 1, (*_CS_COLUMNS, "compressive_strength")),
        notes=(
            "25 rows repeat an earlier row in every value, so that a mixture may be in the "
            "training and in the test rows.",
        ),
    ),
    Dataset(
        key="EE",
        name="Energy Efficiency",
        rows=768,
        features=8,
        columns=_EE_COLUMNS,
        target="cooling_load",
        source=(
            "A. Tsanas, A. Xifara (2012), Accurate quantitative estimation of energy performance "
            "of residential buildings using statistical machine learning tools, Energy and "
            "Buildings 49, 560-567; https://archive.ics.uci.edu/dataset/242/energy+efficiency"
        ),
        licence=_UCI_LICENCE,
        file="ENB2012_data.txt",
        sha256="7e6ffdc63741ac00de90f1aa1d7e6523dbfdf11ca30ee88fed555740b5133d7d",
        reader=Reader(_WHITE_SPACE, 1, (*_EE_COLUMNS, "heating_load", "cooling_load")),
        notes=(
            "The target is Y2, the cooling load; Y1, the heating load, is dropped. The paper "
            "does not state which of them it predicts.",
            "The paper's table of data sets calls it EF, which is an alias here.",
        ),
    ),
    Dataset(
        key="RCL",
        name="RCL Circuit Current",
        rows=4000,
        features=6,
        columns=RCL_COLUMNS,
        target="I",
        source=f"generated by the paper's author; https://github.com/{REPOSITORY}",
        licence=_AUTHOR_LICENCE,
        file="RCL_current.txt",
        sha256="a42678e15278c97186a76f3a229e7736cc4582ba1452ff9847813dfded74b1e0",
        reader=Reader(_WHITE_SPACE, 0, (*RCL_COLUMNS, "I")),
        notes=(
            "The file follows V0 cos(wt) / sqrt(R^2 + |wL - 1/(wC)|); the paper prints the "
            "reactance squared, which has a residual of 0.18.",
            "The noise is 0.01 (0.00997 measured), a lower bound of any test error; the paper "
            "states 0.1.",
        ),
    ),
    Dataset(
        key="TF",
        name="Test Function",
        rows=1000,
        features=2,
        columns=TF_COLUMNS,
        target="y",
        source="the paper's formula at the author's points: make_tf(n=1000, random_state=0)",
        licence="BSD-3-Clause",
        notes=(
            "The paper does not state the points; the author's code draws them uniformly on "
            "[-1, 1]^2 with seed 0. There is no noise.",
        ),
    ),
    Dataset(
        key="WN",
        name="Red Wine Quality",
        rows=1599,
        features=11,
        columns=_WN_COLUMNS,
        target="quality",
        source=(
            "P. Cortez, A. Cerdeira, F. Almeida, T. Matos, J. Reis (2009), Modeling wine "
            "preferences by data mining from physicochemical properties, Decision Support "
            "Systems 47, 547-553; https://archive.ics.uci.edu/dataset/186/wine+quality"
        ),
        licence=_UCI_LICENCE,
        file="winequality-red.csv",
        sha256="722faff0dfc20b0b13f9cbeaae99fb25b60158c93b935b4b4be875bc77d2f0fa",
        reader=Reader(";", 1, (*_WN_COLUMNS, "quality")),
        notes=(
            "240 rows repeat an earlier row in every value, so that most splits have the same wine "
            "in the training and in the test rows, which may favor nearest neighbors.",
        ),
    ),
    Dataset(
        key="WSB",
        name="Wheatstone Bridge Voltage",
        rows=200,
        features=6,
        columns=WSB_COLUMNS,
        target="V",
        source=f"generated by the paper's author; https://github.com/{REPOSITORY}",
        licence=_AUTHOR_LICENCE,
        file="Wheatstone_Bridge.txt",
        sha256="4ae528ef85aa14e9376e50b15733e0839c6303995636782ae876aa00bb5bfffa",
        reader=Reader(_WHITE_SPACE, 0, (*WSB_COLUMNS, "V")),
        notes=(
            "The file has 6 features, the paper counts 4: unused1 and unused2 do not enter the "
            "formula, but the author's models use them.",
            "The noise is 0.0095; the paper states 0.1.",
        ),
    ),
    Dataset(
        key="YH",
        name="Yacht Hydrodynamics",
        rows=308,
        features=6,
        columns=_YH_COLUMNS,
        target="residuary_resistance",
        source=(
            "J. Gerritsma, R. Onnink, A. Versluis (1981), Geometry, resistance and stability of "
            "the Delft systematic yacht hull series, International Shipbuilding Progress 28, "
            "276-297; https://archive.ics.uci.edu/dataset/243/yacht+hydrodynamics"
        ),
        licence=_UCI_LICENCE,
        file="yacht_hydrodynamics.data",
        sha256="00dfecc0fc01ddd4c90b558a3ac11b246df8ebcfea130724223475a9a67f0ea1",
        reader=Reader(_WHITE_SPACE, 0, (*_YH_COLUMNS, "residuary_resistance")),
    ),
)

_BY_KEY = {record.key: record for record in _ALL}
_ALIASES = {"EF": "EE"}

KEYS = tuple(_BY_KEY)
"""The keys of the nine data sets."""


def info(key: str) -> Dataset:
    """Return the record of a data set.

    Parameters
    ----------
    key : str
        One of `KEYS`, in any case; EF, the paper's other name for EE, works too.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> record = info("yh")
    >>> record.name, record.rows, record.features
    ('Yacht Hydrodynamics', 308, 6)
    >>> info("EF").key
    'EE'
    >>> info("XY")
    Traceback (most recent call last):
    ...
    ValueError: 'XY' is not a data set; the keys are BC, BH, CS, EE (or EF), RCL, TF, WN, WSB, YH.
    """
    if not isinstance(key, str):
        raise TypeError(
            f"the key of a data set must be one of the strings {_key_list()}, not {key!r} of type "
            f"{type(key).__name__}."
        )
    upper = key.upper()
    record = _BY_KEY.get(_ALIASES.get(upper, upper))
    if record is None:
        raise ValueError(f"{key!r} is not a data set; the keys are {_key_list()}.")
    return record


def _key_list() -> str:
    other = {key: alias for alias, key in _ALIASES.items()}
    return ", ".join(f"{key} (or {other[key]})" if key in other else key for key in KEYS)
