"""Exit code: runs a verb, returns its exit code, and prints an error as one line on standard error.

A misspelt command line becomes a usage error that suggests the closest option or verb.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from cyclopts import App, CycloptsError, MissingArgumentError, UnknownCommandError, UnknownOptionError, UnusedCliTokensError

from mri_vit.errors import JobsLeft, MriVitError, UsageError
from mri_vit.run.resource import lack
from mri_vit.run.screen import printable
from mri_vit.settings.file import did_you_mean, keys, present_name, study_sections
from mri_vit.settings.source import unusable_name


def of(verb: Callable[[], object]) -> int:
    """The verb's return code, or 0; an error's own code; 1 with a traceback for a bug."""
    try:
        code = verb()
        return code if isinstance(code, int) else 0
    except JobsLeft as end:
        _say(str(end))
        return 130
    except KeyboardInterrupt:
        _say("interrupted; the same command continues from the last checkpoint")
        return 130
    except BrokenPipeError:  # the reader of the output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains of it once more on its way out
        return MriVitError.exit_code
    except Exception as error:
        known = misuse(error) if isinstance(error, CycloptsError) else error
        known = known if isinstance(known, MriVitError) else unusable_name(error) or lack(error, Path.cwd())
        if known:
            _say(str(known))
            return known.exit_code
        traceback.print_exc()
        _say("this is a bug in mri-vit, not an error in your data; please report it with the lines above")
        return MriVitError.exit_code


def of_script(main: Callable[..., object]) -> int:
    """Run a script's function with parameters from the command line; `--help` shows its docstring. Returns the exit code."""
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


def misuse(error: CycloptsError) -> UsageError:
    """A cyclopts error as a UsageError in our wording."""
    if isinstance(error, UnknownOptionError):
        return UsageError(_unknown_option(error))
    if isinstance(error, UnknownCommandError):
        return UsageError(_unknown_verb(error))
    if isinstance(error, UnusedCliTokensError):
        return UsageError(_too_many(error))
    if isinstance(error, MissingArgumentError) and error.argument:
        return UsageError(_missing(error))
    message = str(error)
    return UsageError(message[:1].lower() + message[1:].rstrip("."))


def _unknown_option(error: UnknownOptionError) -> str:
    unknown = (error.token.keyword or error.token.value).partition("=")[0]
    known = [name for argument in error.argument_collection for name in argument.names]
    name = unknown.lstrip("-")
    if new := present_name(name.replace("-", "_")):
        return f"unknown option {unknown}: {name} is now {new}"
    if name in study_sections() and any(option.startswith(f"--{name}.") for option in known):
        return f"unknown option {unknown}: {name} is a section of the study file; `mri-vit settings {name}` lists its keys"
    if name in {key.name for key in keys()} and f"--{name}" not in known:
        return f"unknown option {unknown}: `{_verb(error)}` does not accept keys of the study file"
    return f"unknown option {unknown}; {did_you_mean(unknown, [*known, '--help'], f'{_help(error)} lists all')}"


def _unknown_verb(error: UnknownCommandError) -> str:
    word = (error.unused_tokens or [""])[0]
    known = list(error.app or ())  # verbs, and options that stand alone such as --help
    if word.startswith("-"):
        options = [name for name in known if name.startswith("--")]
        return f"expected a verb before {word}; {did_you_mean(word, options, f'{_help(error)} lists all')}"
    return f"unknown verb {word}; {did_you_mean(word, known, f'{_help(error)} lists all')}"


def _too_many(error: UnusedCliTokensError) -> str:
    word = (error.unused_tokens or [""])[0]
    name, is_set, value = word.partition("=")
    if is_set and name in {key.name for key in keys()}:
        return f"unexpected {word}; did you mean --{name}={value}?"
    return f"unexpected {word}; {_help(error)} lists the arguments of `{_verb(error)}`"


def _missing(error: MissingArgumentError) -> str:
    assert error.argument
    wanted, _ = error.argument.token_count()
    found = len(error.tokens_so_far)
    if error.keyword and wanted > 1:
        return f"{error.keyword} takes {wanted} values, found {found}"
    if error.keyword:
        return f"{error.keyword} needs a value"
    names = error.argument.names
    name = names[0].lstrip("-").upper() if error.argument.index is not None else " or ".join(names)
    return f"`{_verb(error)}` needs {name}; {_help(error)} lists its arguments"


def _verb(error: CycloptsError) -> str:
    return " ".join(error.command_chain or ()) or _program(error)


def _help(error: CycloptsError) -> str:
    return f"`{' '.join([_program(error), *(error.command_chain or ()), '--help'])}`"


def _program(error: CycloptsError) -> str:
    """The name of the script, or mri-vit."""
    return error.app.name[0] if error.app and not error.command_chain else "mri-vit"
