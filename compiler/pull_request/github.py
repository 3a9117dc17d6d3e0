"""GitHub's side of a pull request: the event, the token, the outputs, and the single comment.

docs.github.com, "Variables reference" (default environment variables), "Events that trigger
workflows", `pull_request`, and "REST API endpoints for issue comments": a pull request's comments
are those of the issue with its number; a page has at most 100.
"""

import json
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

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


_PAGE: Final = 100
_MOST_PAGES: Final = 100
_SECONDS: Final = 30
_NOT_ALLOWED: Final = frozenset({401, 403, 404})
"""GitHub hides what a token may not see by answering 404."""


class NotAllowed(Exception):
    """The token may not read or write comments."""


class Unreachable(Exception):
    """The API gives no usable answer; the message has the details."""


class Comments(Struct, frozen=True):
    """The comments of a pull request."""

    api: str
    token: str
    repository: str
    number: int

    def put(self, marker: str, body: str, *, only_update: bool = False) -> str:
        """Update the comment that begins with a marker, or write it; return what was done.

        `only_update`: do not write a new comment. Raises NotAllowed and Unreachable.
        """
        there = next((each for each in self._all() if _begins(each, marker)), None)
        if there is None and only_update:
            return "none"
        if there is None:
            self._ask("POST", f"issues/{self.number}/comments", {"body": body})
            return "written"
        if there["body"].replace("\r\n", "\n") == body:
            return "unchanged"
        self._ask("PATCH", f"issues/comments/{int(there['id'])}", {"body": body})
        return "updated"

    def _all(self) -> Iterator[dict[str, Any]]:
        for page in range(1, _MOST_PAGES + 1):
            path = f"issues/{self.number}/comments?per_page={_PAGE}&page={page}"
            found = self._ask("GET", path)
            if not isinstance(found, list):
                raise Unreachable("the list of comments is none")
            yield from found
            if len(found) < _PAGE:
                return

    def _ask(self, method: str, path: str, data: dict[str, str] | None = None) -> Any:
        request = Request(  # noqa: S310  the runner's own address
            f"{self.api}/repos/{self.repository}/{path}",
            None if data is None else json.dumps(data).encode(),
            {
                "Accept": "application/vnd.github+json",
                "Authorization": f"Bearer {self.token}",
                "Content-Type": "application/json",
                "User-Agent": "tunec",
                "X-GitHub-Api-Version": "2022-11-28",
            },
            method=method,
        )
        try:
            with urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310  see above
                return json.loads(answer.read())
        except HTTPError as fault:
            if fault.code in _NOT_ALLOWED:
                raise NotAllowed(f"{method} was answered with {fault.code}") from None
            raise Unreachable(f"{method} was answered with {fault.code}") from None
        except (URLError, HTTPException, TimeoutError, OSError, ValueError) as fault:
            raise Unreachable(str(fault)) from None


def _begins(comment: Any, marker: str) -> bool:
    return isinstance(comment, dict) and str(comment.get("body") or "").startswith(marker)
