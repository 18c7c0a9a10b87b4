"""A twin as the text of a C header, by the template `header.h.j2`."""

import re
from dataclasses import dataclass
from importlib.resources import files
from textwrap import fill, indent
from typing import NamedTuple, Self

import numpy as np
from jinja2 import Environment, StrictUndefined
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from twinned._compat import unwrap_search
from twinned._version import __version__
from twinned.export.model_parts import anchor_shares, refuse
from twinned.fitted.calibration import Calibration
from twinned.fitted.quantiles import suffices, tails
from twinned.fitted.twin import FittedTwin
from twinned.models.sklearn import SklearnDifferenceModel
from twinned.models.trees.reader import FLOAT32, TreeEnsemble, inclusive_threshold, read_trees
from twinned.pairing.differences import PairColumn
from twinned.rows.schema import CATEGORICAL, NUMERIC, Floats, TableSchema

PERCENTS = range(50, 100)  # confidences of intervals
_MAX_LISTED = 50  # categories of a feature that are listed
# in place of a code: the column is the feature itself, or 1 where its value is missing
_VALUE, _IS_MISSING = -1, -2
_LEAF = 0xFFFF  # in place of a column


# --- the model -----------------------------------------------------------------------------------


class TreeScore(NamedTuple):
    """A sum of trees, in one array of nodes; the left child of a node is the next one.

    A value goes left where it is at most the threshold. `column` is twice the column of a node,
    plus 1 where a missing value goes left. At a leaf it is 65535, and `threshold` the value.
    """

    column: Floats
    threshold: Floats
    right: Floats  # distance to the right child
    roots: list[int]
    offset: float

    @classmethod
    def of_ensemble(cls, ensemble: TreeEnsemble, unit: float) -> Self:
        """The trees of a single output, with leaf values multiplied by `unit`."""
        check_single_output(len(ensemble.offset))
        if ensemble.n_features >= _LEAF // 2:
            refuse(f"pairs have more than {_LEAF // 2} columns", "use fewer features")
        nodes: list[list[float]] = []  # column, threshold, right
        roots = []
        for tree in ensemble.trees:
            roots.append(len(nodes))
            thresholds = inclusive_threshold(np.asarray(tree.threshold), FLOAT32)
            stack = [(0, -1)]  # the node, and the parent whose right child it is
            while stack:
                node, parent = stack.pop()
                if parent >= 0:
                    nodes[parent][2] = len(nodes) - parent
                if tree.left[node] < 0:
                    nodes.append([_LEAF, float(tree.value[node, 0]) * tree.scale * unit, 0])
                    continue
                stack += [(tree.right[node], len(nodes)), (tree.left[node], -1)]
                code = 2 * int(tree.feature[node]) + bool(tree.missing_left[node])
                nodes.append([code, thresholds[node], 0])
        column, threshold, right = np.array(nodes).T
        return cls(column, threshold, right, roots, float(ensemble.offset[0] * unit))


def check_single_output(n_outputs: int) -> None:
    """Refuse models of several outputs."""
    if n_outputs != 1:
        refuse(f"y has {n_outputs} outputs, and C code a single one", "export one for each")


def _read_score(estimator: BaseEstimator, unit: float) -> TreeScore:
    """The score of a fitted base estimator, multiplied by `unit`."""
    estimator = unwrap_search(estimator)
    if (trees := read_trees(estimator)) is None:
        reason = f"C code supports trees, not estimator={type(estimator).__name__}"
        return refuse(reason, "use to_onnx, or the default base (twinned fit --model twin)")
    return TreeScore.of_ensemble(trees, unit)


def _row_columns(schema: TableSchema) -> NDArray[np.intp]:
    """(2, column) feature and code: numeric features, indicators, and codes of categories."""
    columns = [(j, _VALUE) for j in schema.numeric]
    columns += [(j, c) for j in schema.categorical for c in range(schema.n_indicators[j])]
    columns += [(j, _IS_MISSING) for j in schema.marked]
    columns += [(j, _VALUE) for j in schema.categorical]
    return np.array(columns, dtype=np.intp).reshape(-1, 2).T


