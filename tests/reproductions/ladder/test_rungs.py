"""The sizes of a ladder: each a part of the next, trained for as many steps; what its page could not show is refused."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from reproductions.ladder import __main__ as ladder

from mri_vit.errors import UsageError
from mri_vit.settings.recipe import Comparator
from mri_vit.settings.schema import Endpoint, Study

REPRODUCTIONS = Path(__file__).parents[3] / "pipelines" / "reproductions"


def test_each_size_of_a_ladder_is_a_part_of_the_next_and_trains_for_as_many_steps(tiny: Study, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ladder.ladder_page, "FEWEST", 5)
    of = binary(tiny)
    made = ladder.rungs(of)
    assert [rung.size for rung in made] == [21, 10, 5]  # of 24 patients three have no label
    for larger, smaller in pairwise(made):
        assert {p.id for p in smaller.patients} < {p.id for p in larger.patients}
        assert smaller.study.output != larger.study.output
    assert [rung.study.train.epochs for rung in made] == [of.train.epochs, 2 * of.train.epochs, 4 * of.train.epochs]
    assert all(p.knows(of.endpoints[0]) for rung in made for p in rung.patients)
    assert [rung.patients for rung in ladder.rungs(of)] == [rung.patients for rung in made]
    other = ladder.rungs(of.model_copy(update={"seed": 1}))
    assert other[1].patients != made[1].patients


def test_a_ladder_refuses_what_its_page_could_not_show(tiny: Study):
    of = binary(tiny)
    with pytest.raises(UsageError, match="of binary markers; found the endpoint os"):
        ladder.rungs(tiny)
    with pytest.raises(UsageError, match=r"divides the patients once; found train\.repeats 2"):
        ladder.rungs(of.model_copy(update={"train": of.train.model_copy(update={"repeats": 2})}))
    pretrained = Comparator(name="mae", pretrain={"method": "mae"})
    with pytest.raises(UsageError, match="labels alone; mae is pretrained"):
        ladder.rungs(of.model_copy(update={"comparators": (pretrained,)}))
    with pytest.raises(UsageError, match="21 patients with a label; a ladder needs 24 or more"):
        ladder.rungs(of)
    with pytest.raises(UsageError, match="this study has a cohort of its own"):
        ladder.main(ladder.CONFIG.with_name("ladder_brats2021.toml"), seeds=(1, 2))


def binary(tiny: Study) -> Study:
    """The tiny study of MGMT alone, with a run for each size."""
    output = tiny.output.with_name("run-{patients}")
    return tiny.model_copy(update={"endpoints": (Endpoint(name="mgmt", kind="binary"),), "output": output})
