"""Which types a model file may name. A type is listed because its content is checked, or harmless.

Being scikit-learn's is not enough: compiled code believes the arrays it is handed. A type enters
these lists when it computes in numpy and scipy alone (which check their indices), or when
`fitted_checks` verifies or rebuilds what its compiled code reads. Sparse matrices, spline
transformers and clusterings are left out for that reason, not by oversight.
"""

from functools import cache
from importlib import import_module

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.gaussian_process import kernels

TREE = "sklearn.tree._tree.Tree"
HISTOGRAM_BOOSTING = (
    "sklearn.ensemble._hist_gradient_boosting.gradient_boosting.HistGradientBoostingRegressor"
)
NEIGHBOR_TREES = ("sklearn.neighbors._kd_tree.KDTree", "sklearn.neighbors._ball_tree.BallTree")

# Rooms whose estimators and strategies may be saved, and the plain classes that they keep.
_OWN_MODULES = (
    "pairing.pairs",
    "pairing.anchors",
    "pairing.weights",
    "estimators.base",
    "estimators.twin",
    "estimators.semi_supervised",
)
_OWN_CLASSES = (
    ("_table", "TableSchema"),
    ("_neighbors", "NeighborIndex"),
    ("pairing.features", "PairFeatures"),
    # named rather than found, so that saving a forest does not import JAX
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
    # Not estimators: what the fitted ones above keep.
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


@cache
def permitted(loader: str) -> frozenset[str]:
    """Full names of the types that a node of the file with this loader may have."""
    match loader:
        case "ObjectNode":
            return _own() | _named(_SKLEARN) | _kernels()
        case "LossNode":
            return _named(_COMPILED_LOSSES)
        case "TreeNode":
            return frozenset({TREE})
        case "DictNode":
            return frozenset(
                {"builtins.dict", "collections.OrderedDict", "sklearn.utils._bunch.Bunch"}
            )
        case "ListNode" | "TupleNode" | "SetNode" | "SliceNode":
            return frozenset({f"builtins.{loader.removesuffix('Node').lower()}"})
        case "JsonNode":
            return frozenset({"builtins.str"})
        case "NdArrayNode":
            return _scalars() | {"numpy.ndarray"}
        case "DTypeNode":
            return frozenset({"numpy.dtype"})
        case "TypeNode":
            builtin = {f"builtins.{name}" for name in ("bool", "float", "int", "str", "NoneType")}
            return _scalars() | builtin
        case "RandomStateNode":
            return frozenset({_full_name(np.random.RandomState)})
        case "RandomGeneratorNode":
            return frozenset({_full_name(np.random.Generator)})
    return frozenset()


def is_ufunc(module: str, name: str) -> bool:
    """Whether numpy or scipy.special has a compiled elementwise function of this name.

    >>> is_ufunc("numpy", "log"), is_ufunc("numpy", "mean"), is_ufunc("os", "system")
    (True, False, False)
    """
    if module not in ("numpy", "scipy.special"):
        return False
    return isinstance(getattr(import_module(module), name, None), np.ufunc)


def _own() -> frozenset[str]:
    names = {f"twinned.{module}.{name}" for module, name in _OWN_CLASSES}
    for module_name in _OWN_MODULES:
        module = import_module(f"twinned.{module_name}")
        names.update(
            _full_name(value)
            for value in vars(module).values()
            if isinstance(value, type)
            and issubclass(value, BaseEstimator)
            and value.__module__ == module.__name__
        )
    return frozenset(names)


def _named(table: dict[str, str]) -> frozenset[str]:
    # A class that this scikit-learn does not have cannot be in a file that it can load.
    return frozenset(
        _full_name(getattr(module, name))
        for module, names in ((import_module(key), names) for key, names in table.items())
        for name in names.split()
        if hasattr(module, name)
    )


def _kernels() -> frozenset[str]:
    return frozenset(
        _full_name(value)
        for value in vars(kernels).values()
        if isinstance(value, type)
        and issubclass(value, kernels.Kernel)
        and value.__module__ == kernels.__name__
    )


def _scalars() -> frozenset[str]:
    return frozenset(_full_name(getattr(np, name)) for name in _SCALARS.split())


def _full_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__name__}"
