"""The glossary: terms of the report with what they mean, and a text in which a term leads to its meaning."""

from __future__ import annotations

import re
from collections.abc import Mapping

from markupsafe import Markup, escape

TERMS: Mapping[str, str] = {
    "95 % interval": "Values of the true figure that agree with these patients: of a hundred such intervals, about 95 hold it.",
    "Adjusted p": "A p corrected for how many questions were asked, here by Holm's method, so that chance is not found "
    "by asking often.",
    "AUC": "Area under the ROC curve: the chance that a positive patient scores higher than a negative one. 0.5 "
    "is chance, 1 perfect.",
    "AUC(t)": "The AUC of who has died by a time t against who is alive then.",
    "Average precision": "The area under the curve of precision against recall; a model without skill reaches the prevalence.",
    "Brier score": "Mean squared error of a probability: 0 is perfect; of 0.5 for everybody, 0.25.",
    "Calibration": "Whether probabilities come true: of patients given 70 %, seven in ten should be positive.",
    "Calibration slope": "1 where probabilities are as extreme as they should be; below 1 they are too extreme, as of an "
    "overfitted model.",
    "Censored": "Followed up to a time and alive then: a death after it is not known of.",
    "CLS": "The token in which a Vision Transformer gathers what it predicts from.",
    "Concordance": "C: of two patients, how often the one who died earlier had the higher risk. 0.5 is chance, 1 perfect.",
    "Control": "A model that sees less than the scans, or permuted labels: what a model of the scans must beat, or "
    "what must find nothing.",
    "Fold": "A part of the patients that is predicted by a model trained on the other parts.",
    "Hazard ratio": "How many times the risk of dying at any moment one group has over another.",
    "Harrell's C": "Concordance over all pairs of patients of whom it is known who died first.",
    "Kaplan–Meier": "An estimate of the share of patients alive over time that uses the censored for as long as they "
    "were followed.",
    "Log-rank": "A test of whether two groups die at the same rate.",
    "Net benefit": "True positives less false positives, weighed by the threshold probability at which one would act, "
    "per patient.",
    "Out of fold": "Predicted by a model that was not trained on the patient.",
    "Permuted labels": "Labels dealt out to other patients at random: a study of them must find nothing.",
    "Restricted mean": "Mean survival up to a given day: the area under the survival curve until then.",
    "Rollout": "Attention of all layers multiplied through to the scan: what CLS looks at.",
    "Sensitivity": "The share of positive patients who are called positive.",
    "Shapley value": "What a sequence adds to a score, averaged over all orders of adding the sequences.",
    "Specificity": "The share of negative patients who are called negative.",
    "Threshold": "The score from which a patient is called positive.",
    "Uniform map": "A map that is the same everywhere in the brain: the unit of every map here.",
    "Uno's C": "Concordance weighted so that it does not depend on how long patients were followed.",
}
_ANY = re.compile(r"(?<![\w(])(" + "|".join(sorted(map(re.escape, TERMS), key=len, reverse=True)) + r")(?![\w(])", re.IGNORECASE)
_WRITTEN = {term.lower(): term for term in TERMS}


def anchor(term: str) -> str:
    """The id of a term's entry in the glossary."""
    return "term-" + re.sub(r"[^a-z0-9]+", "-", term.lower()).strip("-")


def explained(text: str) -> Markup:
    """The text with each term, where it first stands, leading to its entry and showing it when pointed at."""
    parts, end, met = [], 0, set()
    for found in _ANY.finditer(text):
        term = _WRITTEN[found[0].lower()]
        if term not in met:
            met.add(term)
            link = Markup('<a class="term" href="#{}" title="{}">{}</a>').format(anchor(term), TERMS[term], found[0])
            parts += [escape(text[end : found.start()]), link]
            end = found.end()
    return Markup("").join([*parts, escape(text[end:])])
