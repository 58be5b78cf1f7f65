"""Verbs on a study: each loads the settings and calls a stage. Everything slow is imported inside, so that --help is fast."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mri_vit.cli.arguments import Count, Deaths, Discrimination, Overrides, Several, Share, StudyFile, loaded, trained
from mri_vit.errors import UsageError
from mri_vit.run import files

if TYPE_CHECKING:
    from rich.console import Console

    from mri_vit.qc.check import CheckedCohort
    from mri_vit.settings.schema import Kind, Study


def demo(study: Path | None = None, *, kinds: bool = False, **overrides: Overrides) -> int:
    """Make the built-in synthetic cohort where STUDY expects it, then run STUDY, or the demo's own study.

    Exit code 1: a verdict differs from the simulated effect.

    Parameters
    ----------
    study
        Study file; by default configs/demo.toml, or mri-vit-demo/configs/demo.toml, which is written if it is missing.
    kinds
        Give the cohort labels of further kinds too: types, grades and a number, for a STUDY that names them as endpoints.
    """
    from rich.console import Console

    from mri_vit.run.screen import say, waiting
    from mri_vit.settings.file import demo_study_file

    study, console = study or demo_study_file(), Console()
    settings = loaded(study, overrides)  # before what takes longer to import
    from mri_vit import synthetic
    from mri_vit.study import run

    say(console, f"study file {study}, run {settings.output}")
    with waiting(console, "making the built-in cohort"):
        synthetic.make(settings.cohort.parent, kinds=kinds)
    return run(settings, console)


def check(study: StudyFile, *, json: bool = False, **overrides: Overrides) -> int:
    """List every problem of a study, and the hours, disk and memory that it needs; prepares and trains nothing.

    Exit code 2: the study cannot run; 3: patients would be excluded.

    Parameters
    ----------
    json
        Print one JSON document instead, with every patient's id; `mri-vit schema --of check` describes it.
    """
    settings = loaded(study, overrides)  # before what takes longer to import
    from rich.console import Console

    from mri_vit.preflight import document
    from mri_vit.preflight.check import check as checked_study
    from mri_vit.run.screen import say

    findings = checked_study(settings)
    if json:
        print(findings.model_dump_json(indent=1))
    else:
        console = Console()
        for line, style in document.lines(findings):
            say(console, line, style)
    return findings.exit_code


def plan(
    patients: Count,
    *,
    positive: Share | None = None,
    deaths: Deaths | None = None,
    folds: Several = 5,
    repeats: Count = 1,
    results: Count = 1,
    sites: Count = 1,
    parameters: Count = 10,
    auc: Discrimination | None = None,
    c: Discrimination | None = None,
    external: bool = False,
    json: bool = False,
) -> None:
    """State which AUC or C so many PATIENTS can show, before any data.

    Also how wide its interval would be, and how many patients a regression and its validation need.

    Parameters
    ----------
    patients
        Patients whose label is known.
    positive
        Share of positives of a marker; 0.5 where neither this nor --deaths is given.
    deaths
        Share of patients who die, of a survival endpoint. Deaths are taken as spread over the follow-up; where those alive are
        followed longest, less is needed.
    folds
        Folds of cross-validation.
    repeats
        Times that the patients are divided anew.
    results
        Endpoints times compared models, which are corrected together (Holm).
    sites
        Sites of one size, among whose patients the model is judged too.
    parameters
        Predictor parameters of the regression whose sample size is asked.
    auc
        AUC of a marker that is expected; by default 0.80, about the best that is published of images alone.
    c
        C of survival that is expected; by default 0.74, likewise.
    external
        The models come from elsewhere and are not trained on these patients, who are then of one fold.
    json
        Print one JSON list instead.
    """
    import json as as_json

    from rich.console import Console

    from mri_vit.crossval.power import nominal
    from mri_vit.kinds.kind import part
    from mri_vit.preflight import document
    from mri_vit.preflight.plan import plan as planned
    from mri_vit.run.screen import say

    if positive is None and deaths is None:
        positive = 0.5
    if external:  # one group of patients, on which no model was trained
        folds, repeats = 1, 1
    kinds: tuple[tuple[Kind, float | None, float | None], ...] = (("binary", positive, auc), ("survival", deaths, c))
    found = []
    for kind, share, expected in kinds:
        if share is None:
            continue
        of_kind, outcomes = part(kind, "labels"), nominal(kind, patients, share, folds, repeats, sites)
        least = of_kind.count_rarer(outcomes.labels)
        if least < folds:  # as a study is refused, see `folds.check`
            whose = f"{least} {of_kind.rarer} among {patients} patients with a share of {share:g}"
            raise UsageError(f"{of_kind.planned_as}: {folds} folds, but {whose}")
        expected = expected or of_kind.expected
        found.append(planned(of_kind.planned_as, outcomes, share, results, expected, parameters, not external))
    if json:
        print(as_json.dumps([one.model_dump(mode="json") for one in found], indent=1))
        return
    console = Console()
    for one in found:
        for line, style in document.power_lines(one):
            say(console, line, style)


def prepare(study: StudyFile, **overrides: Overrides) -> int:
    """Prepare every patient's scans onto the grid; works even with too few patients for folds."""
    settings = loaded(study, overrides)  # before what takes longer to import

    from rich.console import Console

    with _checked_cohort(settings, Console()) as checked:
        return 3 if checked.excluded else 0


