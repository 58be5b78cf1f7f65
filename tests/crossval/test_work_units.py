"""Folds side by side: they come to what folds one after the other come to."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from mri_vit.crossval import comparison, folds, loop, work_units
from mri_vit.data import cohort
from mri_vit.run.jobs import Workplace
from mri_vit.settings.recipe import Comparator
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import Controls

pytestmark = pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*")  # Fabric's and torch's notes on this machine


def handed_over(function: Callable[..., Any], jobs: Mapping[str, tuple[Any, ...]], at: Workplace) -> Iterator[tuple[str, Any]]:
    """As `executor.each`, in this process (another's imports take ten seconds), but with all that is handed over pickled."""
    for name, arguments in jobs.items():
        function, arguments = pickle.loads(pickle.dumps((function, arguments)))
        yield name, function(*arguments)


@pytest.fixture
def study(tiny: Study) -> Study:
    """Two folds of the tiny study's network, of one that is pretrained for each fold, and of the control on permuted labels."""
    comparators = (Comparator(name="own", pretrain={"epochs": 1, "method": "mae", "patients": "others"}),)
    train = tiny.train.model_copy(update={"epochs": 1})
    update = {"comparators": comparators, "train": train, "controls": Controls(models=("shuffled",))}
    return tiny.model_copy(update=update)


def test_what_is_made_side_by_side_is_what_comes_one_after_the_other(study, monkeypatch):
    patients = cohort.read(study.cohort, study.endpoints)
    splits = folds.make(patients, study.endpoints, study.train, study.seed)
    ahead, plain = study.output / "ahead", study.output / "plain"
    monkeypatch.setattr(work_units.executors, "each", handed_over)
    made = []
    for units in (work_units.encoder_units, work_units.fold_units):
        made += [unit.title for unit in work_units.work_through(units(study, patients, splits, ahead), Workplace(2))]
        assert not units(study, patients, splits, ahead)
    both = [f"fold-{1 + n}" for n in range(study.train.folds)]
    assert made == [
        *(f"pretrain own {fold}" for fold in both),
        *(f"own {fold}" for fold in both),
        *both,
        *(f"shuffled {fold}" for fold in both),
    ]
    begun = []
    for run in (ahead, plain):
        comparison.run(study, patients, splits, run, lambda title: begun.append(title) or (lambda *_: None), print)
    assert len(begun) == len(made), "the first run found everything done, the second did everything"
    for name in ("predictions.csv", "survival.csv"):
        assert (ahead / name).read_bytes() == (plain / name).read_bytes()


def test_a_fold_that_is_handed_out_twice_is_fitted_once(study, monkeypatch):
    patients = cohort.read(study.cohort, study.endpoints)
    splits = folds.make(patients, study.endpoints, study.train, study.seed)
    unit = next(one for one in work_units.fold_units(study, patients, splits, study.output) if one.title == "fold-1")
    fitted, fit = [], loop._one_fold

    def counted(*arguments: Any) -> Any:
        fitted.append(threading.get_ident())
        return fit(*arguments)

    monkeypatch.setattr(loop, "_one_fold", counted)
    both = [threading.Thread(target=unit.function, args=unit.arguments) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert len(fitted) == 1
    assert loop.done(unit.folder)
