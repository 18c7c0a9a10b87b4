"""The types that a model file may name.

A type is listed only if its content is checked or harmless, since compiled code does not check the
arrays it is given. It must either compute with numpy and scipy alone, which check indices, or
`fitted_checks` must verify or rebuild what its compiled code reads. Sparse matrices, spline
transformers and clusterings are therefore excluded on purpose.
"""

from functools import cache
from importlib import import_module
from types import ModuleType

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.gaussian_process import kernels

TREE = "sklearn.tree._tree.Tree"
HISTOGRAM_BOOSTING = (
    "sklearn.ensemble._hist_gradient_boosting.gradient_boosting.HistGradientBoostingRegressor"
)
NEIGHBOR_TREES = ("sklearn.neighbors._kd_tree.KDTree", "sklearn.neighbors._ball_tree.BallTree")

# Modules of twinned: all their estimators and strategies are allowed.
_OWN_MODULES = (
    "pairing.pairs",
    "pairing.anchors",
    "pairing.weights",
    "estimators.base",
    "estimators.twin",
    "estimators.semi_supervised",
)
# Other classes of twinned that a fitted estimator holds.
_OWN_CLASSES = (
    ("_table", "TableSchema"),
    ("_neighbors", "NeighborIndex"),
    ("pairing.features", "PairFeatures"),
    # by name, so that saving a forest does not import JAX
    ("estimators.twin_neural", "TwinNeuralRegressor"),
    ("estimators.neural", "NeuralRegressor"),
)

_SKLEARN = {
    "sklearn.compose": "ColumnTransformer TransformedTargetRegressor",
    "sklearn.cross_decomposition": "CCA PLSCanonical PLSRegression",
    "sklearn.decomposition": "FactorAnalysis FastICA IncrementalPCA KernelPCA PCA TruncatedSVD",
    "sklearn.dummy": "DummyRegressor",
    "sklearn.ensemble": "AdaBoostRegressor BaggingRegressor ExtraTreesRegressor "
    "GradientBoostingRegressor HistGradientBoostingRegressor RandomForestRegressor "
    "StackingRegressor VotingRegressor",
    "sklearn.feature_selection": "RFE SelectFromModel SequentialFeatureSelector VarianceThreshold",
    "sklearn.gaussian_process": "GaussianProcessRegressor",
    "sklearn.impute": "KNNImputer MissingIndicator SimpleImputer",
    "sklearn.isotonic": "IsotonicRegression",
    "sklearn.kernel_approximation": "Nystroem RBFSampler",
    "sklearn.kernel_ridge": "KernelRidge",
    "sklearn.linear_model": "ARDRegression BayesianRidge ElasticNet ElasticNetCV GammaRegressor "
    "HuberRegressor Lars LarsCV Lasso LassoCV LassoLars LassoLarsCV LassoLarsIC LinearRegression "
    "MultiTaskElasticNet MultiTaskElasticNetCV MultiTaskLasso MultiTaskLassoCV "
    "OrthogonalMatchingPursuit OrthogonalMatchingPursuitCV PoissonRegressor QuantileRegressor "
    "RANSACRegressor Ridge RidgeCV SGDRegressor TheilSenRegressor TweedieRegressor",
    "sklearn.model_selection": "GroupKFold KFold LeaveOneOut ShuffleSplit",
    "sklearn.multioutput": "MultiOutputRegressor RegressorChain",
    "sklearn.neighbors": "KNeighborsRegressor NearestNeighbors RadiusNeighborsRegressor",
    "sklearn.neural_network": "MLPRegressor",
    "sklearn.pipeline": "FeatureUnion Pipeline",
    "sklearn.preprocessing": "Binarizer FunctionTransformer KBinsDiscretizer MaxAbsScaler "
    "MinMaxScaler Normalizer OneHotEncoder OrdinalEncoder PolynomialFeatures PowerTransformer "
    "QuantileTransformer RobustScaler StandardScaler TargetEncoder",
    "sklearn.random_projection": "GaussianRandomProjection",
    "sklearn.svm": "LinearSVR NuSVR SVR",
    "sklearn.tree": "DecisionTreeRegressor ExtraTreeRegressor",
    # not estimators, but attributes of the fitted estimators above
    "sklearn._loss.link": "HalfLogitLink IdentityLink Interval LogLink LogitLink",
    "sklearn._loss.loss": "AbsoluteError HalfGammaLoss HalfPoissonLoss HalfSquaredError "
    "HalfTweedieLoss HalfTweedieLossIdentity HuberLoss PinballLoss",
    "sklearn.ensemble._hist_gradient_boosting.binning": "_BinMapper",
    "sklearn.ensemble._hist_gradient_boosting.predictor": "TreePredictor",
    "sklearn.neural_network._stochastic_optimizers": "AdamOptimizer SGDOptimizer",
}
_COMPILED_LOSSES = {
    "sklearn._loss._loss": "CyAbsoluteError CyHalfGammaLoss CyHalfPoissonLoss CyHalfSquaredError "
    "CyHalfTweedieLoss CyHalfTweedieLossIdentity CyHuberLoss CyPinballLoss",
    "sklearn.linear_model._sgd_fast": "EpsilonInsensitive SquaredEpsilonInsensitive",
}
_SCALARS = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 str_"
_PLAIN_TYPES = {
    "TreeNode": TREE,
    "DictNode": "builtins.dict collections.OrderedDict sklearn.utils._bunch.Bunch",
    "ListNode": "builtins.list",
    "TupleNode": "builtins.tuple",
    "SetNode": "builtins.set",
    "SliceNode": "builtins.slice",
    "JsonNode": "builtins.str",
    "NdArrayNode": "numpy.ndarray",
    "DTypeNode": "numpy.dtype",
    "TypeNode": "builtins.bool builtins.float builtins.int builtins.str builtins.NoneType",
}


