"""The command line: verbs, options, completion, and the messages of wrong usage; all that needs cyclopts.

Everything slow is imported inside the verbs, so that --help answers at once.
"""

from mri_vit.cli.verbs import app, main

__all__ = ["app", "main"]
