"""App: the pages and the interface for programs of `mri-vit serve`; what is sent goes into the queue, results come back.

A browser gets pages, a program (that does not accept text/html) JSON, from the same addresses. Nothing is loaded from elsewhere.
"""

from __future__ import annotations

import hmac
import json
import re
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mri_vit import style
from mri_vit.errors import MriVitError, OutOfResource, UsageError
from mri_vit.finished.exported_model import ExportedModel
from mri_vit.finished.serve import results, uploads
from mri_vit.finished.serve.jobs import Job, Jobs, QueueFull
from mri_vit.finished.serve.supervisor import Supervisor
from mri_vit.finished.serve.uploads import GIB, Limits, Sent, TooMuch
from mri_vit.run.resource import lack
from mri_vit.settings import recipe

COOKIE = "mri-vit-token"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")  # hosts that a page elsewhere cannot pass for: its name is another
POLICY = style.content_policy(
    {"style-src": "'self'", "script-src": "'self'", "connect-src": "'self'", "img-src": "'self'", "form-action": "'self'"}
)
CODES = {OutOfResource: 507, TooMuch: 413, QueueFull: 503}  # of other errors of ours 400
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin"}
TYPES = {".js": "text/javascript", ".css": "text/css"}
FIELDS = 20  # of a form: the sequences, mask, archive, name
Next = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, eq=False)
class Service:
    """What the pages need."""

    model: ExportedModel
    jobs: Jobs
    supervisor: Supervisor
    limits: Limits
    token: str | None  # None: every user of this machine may ask
    host: str = LOOPBACK[0]


def build_app(service: Service) -> Starlette:
    """The application, for any ASGI server."""
    middleware = [Middleware(_Limited, limit=service.limits.sent), Middleware(BaseHTTPMiddleware, dispatch=_guard(service))]
    pages = Pages(service)
    return Starlette(
        routes=[
            Route("/", pages.home),
            Route("/login", pages.login, methods=["POST"]),
            Route("/patients", pages.patients, methods=["GET"]),
            Route("/patients", pages.add, methods=["POST"]),
            Route("/patients/{id}", pages.patient, methods=["GET"]),
            Route("/patients/{id}", pages.delete, methods=["DELETE"]),
            Route("/patients/{id}/delete", pages.delete, methods=["POST"]),
            Route("/patients/{id}/dicom.zip", pages.dicom),
            Route("/patients/{id}/result/{file:path}", pages.result),
            Route("/health", pages.health),
            Route("/docs", pages.docs),
            Route("/serve.css", pages.static),
            Route("/serve.js", pages.static),
        ],
        middleware=middleware,
        exception_handlers={  # type: ignore[arg-type]  # each takes its own kind of error
            HTTPException: pages.refused,
            MriVitError: pages.fault,
            OSError: pages.fault,
            ClientDisconnect: pages.gone,
            Exception: pages.bug,
        },
    )


