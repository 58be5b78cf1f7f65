"""BIDS: `sub-01[_ses-pre]_ce-GADOLINIUM_T1w.nii.gz`, and participants.tsv. Derivatives and source data are not read.

Source: the specification 1.10, bids-specification.readthedocs.io (entity `ce`, suffixes of anatomy). A T1w with an agent is the
T1ce. The words of `acq-` count as well, into which many write the agent; a T1w is left out whose labels contradict each other or
hold a word that may be an agent's, and so is a visit with several runs of a sequence: which one is meant is not guessed. pybids
would add nothing to the pattern.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mri_vit.importers import contrast_agent
from mri_vit.importers.contrast_agent import Agent
from mri_vit.importers.layout import UNDECIDED, Layout, Table
from mri_vit.importers.layouts.plain import COLUMNS

AGENT = re.compile(r"_ce-([A-Za-z0-9]+)")
NAMING = re.compile(r"_(?:acq|desc|rec|label)-([A-Za-z0-9]+)")  # labels that are free text; ses- and run- say nothing of a scan
# Of an agent within a label, which can hold no signs between words: post3d, fsgd, 1mmpost. What is glued to it is not known.
GLUED = re.compile(
    r"(?i)post(?!op|rt|foss|rad|chem|proc|er|ur|\d*(?:mo|wk|week|day))|gd|gad|contrast|kontrast|(?<![a-z])km|km(?![a-z])"
    r"|(?<![a-z])ce(?![a-z])|(?<!spa)(?<!surfa)(?<!sli)ce(?![a-z])|ce(?=\d)|t1w?c(?![a-z])|plusc?(?![a-z])|(?<![a-z0-9])c(?![a-z0-9])"
)
CHANNELS = {"T1w": "t1", "T2w": "t2", "FLAIR": "flair"}


def sequence(words: Mapping[str, str]) -> str:
    """The channel of a file by suffix and labels, `UNDECIDED` where labels contradict each other, "" of one that is not read."""
    agent = AGENT.search(words["labels"])
    by_labels = {contrast_agent.in_field(agent[1])} if agent else set()
    if words["sequence"] != "T1w":
        return "" if by_labels == {Agent.GIVEN} else CHANNELS[words["sequence"]]
    unknown = bool(agent) and Agent.UNSAID in by_labels
    naming = NAMING.findall(words["labels"])
    by_labels.add(contrast_agent.named(" ".join(naming)))
    if by_labels == {Agent.UNSAID} and any(GLUED.search(label) for label in naming):
        return UNDECIDED
    if by_labels >= {Agent.GIVEN, Agent.NONE} or Agent.UNCLEAR in by_labels or unknown:
        return UNDECIDED
    return "t1ce" if Agent.GIVEN in by_labels else "t1"


LAYOUT = Layout(
    name="bids",
    collection=False,
    example="sub-01/anat/sub-01_ce-GADOLINIUM_T1w.nii.gz",
    scans=re.compile(
        r"^(?!(?:.*/)?(?:derivatives|sourcedata)/)(?:.*/)?sub-(?P<patient>[A-Za-z0-9]+)(_ses-(?P<session>[A-Za-z0-9]+))?"
        r"(?P<labels>(?:_[a-z]+-[A-Za-z0-9]+)*)_(?P<sequence>T1w|T2w|FLAIR)\.nii(\.gz)?$"
    ),
    sequence=sequence,
    tables=(Table(id=("participant_id",), marks=(), ids=re.compile(r"(sub-)?(?P<patient>[A-Za-z0-9]+)"), columns=COLUMNS),),
)