@dataclass(frozen=True, eq=False)
class Core:
    """A twin as a list of weighted estimates of y, one or two for each anchor.

    A prediction is `center` and the weighted mean of the estimates, before residuals are added.

    Parameters
    ----------
    column_feature, column_code : ndarray of shape (n_columns,)
        The columns that a model computes from the features of a row: the feature of each, and the
        code of a category that it indicates by 1 and 0; −1 for the value of the feature, −2 for
        whether it is missing.
    anchors : ndarray of shape (n_anchors, n_features)
        The features of the anchors, as given.
    anchor_estimates : ndarray of shape (n_anchors,)
        Known values of the anchors, minus `center`.
    anchor_weights : ndarray of shape (n_anchors,)
        The weights of their estimates.
    center : float
        The value of y that an estimate of 0 stands for.
    role, source_column : ndarray of shape (n_pair_columns,)
        The role of each pair column (`PairColumn`), and the column of a row it is made of.
    score : TreeScore
        The predicted difference, in units of y.
    symmetric : bool
        Whether both orders of a pair are evaluated.
    """

    column_feature: NDArray[np.intp]
    column_code: NDArray[np.intp]
    anchors: Floats
    anchor_estimates: Floats
    anchor_weights: Floats
    center: float
    role: NDArray[np.int64]
    source_column: NDArray[np.int64]
    score: TreeScore
    symmetric: bool

    @classmethod
    def of_twin(cls, fitted: FittedTwin) -> Self:
        """The pairs of a twin, and its anchors."""
        model, anchors = fitted.model, fitted.anchors
        assert isinstance(model, SklearnDifferenceModel)
        feature, code = _row_columns(anchors.schema)
        role, source_column = model.features.layout(anchors.rows)
        known_y, shares = anchors.outputs[:, 0], anchor_shares(fitted)
        center = float(shares @ known_y)  # float32 represents deviations from the mean
        return cls(
            column_feature=feature,
            column_code=code,
            anchors=anchors.matrix,
            anchor_estimates=known_y - center,
            anchor_weights=shares / len(model.member_weights),
            center=center,
            role=role,
            source_column=source_column,
            score=_read_score(model.estimator, model.unit),
            symmetric=model.symmetric,
        )

    @property
    def has_codes(self) -> bool:
        """Whether a column is not simply a feature."""
        return bool((self.column_code != _VALUE).any())

    @property
    def ram_bytes(self) -> int:
        """The bytes of the arrays on the stack while a row is predicted."""
        return 4 * (2 * len(self.column_feature) + len(self.role))

    @property
    def role_ends(self) -> list[tuple[str, int]]:
        """Roles of pair columns, which are in this order, and the end of the range of each."""
        assert (np.diff(self.role) >= 0).all()
        used = [role for role in PairColumn if (self.role == role).any()]
        return [(role.name, int((self.role <= role).sum())) for role in used]


# --- the text ------------------------------------------------------------------------------------


class IntervalTable(NamedTuple):
    """Ends of prediction intervals: mean + score · (std + floor), or mean + score."""

    low: Floats  # scores of the confidences from 50 to 99 %; infinite where unknown
    high: Floats
    floor: float
    is_constant: bool

    @classmethod
    def of(cls, calibration: Calibration | None) -> Self | None:
        """The ends by a calibration; None without, or where the width needs known rows."""
        if calibration is None:
            return None
        scale = calibration.scale
        if scale.width not in ("std", "constant") or scale.y_std is not None:
            return None
        ends = np.full((len(PERCENTS), 2), [-np.inf, np.inf])
        for i, percent in enumerate(PERCENTS):
            if suffices(percent / 100, calibration.n_rows):
                ends[i] = calibration.distribution.quantile(tails(percent / 100))
        is_constant = scale.width == "constant" or scale.floor == 0
        return cls(ends[:, 0], ends[:, 1], float(scale.floor), is_constant)


