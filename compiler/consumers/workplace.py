"""A working directory for a consumer that looks for files.

Only the standard library is imported: the scripts that use this run in a consumer's environment.
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from pathlib import Path


@contextmanager
def workplace(files: Mapping[str, str]) -> Iterator[None]:
    """A temporary working directory that holds only `files`, texts by relative path."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        for name, text in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        yield
