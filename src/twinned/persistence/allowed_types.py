"""The types that a model file may name.

A type is listed only if its content is checked or harmless, since compiled code does not check the
arrays it is given. It must either compute with numpy and scipy alone, which check indices, or
`fitted_checks` must verify or rebuild what its compiled code reads. Sparse matrices, spline
transformers and clusterings are therefore excluded on purpose.
"""

from functools import cache
from importlib import import_module

import numpy as np

HISTOGRAM_BOOSTING = (
    "sklearn.ensemble._hist_gradient_boosting.gradient_boosting.HistGradientBoostingRegressor"
)
NEIGHBOR_TREES = ("sklearn.neighbors._kd_tree.KDTree", "sklearn.neighbors._ball_tree.BallTree")
UFUNC_MODULES = ("numpy", "scipy.special")

# module: types in it
_OBJECTS = {
    "sklearn.compose": "ColumnTransformer TransformedTargetRegressor",
    "sklearn.cross_decomposition": "CCA PLSCanonical PLSRegression",
    "sklearn.decomposition": "FactorAnalysis FastICA IncrementalPCA KernelPCA PCA TruncatedSVD",
    "sklearn.dummy": "DummyRegressor",
    "sklearn.ensemble": "AdaBoostRegressor BaggingRegressor ExtraTreesRegressor "
    "GradientBoostingRegressor HistGradientBoostingRegressor RandomForestRegressor "
    "StackingRegressor VotingRegressor",
    "sklearn.feature_selection": "RFE SelectFromModel SequentialFeatureSelector VarianceThreshold",
    "sklearn.gaussian_process": "GaussianProcessRegressor",
    "sklearn.gaussian_process.kernels": "CompoundKernel ConstantKernel DotProduct ExpSineSquared "
    "Exponentiation Kernel KernelOperator Matern PairwiseKernel Product RBF RationalQuadratic Sum "
    "WhiteKernel",
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
    "twinned._neighbors": "NeighborIndex",
    "twinned._table": "TableSchema",
    "twinned.estimators.auto": "AutoTwinRegressor",
    "twinned.estimators.blending.features": "FeaturePreparation",
    "twinned.estimators.base": "BaseTwin",
    "twinned.estimators.gaussian_process": "GPRegressor",
    "twinned.estimators.neural": "NeuralRegressor",
    "twinned.estimators.semi_supervised": "SemiSupervisedTwinRegressor",
    "twinned.estimators.twin": "TwinRegressor",
    "twinned.estimators.twin_neural": "TwinNeuralRegressor",
    "twinned.models.gaussian_process": "GaussianProcess",
    "twinned.pairing.anchors": "AllAnchors NearestAnchors RandomAnchors",
    "twinned.pairing.features": "PairFeatures",
    "twinned.pairing.pairs": "AllPairs HalfPairs NearestPairs RandomPairs",
    "twinned.pairing.weights": "DistanceWeights FixedWeights GPWeights UniformWeights",
}
_SCALARS = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 str_"
# skops loader: module: types in it
_TYPES = {
    "ObjectNode": _OBJECTS,
    "LossNode": {
        "sklearn._loss._loss": "CyAbsoluteError CyHalfGammaLoss CyHalfPoissonLoss "
        "CyHalfSquaredError CyHalfTweedieLoss CyHalfTweedieLossIdentity CyHuberLoss CyPinballLoss",
        "sklearn.linear_model._sgd_fast": "EpsilonInsensitive SquaredEpsilonInsensitive",
    },
    "TreeNode": {"sklearn.tree._tree": "Tree"},
    "RandomStateNode": {"numpy.random": "RandomState"},
    "RandomGeneratorNode": {"numpy.random": "Generator"},
    "DictNode": {"builtins": "dict", "collections": "OrderedDict", "sklearn.utils": "Bunch"},
    "ListNode": {"builtins": "list"},
    "TupleNode": {"builtins": "tuple"},
    "SetNode": {"builtins": "set"},
    "SliceNode": {"builtins": "slice"},
    "JsonNode": {"builtins": "str"},
    "NdArrayNode": {"numpy": f"ndarray {_SCALARS}"},
    "DTypeNode": {"numpy": "dtype"},
    "TypeNode": {"builtins": "bool float int str", "types": "NoneType", "numpy": _SCALARS},
}


@cache
def allowed_type_names(loader: str) -> frozenset[str]:
    """Return the full names of the types that nodes with this skops loader may have."""
    full_names = set()
    for module, names in _TYPES.get(loader, {}).items():
        for name in names.split():
            if module.startswith("twinned."):  # not imported, as neural networks need JAX
                full_names.add(f"{module}.{name}")
            # A class that the installed scikit-learn lacks cannot be in a file that it can load.
            elif (cls := getattr(import_module(module), name, None)) is not None:
                full_names.add(f"{cls.__module__}.{cls.__name__}")
    return frozenset(full_names)


def is_allowed_ufunc(module: str, name: str) -> bool:
    """Return whether numpy or scipy.special has a ufunc of this name.

    >>> [is_allowed_ufunc("numpy", name) for name in ("log", "mean")]
    [True, False]
    >>> is_allowed_ufunc("os", "system")
    False
    """
    if module not in UFUNC_MODULES:
        return False
    return isinstance(getattr(import_module(module), name, None), np.ufunc)
