"""Run in the environment of roc-validator, `.validator`: what it, and the library rocrate, make of a crate, as JSON on one line.

No network: the context of RO-Crate is that of the library, whose 1.3 has the terms of 1.1 that we use; any other is an error.
"""

from __future__ import annotations

import json
import sys
from importlib import resources
from typing import Any

from rocrate.rocrate import ROCrate  # pyright: ignore[reportMissingImports]
from rocrate_validator import models, services  # pyright: ignore[reportMissingImports]
from rocrate_validator.utils import http  # pyright: ignore[reportMissingImports]

CONTEXT = "https://w3id.org/ro/crate/1.1/context"
PROFILE = "process-run-crate"


class Answer:
    """What a server would answer for the context."""

    status_code = 200
    text = (resources.files("rocrate") / "data" / "ro-crate.jsonld").read_text(encoding="utf-8")
    content = text.encode()
    headers = {"Content-Type": "application/ld+json"}  # noqa: RUF012  # read alone

    def json(self) -> Any:
        return json.loads(self.text)

    def raise_for_status(self) -> None:
        pass


def get(self: Any, url: str, **_: Any) -> Answer:
    if url != CONTEXT:
        raise RuntimeError(f"asked for {url}; only {CONTEXT} is here")
    return Answer()


def main(crate: str) -> None:
    http.HttpRequester.get = get
    settings = services.ValidationSettings.parse(
        {
            "rocrate_uri": crate,
            "profile_identifier": PROFILE,
            "requirement_severity": models.Severity.RECOMMENDED,
            "offline": True,
            "skip_availability_check": True,  # of what lies on the web
        }
    )
    found = services.validate(settings)
    read = ROCrate(crate)
    actions = [entity for entity in read.get_by_type("CreateAction")]
    print(
        json.dumps(
            {
                "checks": [check.identifier for check in found.executed_checks],
                "skipped": [check.identifier for check in found.skipped_checks],
                "issues": [[one.severity.name, one.check.identifier, str(one.message)] for one in found.get_issues()],
                "files": {entity.id: dict(entity.properties()) for entity in read.data_entities},
                "actions": {entity.id: [result.id for result in _listed(entity.get("result"))] for entity in actions},
            }
        )
    )


def _listed(found: Any) -> list[Any]:
    return found if isinstance(found, list) else [found]


if __name__ == "__main__":
    main(sys.argv[1])
