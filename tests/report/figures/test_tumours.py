"""Where a cohort's tumours lie: a mark for every mask, at its middle and as large as its volume."""

import numpy as np
from matplotlib.collections import PathCollection
from matplotlib.patches import Rectangle

from mri_vit.report.figures.tumours import PLANES, where_tumours_lie
from mri_vit.report.schema.parts import Tumour


def test_every_tumour_with_a_mask_has_a_mark_at_its_middle_and_doubtful_ones_are_rings():
    tumours = [
        Tumour(source="given", tumour_ml=10.0, centre_mm=(-30.0, 20.0, 5.0)),
        Tumour(source="found", tumour_ml=40.0, centre_mm=(25.0, -60.0, 30.0), confidence=0.9),
        Tumour(source="found", tumour_ml=5.0, centre_mm=(40.0, 0.0, -20.0), confidence=0.3),
        Tumour(source="found"),
    ]
    *projections, volumes = where_tumours_lie(tumours, sure=0.7).axes
    assert sum(bar.get_height() for bar in volumes.patches if isinstance(bar, Rectangle)) == 3
    for axes, (name, plane) in zip(projections, PLANES.items(), strict=True):
        assert axes.get_title() == name
        sure, doubtful = (one for one in axes.collections if isinstance(one, PathCollection))
        expected = np.array([one.centre_mm for one in tumours[:3]])[:, plane]
        np.testing.assert_allclose(np.concatenate([sure.get_offsets(), doubtful.get_offsets()]), expected)
        assert sure.get_sizes()[1] / sure.get_sizes()[0] == 4
        assert len(doubtful.get_facecolor()) == 0
