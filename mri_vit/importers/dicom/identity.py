"""Identity: a patient's id in, a keyed hash out; without the key file none leads back.

The hash is an HMAC-SHA-256 (RFC 2104): who has the output but not the key cannot try out ids of a hospital against it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from mri_vit.errors import IntegrityError, UsageError

KEY_BYTES = 32  # as long as the hash, RFC 2104 section 3
PATIENT_DIGITS = 16  # hexadecimal, 64 bits: among a million patients two are alike with a probability of 3e-8
SERIES_DIGITS = 12


@dataclass(frozen=True)
class Hasher:
    """Keyed hashes; the same id gets the same hash in every import with the same key."""

    key: bytes

    def patient(self, patient_id: str) -> str:
        """What stands for a patient's id in every output; it starts with a letter, so that no spreadsheet reads a number."""
        return f"P{self._digest('patient', patient_id)[:PATIENT_DIGITS]}"

    def uid(self, uid: str) -> str:
        """What stands for a UID, or for the name of a series."""
        return f"U{self._digest('uid', uid)[:SERIES_DIGITS]}"

    def _digest(self, kind: str, text: str) -> str:
        return hmac.new(self.key, f"{kind}\0{text}".encode(), hashlib.sha256).hexdigest()


def default_key(output: Path) -> Path:
    """Beside the output folder, so that whoever passes the folder on does not pass on the key."""
    folder = output.resolve()  # "." has a name as well
    return folder.parent / f"{folder.name}.key"


def hasher(path: Path, output: Path) -> Hasher:
    """The hasher of a key file, which is made with mode 0600 where there is none.

    Raises
    ------
    UsageError
        The key would lie in the output, is no key, or can be read by others.
    IntegrityError
        It is a link.
    """
    if path.resolve().is_relative_to(output.resolve()):
        raise UsageError(f"key {path} lies in the output {output}, with which it would be passed on; expected a place outside")
    if path.is_symlink():
        raise IntegrityError(f"key {path} is a link to {os.readlink(path)}; name the file itself")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(f"{secrets.token_hex(KEY_BYTES)}\n")
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise UsageError(f"key {path} can be read by others (mode {path.stat().st_mode & 0o777:o}); run chmod 600 on it")
    try:
        key = bytes.fromhex(path.read_text(encoding="ascii"))
    except (ValueError, OSError):
        key = b""
    if len(key) != KEY_BYTES:
        raise UsageError(f"key {path} is no key of mri-vit's: expected {2 * KEY_BYTES} hexadecimal digits")
    return Hasher(key)
