"""Where a study's work is done: the settings of its executor. No number depends on them. Plain data, importable by all."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from mri_vit.settings.recipe import Section


class Executor(Section):
    """Who does the work: patients in bundles, and the folds of networks."""

    kind: str = Field(
        default="local",
        pattern=r"^(local|slurm|dask://[^\s/]+:\d+)$",
        description="local (processes here), slurm (a cluster's jobs) or dask://host:port.",
    )
    retries: int = Field(default=2, ge=0, description="How often what a cluster lost is handed in again.")
    bundle: int = Field(  # each pays some ten seconds of imports: 5 % of 20 patients at 10 s
        default=20, ge=1, description="Patients in a job of a cluster, one after the other."
    )


class Slurm(Section):
    """What each job of the executor slurm asks for."""

    partition: str | None = Field(default=None, description="Partition; unset is the cluster's default.")
    gpus: int = Field(default=0, ge=0, description="GPUs of a job; one is used, several with train.devices.")
    time: int = Field(  # long enough for a fold of configs/gbm.toml; a fold that needs more goes on in a second term
        default=240, ge=1, description="Minutes of a job, which then goes on from its checkpoint in another."
    )
    cpus: int | None = Field(default=None, ge=1, description="CPU cores; unset is train.threads.")
    memory_gb: float = Field(default=16.0, gt=0, description="Memory in GB.")
    at_a_time: int = Field(default=256, ge=1, description="Jobs that may run at a time.")
    options: dict[str, Any] = Field(default={}, description='Further options of sbatch, such as {account = "neuro"}.')