class ConstantTables:
    """Constant arrays of C, and the bytes that they take.

    Examples
    --------
    >>> tables = ConstantTables("twin")
    >>> print(tables.write("y", "float", [1.0, 2.5]))
    static const float twin_y[2] = {
        1.0f, 2.5f
    };
    <BLANKLINE>
    >>> tables.write("order", "uint", [300, 1]).split(" twin")[0], tables.n_bytes
    ('static const uint16_t', 12)
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.n_bytes: int = 0

    def write(self, name: str, ctype: str, values: ArrayLike) -> str:
        """A constant array; `uint` is the smallest unsigned type that holds the values."""
        flat = np.ravel(np.asarray(values))
        if ctype == "uint":
            ctype = next(f"uint{bits}_t" for bits in (8, 16, 32) if flat.max() < 2**bits)
        array = flat.astype("float32" if ctype == "float" else ctype.removesuffix("_t"))
        self.n_bytes += array.nbytes
        numbers = ", ".join(map(float_literal if ctype == "float" else str, array))
        lines = indent(fill(numbers, 92, break_on_hyphens=False), "    ")
        return f"static const {ctype} {self.prefix}_{name}[{len(array)}] = {{\n{lines}\n}};\n"


def write_header(
    name: str, core: Core, schema: TableSchema, feature_names: list[str], **values: object
) -> tuple[str, int]:
    """The text of the header, and the bytes of the tables that a prediction uses.

    `values` are further ones of the template: those that do not depend on the core.
    """
    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined
    )
    environment.filters |= {"literal": float_literal, "quoted": string_literal}
    template = files("twinned.export.c").joinpath("header.h.j2").read_text("utf-8")
    tables = ConstantTables(name)
    text = environment.from_string(template.replace("@", name)).render(
        core=core,
        tables=tables,
        table=tables.write,
        guard=name.upper(),
        names=feature_names,
        features=_describe_features(schema, feature_names),
        percents=PERCENTS,
        version=__version__,
        **values,
    )
    (flash_bytes,) = re.findall(r"_FLASH_BYTES (\d+)$", text, re.MULTILINE)
    return text, int(flash_bytes)


def _describe_features(schema: TableSchema, names: list[str]) -> list[str]:
    """One line for each feature: its name, and the codes of its categories."""
    lines = []
    for j, (name, kind) in enumerate(zip(names, schema.kinds, strict=True)):
        categories = schema.categories[j]
        text = f"x[{j}] {name}"
        if kind != NUMERIC:
            listed = [f"{code} = {value}" for code, value in enumerate(categories[:_MAX_LISTED])]
            text += f" ({kind}): {', '.join(listed)}"
            text += ", ..." if len(categories) > _MAX_LISTED else ""
        if kind == CATEGORICAL:
            text += f"; any other category: {len(categories)}"
        # ASCII text that neither ends a comment nor begins one
        text = re.sub(r"[\x00-\x1f\x7f]", " ", text.encode("ascii", "backslashreplace").decode())
        lines.append(text.replace("*/", "* /").replace("/*", "/ *"))
    return lines


def float_literal(value: float) -> str:
    """A constant of type float, exact to the last bit.

    >>> float_literal(2), float_literal(0.1), float_literal(1e-9), float_literal(float("inf"))
    ('2.0f', '0.1f', '1e-09f', 'INFINITY')
    """
    text = str(np.float32(value))  # the shortest text that is read as the same float
    special = {"nan": "NAN", "inf": "INFINITY", "-inf": "-INFINITY"}
    return special.get(text) or (f"{text}f" if set(text) & set(".e") else f"{text}.0f")


def string_literal(text: str) -> str:
    r"""A string constant of C, in UTF-8.

    >>> print(string_literal('a "quoted" ü'))
    "a \042quoted\042 \303\274"
    """
    plain = set(range(32, 127)) - set(b'"\\?')
    characters = [chr(byte) if byte in plain else f"\\{byte:03o}" for byte in text.encode()]
    return f'"{"".join(characters)}"'
