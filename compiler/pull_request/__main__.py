"""`python -P -m tunec.compiler.pull_request`: the program that `action.yml` runs.

Compares the two sides of a pull request with `tunec diff`, keeps one comment about it up to date,
and exits with 1 if the check fails. All its input is in the environment: the variables that GitHub
Actions sets, and the action's inputs as `TUNEC_*`.
"""

import json
import os
import secrets
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tunec.compiler.pull_request.github import (
    Comments,
    Event,
    NoPullRequest,
    NotAllowed,
    Surroundings,
    Unreachable,
    event_of,
    surroundings_of,
)

_OK, _FAILS, _USAGE = 0, 1, 2
_MOST: Final = 60_000
"""The most characters of a comment; GitHub accepts 65,536."""
_NOTHING: Final = "## tunec: nothing changes"


def main(environment: Mapping[str, str]) -> int:
    """Review the run's pull request; return the exit code of the check."""
    try:
        event = event_of(environment)
        base = _base(event)
    except NoPullRequest as fault:
        sys.stderr.write(f"tunec: {fault}\n")
        return _USAGE
    around = surroundings_of(environment)
    done = _tunec("diff", f"{base}..HEAD", *_arguments(environment), "--format", "markdown")
    _quote(done.stderr)
    if done.returncode not in (_OK, _FAILS):
        return done.returncode
    linted, told = _lint(environment, around)
    text = "\n\n".join(filter(None, (done.stdout.strip(), told)))
    _append(around.summary, f"{text}\n")
    if environment.get("TUNEC_COMMENT", "true") == "true":
        _comment(event, around, environment.get("TUNEC_NAME", ""), text)
    return max(done.returncode, linted)


def _arguments(environment: Mapping[str, str]) -> list[str]:
    """The arguments of `tunec diff`, from the inputs."""
    paths = _lines(environment, "TUNEC_PATHS")
    given = ((flag, environment.get(name, "").split()) for name, flag in _FLAGS.items())
    flags = [word for flag, every in given for each in every for word in (flag, each)]
    return [*paths, *flags, *shlex.split(environment.get("TUNEC_ARGUMENTS", ""))]


def _lines(environment: Mapping[str, str], name: str) -> list[str]:
    return [each.strip() for each in environment.get(name, "").splitlines() if each.strip()]


_FLAGS: Final = {
    "TUNEC_FLEET": "--fleet",
    "TUNEC_HARDWARE": "--hardware",
    "TUNEC_FAIL_ON": "--fail-on",
}


def _base(event: Event) -> str:
    """The commit to compare with: the first parent of the merge that GitHub checks out.

    If the branch itself is checked out, it is the merge base. Raises NoPullRequest.
    """
    parents = _git("rev-list", "--parents", "-n", "1", "HEAD").split()[1:]
    if len(parents) == 2 and parents[1] == event.head:
        return parents[0]
    found = _git("merge-base", event.base, "HEAD").strip()
    if not found:
        raise NoPullRequest(
            f"the commit {event.base[:12]} that the pull request starts from is not here: check "
            "out with `fetch-depth: 0`"
        )
    return found


def _git(*words: str) -> str:
    command = ["git", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    return done.stdout if done.returncode == 0 else ""


def _tunec(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-P", "-m", "tunec", *words]
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=False)  # noqa: S603


# ── lint ─────────────────────────────────────────────────────────────────────────────────────────


def _lint(environment: Mapping[str, str], around: Surroundings) -> tuple[int, str]:
    """Lint the requested paths into a SARIF file; return the exit code and a summary line."""
    paths = _lines(environment, "TUNEC_LINT")
    if not paths:
        return _OK, ""
    hardware = environment.get("TUNEC_HARDWARE", "").split()[:1]
    flags = ["--hardware", *hardware] if hardware else []
    done = _tunec("lint", *paths, *flags, "--format", "sarif")
    _quote(done.stderr)
    if done.returncode not in (_OK, _FAILS):
        return done.returncode, ""
    file = Path(environment.get("TUNEC_SARIF") or "tunec.sarif")
    file.write_text(done.stdout, "utf-8")
    _append(around.outputs, f"sarif={file}\n")
    levels = [each["level"] for each in json.loads(done.stdout)["runs"][0]["results"]]
    counts = ((levels.count(level), level) for level in ("error", "warning", "note"))
    told = ", ".join(f"{count} {level}{'s' * (count > 1)}" for count, level in counts if count)
    return done.returncode, f"`tunec lint`: {told or 'nothing found'}"


# ── what is told ─────────────────────────────────────────────────────────────────────────────────


def _quote(text: str) -> None:
    """Write text from the pull request's files without the runner obeying commands in it.

    docs.github.com, "Workflow commands for GitHub Actions", "Stopping and starting workflow
    commands": commands are off until a token that cannot be guessed.
    """
    if text:
        end = secrets.token_hex(16)
        sys.stderr.write(f"::stop-commands::{end}\n{text.rstrip()}\n::{end}::\n")


def _comment(event: Event, around: Surroundings, name: str, text: str) -> None:
    """Write or update the comment; a token without permission does not fail the check."""
    marker = f"<!-- tunec: {name or 'review'} -->"
    comments = Comments(around.api, around.token, event.repository, event.number)
    try:
        done = comments.put(marker, _body(marker, text), only_update=text.startswith(_NOTHING))
    except NotAllowed:
        why = "; that is so for pull requests from forks" if event.is_from_fork else ""
        how = "" if event.is_from_fork else ": give the job `permissions: {pull-requests: write}`"
        sys.stdout.write(
            f"::notice title=tunec::the token may not comment{why or how}. "
            "The review is in the summary of this job.\n"
        )
    except Unreachable as fault:
        sys.stdout.write(
            f"::warning title=tunec::the comment could not be written ({fault}). "
            "The review is in the summary of this job.\n"
        )
    else:
        sys.stdout.write(f"comment: {done}\n")


def _body(marker: str, text: str) -> str:
    """The comment, cut at the end of a line if it is longer than GitHub accepts."""
    if len(text) <= _MOST:
        return f"{marker}\n{text}"
    cut = text[:_MOST].rpartition("\n")[0]
    return f"{marker}\n{cut}\n\nThe rest is in the summary of the job."


def _append(file: Path | None, text: str) -> None:
    if file is not None:
        with file.open("a", encoding="utf-8") as stream:
            stream.write(text)


if __name__ == "__main__":
    sys.exit(main(os.environ))
