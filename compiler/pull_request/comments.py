"""The single comment of a pull request: found by its marker, then written or updated.

docs.github.com, "REST API endpoints for issue comments": a pull request's comments are those of the
issue with its number; a page has at most 100.
"""

import json
from collections.abc import Iterator
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from msgspec import Struct

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
