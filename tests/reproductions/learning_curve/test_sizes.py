"""The learning curve's settings: each size trains for as many steps, and pretrained models begin from their cohort's encoder."""

from __future__ import annotations

from pathlib import Path

from reproductions.learning_curve import __main__ as learning_curve

REPRODUCTIONS = Path(__file__).parents[3] / "pipelines" / "reproductions"


def test_at_every_size_each_contender_makes_as_many_steps_and_is_evaluated_as_often():
    whole = learning_curve.settings(1, 192)
    for size in learning_curve.SIZES:
        study = learning_curve.settings(1, size)
        assert str(size) in study.cohort.name
        assert size in (int(part) for part in study.output.name.split("-")[1:])
        for mine, theirs in [
            (study, whole),
            *((study.of(a), whole.of(b)) for a, b in zip(study.comparators, whole.comparators, strict=True)),
        ]:
            assert mine.train.epochs * size == theirs.train.epochs * 192
            assert mine.train.val_every * size == theirs.train.val_every * 192


def test_pretrained_contenders_start_from_their_cohorts_encoder_and_pretrain_no_more():
    begun = learning_curve.begun(learning_curve.settings(2, 48), 2)
    found = {comparator.name: begun.of(comparator) for comparator in begun.comparators}
    assert all(study.pretrain.method == "none" for study in found.values())
    weights = {name: study.model.weights for name, study in found.items() if study.model.weights}
    assert weights == {name: learning_curve.encoder(2, name) for name in ("vit-mae", "vit-dino")}
    assert {comparator.name for comparator in begun.comparators} | {"vit", "clinical"} == set(learning_curve.NAMES)
