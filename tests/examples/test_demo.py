"""The demo: its results agree with the truth of its generated table."""

import sys

import pytest

from examples import demo


def test_samples_have_offsets_noise_and_no_effect_of_stirring(rng):
    X, laboratory, measured = demo.make_samples(500, "AE", rng)
    errors = measured - demo.true_impurity(X) - laboratory.map(demo.OFFSETS)
    assert errors.std() == pytest.approx(demo.NOISE, rel=0.15)
    stirred = X.assign(**{"stirring [1/min]": 0})
    assert (demo.true_impurity(stirred) == demo.true_impurity(X)).all()


@pytest.mark.slow
def test_results_agree_with_the_truth(tmp_path, monkeypatch, capsys, shipped_defaults):
    monkeypatch.setattr(sys, "argv", ["demo", "--output", str(tmp_path)])
    demo.main()  # raises SystemExit where a result does not agree
    assert "NO" not in capsys.readouterr().out
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"samples.csv", "samples.twin", "advice.html", "demo.png"}