@cache
def allowed_type_names(loader: str) -> frozenset[str]:
    """Return the full names of the types that nodes with this skops loader may have."""
    match loader:
        case "ObjectNode":
            return _own_types() | _listed_types(_SKLEARN) | _subclasses_in(kernels, kernels.Kernel)
        case "LossNode":
            return _listed_types(_COMPILED_LOSSES)
        case "RandomStateNode":
            return frozenset({_type_name(np.random.RandomState)})
        case "RandomGeneratorNode":
            return frozenset({_type_name(np.random.Generator)})
    names = frozenset(_PLAIN_TYPES.get(loader, "").split())
    if loader in ("NdArrayNode", "TypeNode"):
        names |= {_type_name(getattr(np, name)) for name in _SCALARS.split()}
    return names


def is_allowed_ufunc(module: str, name: str) -> bool:
    """Return whether numpy or scipy.special has a ufunc of this name.

    >>> [is_allowed_ufunc("numpy", name) for name in ("log", "mean")]
    [True, False]
    >>> is_allowed_ufunc("os", "system")
    False
    """
    if module not in ("numpy", "scipy.special"):
        return False
    return isinstance(getattr(import_module(module), name, None), np.ufunc)


def _own_types() -> frozenset[str]:
    names = frozenset(f"twinned.{module}.{name}" for module, name in _OWN_CLASSES)
    modules = (import_module(f"twinned.{name}") for name in _OWN_MODULES)
    return names.union(*(_subclasses_in(module, BaseEstimator) for module in modules))


def _subclasses_in(module: ModuleType, base: type) -> frozenset[str]:
    """Return the names of the subclasses of `base` that are defined in this module."""
    return frozenset(
        _type_name(value)
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, base)
        and value.__module__ == module.__name__
    )


def _listed_types(table: dict[str, str]) -> frozenset[str]:
    # A class that the installed scikit-learn lacks cannot be in a file that it can load.
    return frozenset(
        _type_name(getattr(module, name))
        for module, names in ((import_module(key), names) for key, names in table.items())
        for name in names.split()
        if hasattr(module, name)
    )


def _type_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__name__}"
