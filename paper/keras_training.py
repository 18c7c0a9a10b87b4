"""The paper's own training of twins, written anew with Keras, beside ours.

The rules are those of `paper.published`: batches of eight labelled triples and eight unlabelled
ones of weight 0, three raw differences, Adadelta, halving on a plateau of the training loss, early
stopping by fixed triples of validation rows, the last weights. Here Keras' own optimizer, losses,
sample weights and callbacks carry them out, so a difference between the two programs is a mistake
in ours. Needs TensorFlow (pip install tensorflow-cpu), which no other part of the package uses.
Results: `benchmarks/results/keras_training.csv` and `.md`.

    python -m paper.keras_training                                # an hour on two processors
    python -m paper.keras_training --datasets WSB --splits 1
"""

from functools import partial
from typing import Any

import numpy as np

from benchmarks import frame
from paper.data import rmse, split_rows
from paper.published import BATCH_SIZE, PublishedTwin, steps_per_epoch

COLUMNS = [
    "dataset",
    "split",
    "training",
    "rmse_1_anchor:.5g",
    "rmse_all_anchors:.5g",
    "validation_20:.5g",
    "validation_100:.5g",
    "validation_end:.5g",
    "epochs",
    "seconds:.4g",
]


def scale(train, *others):
    """X minus the training mean, divided by its signed maximum."""
    mean = train.mean(axis=0)
    spread = (train - mean).max(axis=0)
    return [((part - mean) / spread).astype(np.float32) for part in (train, *others)]


def make_model(n_features):
    """Return F, and the model of triples with its three differences."""
    import keras

    pair = keras.Input((2 * n_features,))
    hidden = keras.layers.Dense(128, activation="relu")(pair)
    hidden = keras.layers.Dense(128, activation="relu")(hidden)
    twin = keras.Model(pair, keras.layers.Dense(1)(hidden))
    corners = [keras.Input((n_features,)) for _ in range(3)]
    join = keras.layers.Concatenate()
    differences = [twin(join([corners[i], corners[(i + 1) % 3]])) for i in range(3)]
    return twin, keras.Model(corners, join(differences))


def draw_batches(X, y, X_other, steps):
    """Return an endless data set of batches: corners, differences, sample weights.

    All batches of an epoch are drawn at once.
    """
    import tensorflow as tf

    X, y, X_other = (tf.constant(part, tf.float32) for part in (X, y, X_other))
    half = BATCH_SIZE // 2

    def draw(_):
        size = (steps, half)
        rows = [tf.random.uniform(size, 0, len(X), tf.int32) for _ in range(3)]
        others = [tf.random.uniform(size, 0, len(X_other), tf.int32) for _ in range(3)]
        corners = tuple(
            tf.concat([tf.gather(X, own), tf.gather(X_other, other)], 1)
            for own, other in zip(rows, others, strict=True)
        )
        values = [tf.gather(y, own) for own in rows]
        known = tf.stack([values[i] - values[(i + 1) % 3] for i in range(3)], 2)
        weight = tf.concat([tf.ones(size), tf.zeros(size)], 1)
        epoch = corners, tf.concat([known, tf.zeros((*size, 3))], 1), weight
        return tf.data.Dataset.from_tensor_slices(epoch)

    return tf.data.Dataset.counter().flat_map(draw).prefetch(8)


def train_with_keras(train, validation, test, seed):
    """Return the trained F, the scaled X of training and test rows, and the history."""
    import keras

    keras.utils.set_random_seed(seed)
    X, X_val, X_test = scale(train[0], validation[0], test[0])
    twin, model = make_model(X.shape[1])
    steps = steps_per_epoch(len(X), twin=True)
    model.compile(
        optimizer=keras.optimizers.Adadelta(learning_rate=1.0),
        loss="mse",
        steps_per_execution=steps,
    )
    rng = np.random.RandomState(seed)
    rows = [np.arange(len(X_val)), *rng.randint(len(X_val), size=(2, len(X_val)))]
    known = np.column_stack(
        [validation[1][rows[i]] - validation[1][rows[(i + 1) % 3]] for i in range(3)]
    )
    history = model.fit(
        draw_batches(X, train[1], X_test, steps),
        steps_per_epoch=steps,
        epochs=2_000,
        validation_data=([X_val[own] for own in rows], known),
        validation_batch_size=len(X_val),
        callbacks=[
            keras.callbacks.ReduceLROnPlateau(monitor="loss", factor=0.5, patience=32),
            keras.callbacks.EarlyStopping(monitor="val_loss", patience=64),
        ],
        verbose=0,
    )
    return twin, X, X_test, np.sqrt(history.history["val_loss"])


def both_orders(twin, X, X_test):
    """(query, anchor) F(x, a) and F(a, x)."""
    found = []
    for query in X_test:
        repeated = np.repeat(query[None], len(X), axis=0)
        pairs = np.vstack([np.hstack([repeated, X]), np.hstack([X, repeated])])
        found.append(np.asarray(twin(pairs))[:, 0].reshape(2, -1))
    return np.moveaxis(np.array(found, np.float64), 0, 1)


def run(dataset, split, training):
    """Return the errors of one training and its validation errors at some epochs."""
    train, validation, test = split_rows(dataset, split)
    if training == "Keras":
        twin, X, X_test, curve = train_with_keras(train, validation, test, split)
        forward, backward = both_orders(twin, X, X_test)
        estimates = 0.5 * (forward - backward) + train[1]
    else:
        published: Any = PublishedTwin(random_state=split)
        model = published.fit(*train, None, *validation)
        curve = model.learning_curve_[0]
        curve = curve[np.isfinite(curve)]
        estimates = model.predict_anchors(test[0])[1]
    at = partial(np.minimum, len(curve) - 1)
    return {
        "rmse_1_anchor": np.sqrt(np.mean((estimates - test[1][:, None]) ** 2)),
        "rmse_all_anchors": rmse(estimates.mean(axis=1), test[1]),
        "validation_20": curve[at(19)],
        "validation_100": curve[at(99)],
        "validation_end": curve[-1],
        "epochs": len(curve),
    }


def summary(runs):
    grouped = runs.groupby(["dataset", "training"], sort=False)
    means, counts = grouped.mean(numeric_only=True), grouped.size()
    names = [column.split(":")[0] for column in COLUMNS[3:-1]]
    rows = [
        [*key, str(counts[key]), *(f"{row[name]:.4g}" for name in names)]
        for key, row in means.iterrows()
    ]
    return [
        "# The paper's own training, with Keras and by our program",
        "",
        "Means over the first splits, one network each; *validation* is the root of the validation "
        "loss after 20 and 100 epochs and at the end. `python -m paper.keras_training`.",
        "",
        *frame.markdown_table(["", "training", "splits", *names], rows),
    ]


BENCHMARK = frame.Benchmark(
    "keras_training",
    __doc__,
    COLUMNS,
    run=run,
    summary=summary,
    trial=("dataset", "split", "training"),
    axes={"dataset": ["WSB", "TF"], "split": 3, "training": ["Keras", "ours"]},
)

if __name__ == "__main__":
    BENCHMARK.main()