class Pages:
    """The addresses of the service."""

    def __init__(self, service: Service) -> None:
        self.of, self.templates = service, style.templates("mri_vit.finished.serve")
        study = service.model.study
        self.channels, self.needs = study.channels, study.prepare.needs

    async def home(self, request: Request) -> Response:
        return self._page("home.html", jobs=list(reversed(self.of.jobs.listed())))

    async def patients(self, request: Request) -> Response:
        return JSONResponse([self._state(job) for job in self.of.jobs.listed()])

    async def add(self, request: Request) -> Response:
        """Take a patient into the queue."""
        uploads.refuse_full_disk(self.of.jobs.folder, self.of.limits, int(request.headers.get("content-length") or 0))
        async with request.form(max_files=FIELDS, max_fields=FIELDS) as form:
            sent = {
                field: Sent(file.filename or field, file.file)
                for field, file in form.multi_items()
                if isinstance(file, UploadFile) and (file.filename or file.size)
            }
            known = {*self.channels, uploads.TUMOUR, uploads.ARCHIVE}
            if unknown := sorted(set(sent) - known):
                raise UsageError(f"unknown field {unknown[0]!r}; expected {', '.join(sorted(known))}")
            name = uploads.patient_name(str(form.get("name") or ""))
            job = await run_in_threadpool(self._store, sent, name)
        if _wants_page(request):
            return RedirectResponse(f"/patients/{job.id}", 303)
        return JSONResponse(self._state(job), 202)

    def _store(self, sent: dict[str, Sent], name: str) -> Job:
        with self.of.jobs.adding(name, self.of.limits.waiting) as (job, folder):
            uploads.store(sent, self.channels, folder / name, self.of.limits)
        return job

    async def patient(self, request: Request) -> Response:
        job = self._job(request)
        if _wants_page(request):
            return self._page("patient.html", job=job, state=self._state(job), keep_h=self.of.jobs.keep_s / 3600)
        return JSONResponse(self._state(job))

    async def result(self, request: Request) -> Response:
        """A file of the patient's folder."""
        folder = results.patient_folder(self.of.jobs, self._job(request)).resolve()
        file = (folder / request.path_params["file"]).resolve()
        if not file.is_relative_to(folder) or not file.is_file():
            raise HTTPException(404, "there is no such file in the patient's folder")
        return FileResponse(file, media_type=TYPES.get(file.suffix), headers=HEADERS)

    async def dicom(self, request: Request) -> Response:
        job = self._job(request)
        archive = await run_in_threadpool(results.dicom_archive, self.of.jobs, job)
        return FileResponse(archive, media_type="application/zip", filename=f"{job.name}-dicom.zip", headers=HEADERS)

    async def delete(self, request: Request) -> Response:
        await run_in_threadpool(self.of.jobs.delete, self._job(request))
        return RedirectResponse("/", 303) if _wants_page(request) else Response(status_code=204)

    async def health(self, request: Request) -> Response:
        """Whether patients are worked on: 200, or 503 where the model or something it needs is lacking.

        Without the token, where there is one, it says no more than that.
        """
        supervisor, listed = self.of.supervisor, self.of.jobs.listed()
        status = supervisor.health if supervisor.is_alive() else "stopped"
        good = status in ("starting", "ready", "working")
        if self.of.token and not _is_token(_given(request), self.of.token):
            return JSONResponse({"status": status}, 200 if good else 503)
        state = {
            "status": status,
            "reason": supervisor.words,
            "waiting": sum(job.state == "queued" for job in listed),
            "patients": len(listed),
            "free_gib": round(shutil.disk_usage(self.of.jobs.folder).free / GIB, 1),
            "study": self.of.model.study.name,
        }
        return JSONResponse(state, 200 if good else 503)

    async def docs(self, request: Request) -> Response:
        return self._page("docs.html", limits=self.of.limits, gib=GIB, keep_h=self.of.jobs.keep_s / 3600)

    async def login(self, request: Request) -> Response:
        """Keep the token in a cookie that no script reads and no other site sends."""
        form = await request.form(max_files=0, max_fields=FIELDS)
        given = str(form.get("token") or "")
        if not _is_token(given, self.of.token):
            return HTMLResponse(self._text("login.html", wrong=True), 401, HEADERS | {"Content-Security-Policy": POLICY})
        answer = RedirectResponse("/", 303)
        answer.set_cookie(COOKIE, given, httponly=True, samesite="strict", secure=request.url.scheme == "https")
        return answer

    async def static(self, request: Request) -> Response:
        """A style or script of the service's own pages."""
        name = request.url.path[1:]
        text = (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8")
        return Response(text, media_type=TYPES[Path(name).suffix], headers=HEADERS)

    async def refused(self, request: Request, error: HTTPException) -> Response:
        return self._answer(request, error.status_code, error.detail)

    async def fault(self, request: Request, error: Exception) -> Response:
        """An error of ours, or of the disk, in words."""
        known = error if isinstance(error, MriVitError) else lack(error, self.of.jobs.folder)
        if known is None:
            raise error
        code = next((code for kind, code in CODES.items() if isinstance(known, kind)), 400)
        return self._answer(request, code, str(known).replace(f"{self.of.jobs.folder}", "the service's folder"))

    async def gone(self, request: Request, error: Exception) -> Response:
        """The sender went away while sending."""
        return Response(status_code=400)

    async def bug(self, request: Request, error: Exception) -> Response:
        """The traceback is in the service's terminal."""
        return self._answer(
            request, 500, "a fault of mri-vit, and not of what you sent; the service's terminal shows the lines to report"
        )

    def _answer(self, request: Request, code: int, words: str) -> Response:
        if _wants_page(request):
            return self._page("refused.html", code, words=words)
        return JSONResponse({"error": words}, code)

    def _page(self, template: str, code: int = 200, **values: Any) -> Response:
        return HTMLResponse(self._text(template, **values), code, HEADERS | {"Content-Security-Policy": POLICY})

    def _text(self, template: str, **values: Any) -> str:
        model = self.of.model
        return self.templates.get_template(template).render(
            study=model.study.name,
            synthetic=model.synthetic,
            channels=[(name, recipe.title(name), name in self.needs) for name in self.channels],
            tumour=uploads.TUMOUR,
            archive=uploads.ARCHIVE,
            health=self.of.supervisor.health,
            reason=self.of.supervisor.words,
            **values,
        )

    def _job(self, request: Request) -> Job:
        job = self.of.jobs.get(request.path_params["id"])
        if job is None:
            raise HTTPException(404, "there is no such patient; finished ones are deleted after a while")
        return job

    def _state(self, job: Job) -> dict[str, Any]:
        """What a program is answered of a patient."""
        here = f"/patients/{job.id}"
        links = {
            "page": f"{here}/result/index.html",
            "prediction": f"{here}/result/prediction.json",
            "dicom": f"{here}/dicom.zip",
        }
        return {
            "id": job.id,
            "name": job.name,
            "state": job.state,
            "words": job.words,
            "before": 0 if job.over else self.of.jobs.before(job),
            "status": here,
            **(links if job.state == "done" else {}),
        }


def _wants_page(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "")


def _is_token(given: str, token: str | None) -> bool:
    return token is not None and hmac.compare_digest(given.encode(), token.encode())


def _guard(service: Service) -> Callable[[Request, Next], Awaitable[Response]]:
    """Refuse what comes without the token, where there is one, and what another site's page sends."""
    templates = style.templates("mri_vit.finished.serve")

    async def guard(request: Request, go_on: Next) -> Response:
        host = request.headers.get("host", "")
        if service.token is None and re.sub(r":\d+$", "", host) not in (*LOOPBACK, service.host):
            return JSONResponse({"error": f"the service is not called {host}; a proxy must send its own address as Host"}, 400)
        if request.method not in ("GET", "HEAD") and _is_foreign(request):
            return JSONResponse({"error": "a page of another site may not send anything here"}, 403)
        open_to_all = service.token is None or request.url.path in ("/login", "/health", "/serve.css")
        if not open_to_all and not _is_token(_given(request), service.token):
            if _wants_page(request):
                return HTMLResponse(_login(templates), 401, HEADERS | {"Content-Security-Policy": POLICY})
            return JSONResponse({"error": "expected the service's token: Authorization: Bearer TOKEN"}, 401)
        return await go_on(request)

    return guard


def _login(templates: jinja2.Environment) -> str:
    return templates.get_template("login.html").render(wrong=False)


def _given(request: Request) -> str:
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token if kind.lower() == "bearer" else request.cookies.get(COOKIE, "")


def _is_foreign(request: Request) -> bool:
    """Whether a browser says that another site's page asks; programs say nothing."""
    if site := request.headers.get("sec-fetch-site"):
        return site not in ("none", "same-origin")
    origin = request.headers.get("origin")  # of older browsers
    return origin is not None and origin.partition("://")[2] != request.headers.get("host")


class _Limited:
    """Ends a request whose body is larger than the limit, whatever it announced, before it is kept."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self.app, self.limit = app, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if int(dict(scope["headers"]).get(b"content-length", b"0")) > self.limit:
            await self._refuse(send)
            return
        received, answered = 0, False

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.limit:
                raise TooMuch(self._words())
            return message

        async def noted(message: Message) -> None:
            nonlocal answered
            answered = True
            await send(message)

        try:
            await self.app(scope, counted, noted)
        except TooMuch:
            if answered:
                raise
            await self._refuse(send)

    def _words(self) -> str:
        return f"more than {self.limit / GIB:g} GiB were sent, which is accepted at most; nothing was kept"

    async def _refuse(self, send: Send) -> None:
        body = json.dumps({"error": self._words()}).encode()
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 413, "headers": headers})
        await send({"type": "http.response.body", "body": body})
