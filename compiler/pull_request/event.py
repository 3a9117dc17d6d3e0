"""What GitHub Actions says of a run: the event, the token, and where outputs go.

docs.github.com, "Variables reference" (default environment variables), and "Events that trigger
workflows", `pull_request`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct


class NoPullRequest(ValueError):
    """The event is none of a pull request, or cannot be read; the message says why."""


class Event(Struct, frozen=True):
    """A pull request, as the event of the run describes it."""

    repository: str
    """`owner/name`, where the pull request is."""
    number: int
    base: str
    """The commit that it is to be merged into."""
    head: str
    is_from_fork: bool


class Surroundings(Struct, frozen=True):
    """What the runner says beside the event."""

    api: str
    token: str
    summary: Path | None
    outputs: Path | None


def event_of(environment: Mapping[str, str]) -> Event:
    """The pull request of the run. Raises NoPullRequest."""
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
    """The address of the API, the token, and the files of summary and outputs."""
    summary = environment.get("GITHUB_STEP_SUMMARY")
    outputs = environment.get("GITHUB_OUTPUT")
    return Surroundings(
        environment.get("GITHUB_API_URL") or "https://api.github.com",
        environment.get("TUNEC_TOKEN") or environment.get("GITHUB_TOKEN", ""),
        Path(summary) if summary else None,
        Path(outputs) if outputs else None,
    )
