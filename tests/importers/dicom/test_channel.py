"""Which channel a series is taken for, by words, by coded fields and by times, and which of several is chosen."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mri_vit.importers.dicom import channel as candidates
from mri_vit.importers.dicom import channel as recognise
from mri_vit.importers.dicom.channel import AgentBy, Candidate, ChannelGuess
from mri_vit.importers.dicom.header import File, Image, Tags
from mri_vit.importers.dicom.series import Series

SILENT = Tags("", "", ("ORIGINAL", "PRIMARY", "M"), "", (), (), math.nan, math.nan, math.nan, False, 1)


@pytest.mark.parametrize(
    ("words", "channel"),
    [
        ("t1_mprage_sag_p2_iso", "t1"),
        ("AX T1 PRE", "t1"),
        ("Sag T1 FLAIR", "t1"),  # GE's T1-weighted inversion recovery
        ("t1_se_tra ohne KM", "t1"),
        ("AX T1 W/O", "t1"),
        ("AX T1 C-", "t1"),
        ("3D BRAVO", "t1"),
        ("t1_mprage_pat2", "t1"),
        ("T1 postop", "t1"),
        ("AxT1 post op", "t1"),
        ("*tfl3d1_16ns", "t1"),
        ("AX T1 POST", "t1ce"),
        ("T1 +C 3D", "t1ce"),
        ("T1_MPRAGE_POST_GAD", "t1ce"),
        ("t1_tse_tra_km", "t1ce"),
        ("T1Gd", "t1ce"),
        ("t1ce", "t1ce"),
        ("sT1W_3D_TFE", "t1"),
        ("csT1W_TSE", "t1"),
        ("WIP T1W_3D_TFE_KM SENSE", "t1ce"),
        ("3D_Brain_VIEW_T1_post", "t1ce"),
        ("HKCL SE T1 tra post KM", "t1ce"),
        ("GdT1 tra", "t1ce"),
        ("T1 조영전", "t1"),
        ("T1 조영후", "t1ce"),
        ("MPRAGE+C", "t1ce"),
        ("AX T1 C+", "t1ce"),
        ("AX T2 FLAIR", "flair"),
        ("AxT2FLAIR", "flair"),
        ("FLAIR post contrast", "flair"),
        ("t2_tirm_tra_dark-fluid", "flair"),
        ("*spcir_242ns", "flair"),
        ("AX T2 TSE", "t2"),
        ("t2_space_sag", "t2"),
        ("T2W_TSE", "t2"),
        ("Apparent Diffusion Coefficient", "adc"),
        ("ep2d_diff_ADC", "adc"),
        ("SWI_Images", "swi"),
        ("pcasl_3d", "asl"),
        ("localizer", None),
        ("t2_localizer", None),
        ("AX T2* GRE", None),
        ("AX T2 GRE", None),
        ("T2_FFE", None),
        ("COR T2 STIR", None),
        ("t2_spc_da-fl_sag", "flair"),
        ("ep2d_diff_3scan_TRACEW", None),
        ("ep2d_perf DSC T2", None),
        ("T1 MIP", None),
        ("AX T1 SUB", None),
        ("PD axial", None),
        ("TOF 3D angio", None),
    ],
)
def test_a_name_says_which_channel_a_series_is(words: str, channel: str | None) -> None:
    guess = recognise.recognise_channel(replace(SILENT, words=words))
    assert (guess.channel, guess.known) == (channel, True)


def test_two_echoes_named_as_one_are_told_apart_by_their_times() -> None:
    both = replace(SILENT, words="PD+T2 TSE axial", repetition_ms=3000.0)
    assert recognise.recognise_channel(replace(both, echo_ms=95.0)).channel == "t2"
    assert recognise.recognise_channel(replace(both, echo_ms=12.0)).channel is None


@pytest.mark.parametrize(
    ("agent", "words", "channel"),
    [
        ("", "t1 tse", "t1"),
        ("DOTAREM", "t1 tse", "t1ce"),
        ("NO", "t1 tse", "t1"),
        ("N/A", "t1 tse", "t1"),
        ("DOTAREM", "t1 tse pre", "t1"),  # the field is often filled before the agent is given
        ("", "t1 tse post", "t1ce"),
        ("DOTAREM", "t2 tse", "t2"),
    ],
)
def test_the_name_is_asked_before_the_contrast_agent(agent: str, words: str, channel: str) -> None:
    assert recognise.recognise_channel(replace(SILENT, words=words, agent=agent)).channel == channel


@pytest.mark.parametrize(
    ("code", "channel", "known"),
    [("T1", "t1", True), ("T2", "t2", True), ("FLUID_ATTENUATED", "flair", True), ("DIFFUSION", None, True), ("X", None, False)],
)
def test_the_coded_contrast_of_an_enhanced_file_is_heeded(code: str, channel: str | None, known: bool) -> None:
    guess = recognise.recognise_channel(replace(SILENT, contrast=code))
    assert (guess.channel, guess.known) == (channel, known)


@pytest.mark.parametrize(
    ("echo", "repetition", "inversion", "sequence", "variant", "channel"),
    [
        (14, 600, math.nan, ("SE",), (), "t1"),
        (3, 2300, 900, ("GR", "IR"), ("SK", "SP", "MP"), "t1"),
        (3.2, 8, 450, ("GR",), ("SP",), "t1"),
        (3.2, 8, math.nan, ("GR",), ("SS", "SP"), "t1"),
        (95, 5000, math.nan, ("SE",), ("SK",), "t2"),
        (100, 9500, 2400, ("SE", "IR"), ("SK",), "flair"),
        (394, 5000, 1800, ("SE", "IR"), ("SK",), "flair"),
        (3, 6, math.nan, ("GR",), ("SS",), None),  # balanced
        (20, 28, math.nan, ("GR",), ("SP",), None),  # susceptibility or angiography
        (12, 4000, math.nan, ("SE",), ("SK",), None),  # proton density
        (60, 4000, 150, ("SE", "IR"), ("SK",), None),  # STIR
        (90, 6000, math.nan, ("EP",), ("SK",), None),  # diffusion
        (math.nan, math.nan, math.nan, (), (), None),
    ],
)
def test_times_say_it_where_all_else_is_silent(
    echo: int | float,
    repetition: int | float,
    inversion: int | float,
    sequence: tuple[str, ...],
    variant: tuple[str, ...],
    channel: str | None,
) -> None:
    tags = replace(
        SILENT,
        echo_ms=float(echo),
        repetition_ms=float(repetition),
        inversion_ms=float(inversion),
        sequence=sequence,
        variant=variant,
    )
    assert recognise.recognise_channel(tags).channel == channel


def test_an_image_of_phase_or_a_localizer_is_known_by_its_image_type() -> None:
    for part in ("P", "LOCALIZER", "PROJECTION IMAGE"):
        assert recognise.recognise_channel(replace(SILENT, words="t1", image_type=("DERIVED", "PRIMARY", part))).channel is None
    assert recognise.recognise_channel(replace(SILENT, image_type=("DERIVED", "PRIMARY", "ADC"))).channel == "adc"


def test_a_reason_repeats_no_word_of_a_header() -> None:
    guess = recognise.recognise_channel(replace(SILENT, words="T1 MPRAGE JANE DOE POST", agent="DOTAREM 12 ml Dr Roe"))
    assert guess.channel == "t1ce"
    assert not {"JANE", "DOE", "ROE", "DOTAREM"} & set(guess.reason.upper().split())


def made(slices: int = 160, step_mm: float = 1.0, is_3d: bool = True, number: int = 1, **tags: Any) -> Candidate:
    """A candidate of axial slices."""
    images = tuple(
        Image(f"1.{k}", (0.0, 0.0, k * step_mm), (1.0, 0.0, 0.0, 0.0, 1.0, 0.0), (1.0, 1.0), (256, 256), k, ())
        for k in range(slices)
    )
    said = replace(SILENT, is_3d=is_3d, number=number, **tags)
    file = File(Path("x"), "1.0", "1.2.840.10008.1.2", 1, 1, "MR", None, 0)
    series = Series("", "1", "", f"2.{slices}.{number}", 0, said, (file,), images)
    return Candidate(series.series_uid, series, ChannelGuess("t1", True, "T1"))


def test_the_best_of_several_is_whole_original_3d_fine_and_late() -> None:
    thin = made(slices=40, step_mm=0.5)  # a slab, finer than all
    thick = made(slices=24, step_mm=5.0, is_3d=False)
    reformatted = made(image_type=("DERIVED", "SECONDARY", "MPR"), slices=161)
    first, again = made(number=3), made(number=4)
    order = candidates.ranked([thin, thick, reformatted, first, again])
    assert order == [again, first, thick, reformatted, thin]
    assert candidates.why_not(thick, again) == "another was chosen for being 3D"
    assert candidates.why_not(thin, again) == "another was chosen for covering the head"
    assert candidates.why_not(first, again) == "another was chosen for being later"


def test_finer_voxels_are_said_with_their_size() -> None:
    coarse, fine = made(slices=60, step_mm=2.0), made(slices=120)
    assert candidates.ranked([coarse, fine])[0] is fine
    assert candidates.why_not(coarse, fine) == "another was chosen for finer voxels (mm): 1 against 2"


@pytest.mark.parametrize(
    ("description", "protocol", "agent", "channel", "by"),
    [
        ("Ax T1 PRE", "BRAIN TUMOR W CONTRAST", "", "t1", AgentBy.NAME),
        ("Ax T1 PRE", "t1_tse_km", "DOTAREM", "t1", AgentBy.NAME),
        ("Ax T1", "BRAIN TUMOR W CONTRAST", "", "t1", AgentBy.NOTHING),  # the examination's protocol says nothing of a series
        ("Ax T1", "MRI BRAIN W WO CONTRAST", "", "t1", AgentBy.NOTHING),
        ("Ax T1", "MRI BRAIN WITHOUT CONTRAST", "GADOVIST", "t1ce", AgentBy.FIELD),
        ("Ax T1", "t1_tse_tra_km", "", "t1ce", AgentBy.NAME),
        ("", "t1_mprage_sag_ohne_KM", "GADOVIST", "t1", AgentBy.NAME),
        ("Ax T1", "T1 W WO CONTRAST", "GADOVIST", "t1", AgentBy.UNCLEAR),
        ("T1 pre and post", "t1_tse", "GADOVIST", "t1", AgentBy.UNCLEAR),
        ("T1 AX PRE OP STEALTH", "", "MULTIHANCE", "t1ce", AgentBy.FIELD),
        ("SAG T1 POST FOSSA", "", "", "t1", AgentBy.NOTHING),
        ("Pre-Gd T1", "", "GADAVIST", "t1", AgentBy.NAME),
        ("sT1W_3D_TFE", "WIP sT1W_3D_TFE KM", "", "t1ce", AgentBy.NAME),
        ("t1 tse", "t1 tse", "keine", "t1", AgentBy.FIELD),
        ("t1 tse", "t1 tse", "0 ml", "t1", AgentBy.FIELD),
        ("t1 tse", "t1 tse", "unknown", "t1", AgentBy.NOTHING),
    ],
)
def test_the_series_own_name_is_asked_before_its_protocol_s_and_before_the_field(
    description: str, protocol: str, agent: str, channel: str, by: AgentBy
) -> None:
    guess = recognise.recognise_channel(replace(SILENT, words=f"{description}\n{protocol}\n*tfl3d1\n", agent=agent))
    assert (guess.channel, guess.agent_by) == (channel, by)


def test_a_series_that_a_name_makes_t1ce_comes_before_one_that_the_field_makes() -> None:
    fields_are_copied = replace(made(), guess=ChannelGuess("t1ce", True, "T1", AgentBy.FIELD))
    named = replace(made(slices=30, step_mm=5.0, is_3d=False), guess=ChannelGuess("t1ce", True, "T1", AgentBy.NAME))
    assert candidates.ranked([fields_are_copied, named]) == [named, fields_are_copied]


@pytest.mark.parametrize(
    ("by", "undecided"),
    [
        ((AgentBy.NOTHING,), []),
        ((AgentBy.UNCLEAR,), [0]),
        ((AgentBy.NOTHING, AgentBy.NOTHING), [0, 1]),
        ((AgentBy.NOTHING, "t1ce"), []),
        ((AgentBy.UNCLEAR, "t1ce"), [0]),
        ((AgentBy.NOTHING, "t1"), [0]),
        ((AgentBy.NOTHING, AgentBy.UNCLEAR, "t1ce"), [1]),
        (("t1", "t1ce"), []),
        ((AgentBy.FIELD,), []),
        ((AgentBy.FIELD, AgentBy.FIELD), [0, 1]),  # filled for the whole examination
        ((AgentBy.FIELD, "t1ce"), []),
        ((AgentBy.FIELD, AgentBy.NOTHING), []),
    ],
)
def test_what_names_and_fields_leave_open(by: tuple[AgentBy | str, ...], undecided: list[int]) -> None:
    guesses = [
        ChannelGuess(b, True, "T1", AgentBy.NAME)
        if isinstance(b, str)
        else ChannelGuess("t1ce" if b is AgentBy.FIELD else "t1", True, "T1", b)
        for b in by
    ]
    t1s = [replace(made(number=number), guess=guess) for number, guess in enumerate(guesses)]
    assert candidates.open_t1(t1s) == [t1s[at] for at in undecided]


def test_what_is_reformatted_from_the_only_t1_leaves_nothing_open() -> None:
    derived = made(number=2, image_type=("DERIVED", "SECONDARY", "MPR"))
    silent = [replace(one, guess=ChannelGuess("t1", True, "T1", AgentBy.NOTHING)) for one in (made(), derived)]
    assert candidates.open_t1(silent) == []
    assert candidates.open_t1([*silent, replace(made(number=3), guess=silent[0].guess)]) != []
