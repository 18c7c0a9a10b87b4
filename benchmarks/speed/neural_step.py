"""One training step of the engine beside the same step in eager PyTorch, and beside SGEMM.

Both: `members` networks at once, hidden layers 128–128, silu, 8 features, B pairs a step in both
orders (2 B rows through the second layer), mean squared error of ½F(a, b) − ½F(b, a), Adam without
decay on a cosine schedule, float32, rows drawn at random at each step, no embedding, no dropout.
PyTorch is written with batched products (`baddbmm`) and fused Adam, in two ways: *pairs* draws B
pairs and computes the first layer for each; *shared* draws B / 2 points of which each meets two
others, and computes the first layer once a point, which is what the engine does.

One core, processor seconds (which other programs cannot lengthen), everything in turns, medians.
With `--cores 2`: by the clock. Needs PyTorch. Writes `benchmarks/results/neural_step.md`.

    python -m benchmarks.speed.neural_step
"""

import itertools

import numpy as np

from benchmarks import frame
from benchmarks.speed.measurement import product_rate, training_loops, use_cores

N_ROWS, N_FEATURES, WIDTH, PARTNERS = 1_000, 8, 128, 2
CASES = [(1, 64), (1, 256), (8, 64), (8, 256)]


def make_data():
    X = np.random.RandomState(0).normal(size=(N_ROWS, N_FEATURES))
    return X, X[:, 0] + np.sin(2 * X[:, 1])


def engine(n_members, n_pairs):
    """Return a function that trains 400 steps, and that number."""
    from twinned import NeuralTraining, TwinNeuralRegressor
    from twinned.models.neural import fitting

    assert fitting.N_PARTNERS == PARTNERS

    training = NeuralTraining(
        n_folds=1,
        batch_size=n_pairs,
        validation_fraction=0.0,
        learning_rate=3e-3,
        dropout=0.0,
        weight_decay=0.0,
        embedding=None,
    )
    estimator = TwinNeuralRegressor(
        (WIDTH, WIDTH), n_members=n_members, training=training, random_state=0
    )
    steps, checks = 400, itertools.count()
    (loop,) = training_loops(estimator, *make_data(), (steps,))
    return (lambda: loop.advance(next(checks))), steps


def pytorch(n_members, n_pairs, shared, cores):
    """Return a function that trains 100 steps, and that number."""
    import torch

    torch.set_num_threads(cores)
    torch.manual_seed(0)
    X, y = (torch.tensor(part, dtype=torch.float32) for part in make_data())
    y = (y - y.mean()) / y.std()

    def weight(*shape):
        bound = (3.0 / shape[-2]) ** 0.5
        values = torch.empty(n_members, *shape).uniform_(-bound, bound)
        return values.requires_grad_()

    W1, W2, W3 = weight(2 * N_FEATURES, WIDTH), weight(WIDTH, WIDTH), weight(WIDTH, 1)
    b1, b2, b3 = (torch.zeros(n_members, 1, size, requires_grad=True) for size in (WIDTH, WIDTH, 1))
    adam = torch.optim.Adam([W1, W2, W3, b1, b2, b3], lr=3e-3, betas=(0.9, 0.99), fused=True)
    n_points = n_pairs // PARTNERS
    partners = (torch.arange(n_points) + 1 + torch.arange(PARTNERS)[:, None]) % n_points
    steps, silu = 100, torch.nn.functional.silu
    count = [0]

    def before_first_activation():
        """(member, 2 B, hidden) of both orders, and (member, B) known differences."""
        if shared:
            rows = torch.randint(N_ROWS, (n_members, n_points))
            x, known = X[rows], y[rows]
            left = torch.baddbmm(b1, x, W1[:, :N_FEATURES])
            right = torch.bmm(x, W1[:, N_FEATURES:])
            forward = (left[:, None] + right[:, partners]).flatten(1, 2)
            backward = (left[:, partners] + right[:, None]).flatten(1, 2)
            difference = (known[:, None] - known[:, partners]).flatten(1, 2)
            return torch.cat([forward, backward], dim=1), difference
        rows = torch.randint(N_ROWS, (2, n_members, n_pairs))
        a, b = X[rows[0]], X[rows[1]]
        both = torch.cat([torch.cat([a, b], dim=2), torch.cat([b, a], dim=2)], dim=1)
        return torch.baddbmm(b1, both, W1), y[rows[0]] - y[rows[1]]

    def run():
        for _ in range(steps):
            count[0] += 1
            adam.param_groups[0]["lr"] = 3e-3 * 0.5 * (1 + np.cos(np.pi * count[0] / 10**6))
            adam.zero_grad(set_to_none=True)
            value, known = before_first_activation()
            value = silu(torch.baddbmm(b2, silu(value), W2))
            value = torch.baddbmm(b3, value, W3)[..., 0]
            predicted = 0.5 * (value[:, :n_pairs] - value[:, n_pairs:])
            # members do not share weights: the sum of their losses trains each on its own
            ((predicted - known) ** 2).mean(dim=1).sum().backward()
            adam.step()

    return run, steps


