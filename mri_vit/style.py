"""What every figure and page shares: colours, fonts, widths, figures as bytes or data: URLs, templates, a page's security policy.

Widths are near a phone's, so that the letters stay readable when a page shrinks a figure.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any

import jinja2
import matplotlib as mpl

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe & Ito 2008, "Color Universal Design": distinguishable with any colour vision, and by lightness in print.
BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
INK, GREY = "#222222", "#767676"  # grey of contrast 4.5 on white, WCAG 2.1 AA
PNG_DPI = 200  # 920 pixels for a figure of one column, enough for a slide; a paper takes the SVG
WIDTH = 4.6  # inches: at 9 points the letters are still 7 pixels high on a phone of 400 pixels
# Coordinates of an SVG: matplotlib writes six decimals of a point, of which the third is already a hundredth of a PNG's pixel.
DRAWN, DECIMALS = re.compile(rb'\b(?:d|x|y)="[^"]*"'), re.compile(rb"(\.\d\d)\d+")
TIE = "\N{NO-BREAK SPACE}"
RELATED, PER_CENT = re.compile(r"\b([np]) ([=<>]) (?=\S)"), re.compile(r" %(?!\w)")
RC: Any = {
    "svg.hashsalt": "mri-vit",  # element ids, so that equal runs give equal bytes
    "font.family": "DejaVu Sans",  # shipped with matplotlib, so the same on every machine
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "text.color": INK,
    "text.parse_math": False,  # a dollar sign in a model's name is a dollar sign
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
}


def to_bytes(figure: Figure, kind: str) -> bytes:
    """The figure as "svg" or "png", without a date, so that equal figures are equal bytes."""
    with mpl.rc_context(RC):
        stream = BytesIO()
        metadata = {"Date": None} if kind == "svg" else {}
        figure.savefig(stream, format=kind, dpi=PNG_DPI, metadata=metadata)
    content = stream.getvalue()
    return DRAWN.sub(lambda part: DECIMALS.sub(rb"\1", part[0]), content) if kind == "svg" else content


def templates(package: str) -> jinja2.Environment:
    """The templates of a package: what is filled in is escaped, and what is not known is an error."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: tied(value) if type(value) is str else value,  # no Markup, which may be a script
    )


def tied(sentence: str) -> str:
    """The sentence with numbers and their per cent sign, and p or n and its number, kept on one line."""
    return RELATED.sub(rf"\1{TIE}\2{TIE}", PER_CENT.sub(f"{TIE}%", sentence))


def data_url(content: bytes, media_type: str) -> str:
    """The content as an address that needs no file and no network."""
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


NO_SOURCES = {"default-src": "'none'", "base-uri": "'none'", "form-action": "'none'"}


def content_policy(sources: Mapping[str, str]) -> str:
    """The policy that allows these sources and no connection, worker, frame, WebAssembly or eval."""
    return "; ".join(f"{name} {allowed}" for name, allowed in {**NO_SOURCES, **sources}.items())


def source_hash(text: str) -> str:
    """A script or style in the page itself, as a policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
