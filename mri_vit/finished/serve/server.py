"""Server: an exported model, an address and a folder in; answers until it is stopped."""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
import tempfile
import threading
from pathlib import Path

import uvicorn
from rich.console import Console

from mri_vit.errors import UsageError
from mri_vit.finished import exported_model
from mri_vit.finished.predict import Allowed
from mri_vit.finished.serve.app import Service, build_app
from mri_vit.finished.serve.jobs import SPOOL, Jobs, held
from mri_vit.finished.serve.supervisor import Supervisor
from mri_vit.finished.serve.uploads import Limits
from mri_vit.run.screen import WARNING, duration, say

TOKEN = "MRI_VIT_TOKEN"  # environment variable
LEAST_TOKEN = 16  # letters: a shorter one could be guessed
LOOK_S = 60.0  # between looks for patients who are to be deleted
STOPPING_S = 5  # that answers in progress are given


def serve(
    model: Path,
    host: str,
    port: int,
    folder: Path,
    keep_s: float,
    allowed: Allowed,
    console: Console,
    limits: Limits | None = None,
) -> None:
    """Answer at an address until the process is stopped; what waits goes on with the next start.

    Raises UsageError where there is no model, or the address is taken or not of this machine; FolderHeld where another service
    has the folder; IntegrityError where the model was changed.
    """
    if not exported_model.is_model(model):
        raise UsageError(f"{model}: no {exported_model.FILE}; expected a folder of `mri-vit export model`")
    opened = exported_model.open_model(model)
    opened.refuse_changed(Console(quiet=True))
    token = None if _is_loopback(host) else _token()
    with held(folder), _bound(host, port) as listening:
        jobs = Jobs(folder.resolve(), keep_s)
        (jobs.folder / SPOOL).mkdir()
        tempfile.tempdir = str(jobs.folder / SPOOL)  # what arrives, too, lies on the disk whose room is looked at
        supervisor = Supervisor(model.resolve(), jobs, allowed)
        app = build_app(Service(opened, jobs, supervisor, limits or Limits(), token, host))
        address = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
        say(console, f"{opened.study.name}: {address}/ and for programs {address}/docs; stop with Ctrl+C")
        say(console, f"patients lie in {folder} and are deleted {duration(keep_s)} after they are finished")
        if token:
            say(console, f"token: {f'that of {TOKEN}' if os.environ.get(TOKEN) else token}")
            say(console, "what is sent is not encrypted: put a proxy with TLS in front of the service", WARNING)
        supervisor.start()
        over = threading.Event()
        threading.Thread(target=_delete_old, args=(jobs, over), daemon=True).start()
        try:
            uvicorn.Server(
                uvicorn.Config(
                    app, log_level="warning", access_log=False, timeout_graceful_shutdown=STOPPING_S, server_header=False
                )
            ).run(sockets=[listening])
        finally:
            over.set()
            supervisor.stop()


def _delete_old(jobs: Jobs, over: threading.Event) -> None:
    """Keep the time that is stated, whatever the worker does."""
    while not over.wait(LOOK_S):
        jobs.delete_old()


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _token() -> str:
    token = os.environ.get(TOKEN) or secrets.token_urlsafe(24)
    if len(token) < LEAST_TOKEN:
        raise UsageError(
            f"{TOKEN} has {len(token)} letters; expected at least {LEAST_TOKEN}, as any other address than loopback needs"
        )
    return token


def _bound(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UsageError(f"{host}:{port} cannot be listened on: {reason}; choose another --port or --host") from None