def work(n_members, n_pairs):
    """Return the operations of the products of a step, first layer once per point."""
    after_first = 3 * 2 * 2 * n_pairs * (WIDTH * WIDTH + WIDTH)  # forward, and two backward
    first = 2 * 2 * 2 * (n_pairs // PARTNERS) * N_FEATURES * WIDTH  # no gradient of the rows
    return n_members * (after_first + first)


def measure(n_members, n_pairs, cores, repeats, clock):
    """Return seconds per step of the engine and both PyTorch versions, and the products' rate."""
    runners = [
        engine(n_members, n_pairs),
        pytorch(n_members, n_pairs, False, cores),
        pytorch(n_members, n_pairs, True, cores),
    ]
    for run, _ in runners:
        run()  # compiles, or allocates
    times, rates = [], []
    for _ in range(repeats):
        turn = []
        for run, steps in runners:
            start = clock()
            run()
            turn.append((clock() - start) / steps)
        times.append(turn)
        rates.append(product_rate(clock, 0.3))
    return np.median(times, axis=0), np.median(rates)


def main():
    arguments = frame.parse_arguments(__doc__, cores=1, repeats=9)
    cores, repeats = arguments.cores, arguments.repeats
    clock = use_cores(cores)
    rows = []
    for n_members, n_pairs in CASES:
        (ours, pairs, shared), products = measure(n_members, n_pairs, cores, repeats, clock)
        rate = work(n_members, n_pairs) / ours
        rows.append(
            f"{n_members} | {n_pairs} | {1e3 * ours:.3f} | {1e3 * pairs:.3f} | "
            f"{pairs / ours:.1f} | {1e3 * shared:.3f} | {shared / ours:.1f} | {rate / 1e9:.0f} | "
            f"{100 * rate / products:.0f} %"
        )
        print(rows[-1], flush=True)
    header = (
        "members | pairs | engine | PyTorch, pairs | ratio | PyTorch, shared | ratio | "
        "engine, GFLOP/s | share of SGEMM"
    )
    lines = [
        "# A training step of the engine, beside eager PyTorch and SGEMM",
        "",
        f"Milliseconds a step of all members, {cores} core(s), medians of {repeats} "
        f"turns. Hidden {WIDTH}–{WIDTH}, silu, {N_FEATURES} features, both orders of each pair, "
        "Adam, no embedding, no dropout. *PyTorch, pairs*: each pair computes its first layer. "
        "*PyTorch, shared*: the first layer is computed once a point, as in the engine. The share "
        "is that of the step's matrix products in the rate of a product of two 1024 × 1024 float32 "
        "matrices (numpy), timed in the same turns. Made by `python -m "
        "benchmarks.speed.neural_step "
        f"--cores {cores}`.",
        "",
        *frame.markdown_table(header, rows),
    ]
    name = "neural_step.md" if cores == 1 else f"neural_step_{cores}.md"
    frame.write_markdown(frame.RESULTS / name, lines)


if __name__ == "__main__":
    main()
