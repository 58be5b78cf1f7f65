"""A patient's maps by one network, before they become images: computed once, for pictures and for scores alike.

Letters: p tokens that are given, f those of them with brain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor

from mri_vit.data import tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.store import Inputs, all_tokens, token_file
from mri_vit.data.tokens import Tokens
from mri_vit.data.volume import Volume, read_mask
from mri_vit.explain.methods.relevance import relevances
from mri_vit.explain.methods.target import TargetSigns, predicted
from mri_vit.model.network import Network
from mri_vit.settings.schema import Study

Key = tuple[str, str]  # method and endpoint, "" where the map is the same for every endpoint


@dataclass(frozen=True, eq=False)
class Given:
    """What a network reads of a patient, the indices of the brain's places in it, and these places on the grid."""

    batch: Inputs
    brain: Integer[np.ndarray, "f"]
    at: Int[np.ndarray, "f"]


@dataclass(frozen=True, eq=False)
class PatientMaps:
    """One patient's maps by the network that is explained, which answer for the classes that `signs` name."""

    patient: Patient
    net: Network
    prepared: Tokens
    given: Given
    signs: TargetSigns
    value: dict[Key, Float[Tensor, "1 p"]]  # on all places that the network reads

    @cached_property
    def tumour(self) -> Volume | None:
        """The tumour mask, read once for pictures and scores; None where there is none."""
        return read_mask(self.patient.tumour_mask) if self.patient.tumour_mask else None


def of_patient(patient: Patient, net: Network, study: Study, called: Mapping[str, int] | None = None) -> PatientMaps:
    """The maps of the study's methods; the patient is prepared and the network in evaluation mode, on any device.

    `called` are classes by endpoint, 1 or -1, that its maps answer for instead of the class which this network predicts.
    """
    prepared = tokens.load(token_file(study, patient), study.channels)
    device = next(net.parameters()).device
    whole = given(prepared, study, device)
    signs = predicted(
        net, *whole.batch, {name: torch.tensor([float(sign)], device=device) for name, sign in (called or {}).items()}
    )
    return PatientMaps(patient, net, prepared, whole, signs, by(net, whole, study, signs))


def given(prepared: Tokens, study: Study, device: torch.device) -> Given:
    """What the network reads of a patient; a network on all places reads air as well, on which no map is judged."""
    patches, place = all_tokens(prepared, study)
    brain = np.flatnonzero(np.isin(place[0].numpy(), prepared.place))
    return Given((patches.to(device), place.to(device)), brain, place[0].numpy()[brain])


def by(net: Network, given: Given, study: Study, signs: TargetSigns) -> dict[Key, Float[Tensor, "1 p"]]:
    """A network's maps of what is given."""
    return relevances(net, *given.batch, study.explain.methods, signs)


def on_brain(value: dict[Key, Float[Tensor, "1 p"]], given: Given) -> dict[Key, Float[np.ndarray, "f"]]:
    """Maps on the brain's places alone."""
    return {key: relevance[0].detach().cpu().numpy()[given.brain] for key, relevance in value.items()}