def qc(study: StudyFile, **overrides: Overrides) -> int:
    """Prepare the patients that are not prepared yet, check the quality of all, and write a page that shows the worst first."""
    settings = loaded(study, overrides)

    from rich.console import Console

    console = Console()
    with _checked_cohort(settings, console) as checked:
        from mri_vit.qc import page

        page.write(settings, checked, settings.output / files.QC_FOLDER, console)
        return 3 if checked.excluded else 0


def pretrain(study: StudyFile, **overrides: Overrides) -> None:
    """Pretrain encoders without labels on the prepared patients; `train` does this too where the study asks for it."""
    _stage("pretrain", loaded(study, overrides))


def train(study: StudyFile, **overrides: Overrides) -> None:
    """Train and test every model by cross-validation."""
    _stage("train", loaded(study, overrides))


def explain(study: StudyFile, **overrides: Overrides) -> None:
    """Write attention and attribution maps in each patient's own space, and score them."""
    _stage("explain", trained(loaded(study, overrides)))


@contextmanager
def _checked_cohort(settings: Study, console: Console) -> Iterator[CheckedCohort]:
    """Prepare and check every patient, without making folds; the run's folder is locked meanwhile."""
    from mri_vit.data import cohort, run_cohort
    from mri_vit.run.folder import claimed

    with claimed(settings) as folder:
        patients = run_cohort.freeze(settings, cohort.of_study(settings), folder)
        from mri_vit.qc.check import prepare_and_check  # here, because its libraries take a second to import

        yield prepare_and_check(settings, patients, folder, console)


def _stage(name: str, study: Study) -> None:
    from rich.console import Console

    from mri_vit import study as stages
    from mri_vit.run.folder import claimed

    with claimed(study) as folder:
        getattr(stages, name)(study, folder, Console())


def run(study: StudyFile, *, detach: bool = False, **overrides: Overrides) -> int:
    """Run all stages in order; continues where an earlier run stopped.

    Parameters
    ----------
    detach
        Return at once and run in the background; messages go to run.log in the run's folder.
    """
    from rich.console import Console

    settings = loaded(study, overrides)  # before torch, which takes seconds to import
    if detach:
        from mri_vit.run.jobs import detached
        from mri_vit.run.screen import say

        process = detached(["run", str(study), *(f"--{key}={value}" for key, value in overrides.items())], settings.output)
        say(Console(), f"process {process} runs the study; `mri-vit status {settings.output}` shows its progress")
        say(Console(), f"its messages go to {settings.output / files.LOG}")
        return 0
    from mri_vit.study import run as run_study

    return run_study(settings, Console())
