"""What the makers of key tables ask of a clone: its files at a commit, and plain values in them."""

import ast
import subprocess
from typing import Any


def git(clone: str, *arguments: str) -> str:
    """What git says of a clone; raise CalledProcessError where it refuses."""
    asked = ["git", "-C", clone, *arguments]  # the person who regenerates names the clone
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout  # noqa: S603


def literal(node: ast.expr | None) -> Any:
    """The plain value that an expression writes; None where it writes none."""
    try:
        return None if node is None else ast.literal_eval(node)
    except ValueError:
        return None
