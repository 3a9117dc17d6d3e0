"""The input from GitHub Actions: the event, the token, and the files for outputs.

docs.github.com, "Variables reference" (default environment variables), and "Events that trigger
workflows", `pull_request`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct


class NoPullRequest(ValueError):
    """The event is not a pull request's, or cannot be read; the message says why."""


class Event(Struct, frozen=True):
    """A pull request as the run's event describes it."""

    repository: str
    """`owner/name` of the repository that has the pull request."""
    number: int
    base: str
    """The commit that the pull request will be merged into."""
    head: str
    is_from_fork: bool


class Surroundings(Struct, frozen=True):
    """The runner's settings besides the event."""

    api: str
    token: str
    summary: Path | None
    outputs: Path | None


def event_of(environment: Mapping[str, str]) -> Event:
    """The run's pull request. Raises NoPullRequest."""
    path, repository = environment.get("GITHUB_EVENT_PATH"), environment.get("GITHUB_REPOSITORY")
    if not path or not repository:
        raise NoPullRequest("GITHUB_EVENT_PATH and GITHUB_REPOSITORY are not set")
    try:
        data = json.loads(Path(path).read_text("utf-8"))
        return _event(data["pull_request"], repository)
    except (OSError, ValueError) as fault:
        raise NoPullRequest(f"the event cannot be read: {fault}") from None
    except (KeyError, TypeError):
        raise NoPullRequest(
            "the event is not of a pull request: run this on `pull_request`"
        ) from None


def _event(pull: Mapping[str, Any], repository: str) -> Event:
    source = pull["head"].get("repo") or {}  # the repository of a fork may be gone
    return Event(
        repository,
        int(pull["number"]),
        str(pull["base"]["sha"]),
        str(pull["head"]["sha"]),
        is_from_fork=source.get("full_name") != repository,
    )


def surroundings_of(environment: Mapping[str, str]) -> Surroundings:
    """The API's address, the token, and the files for the summary and outputs."""
    summary = environment.get("GITHUB_STEP_SUMMARY")
    outputs = environment.get("GITHUB_OUTPUT")
    return Surroundings(
        environment.get("GITHUB_API_URL") or "https://api.github.com",
        environment.get("TUNEC_TOKEN") or environment.get("GITHUB_TOKEN", ""),
        Path(summary) if summary else None,
        Path(outputs) if outputs else None,
    )
