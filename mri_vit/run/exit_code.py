"""Exit code: a verb goes in, how it ended comes out as a number, and why as one line on standard error."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from cyclopts import App, CycloptsError

from mri_vit.errors import JobsLeft, MriVitError
from mri_vit.run.resource import lack
from mri_vit.run.screen import printable
from mri_vit.settings.misuse import misuse
from mri_vit.settings.source import unusable_name


def of(verb: Callable[[], object]) -> int:
    """The verb's own code where it gives one, else 0; of an error its class's, and 1 with a traceback for a fault of ours."""
    try:
        code = verb()
        return code if isinstance(code, int) else 0
    except JobsLeft as end:
        _say(str(end))
        return 130
    except KeyboardInterrupt:
        _say("interrupted; the same command goes on from the last checkpoint")
        return 130
    except BrokenPipeError:  # whoever was reading what is printed has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains of it once more on its way out
        return MriVitError.exit_code
    except Exception as error:
        found = misuse(error) if isinstance(error, CycloptsError) else error
        found = found if isinstance(found, MriVitError) else unusable_name(error) or lack(error, Path.cwd())
        if found:
            _say(str(found))
            return found.exit_code
        traceback.print_exc()
        _say("this is a fault of ours, not of your data; please report it with the lines above")
        return MriVitError.exit_code


def of_script(main: Callable[..., object]) -> int:
    """The same of a script, whose function's parameters are read from the command line; `--help` shows its docstring."""
    script = App(
        name=Path(sys.argv[0]).name,
        version_flags=(),
        help_format="plaintext",
        suppress_keyboard_interrupt=False,
        exit_on_error=False,
        print_error=False,
    )
    script.default(main)
    return of(lambda: script(sys.argv[1:], result_action="return_value"))


def _say(message: str) -> None:
    print(f"mri-vit: {printable(message)}", file=sys.stderr)
