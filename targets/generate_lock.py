"""Write `compiler/consumers/lock.json`: the digests of each package that tunec installs.

`python -m tunec.targets.generate_lock [PIN...]` asks the package index for the pins of all known
sets, for the pins that the lock already has, and for the given pins. It takes wheels for every
platform and every Python that tunec runs on; a pin without wheels is locked as a source archive.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from urllib.request import Request, urlopen

from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

from tunec.compiler.consumers.packages import FILE, lock
from tunec.compiler.consumers.sets import BETWEEN, SETS
from tunec.targets.axolotl import verify as axolotl
from tunec.targets.llama_cookbook.schema import REQUIREMENTS as LLAMA_COOKBOOK
from tunec.targets.llamafactory import verify as llamafactory
from tunec.targets.visualglm.schema import REQUIREMENTS as VISUALGLM

_INDEX: Final = "https://pypi.org/simple"
_JSON: Final = {"Accept": "application/vnd.pypi.simple.v1+json"}
_PYTHONS: Final = re.compile(r"py3\d*|cp31[1-4]")
_AT_ONCE: Final = 8
_SECONDS: Final = 60


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the lock; return the exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    pins = sorted({*known_pins(), *lock(), *given})
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = dict(zip(pins, pool.map(_files, pins), strict=True))
    if missing := [pin for pin, files in found.items() if not files]:
        sys.stderr.writelines(f"not published: {pin}\n" for pin in missing)
        return 1
    FILE.write_text(_text(found), "utf-8")
    return 0


def known_pins() -> frozenset[str]:
    """Every pin that tunec itself may install."""
    sets = (*SETS.values(), *BETWEEN.values())
    of_sets = (pin for known in sets for pin in known.requirements)
    of_axolotl = (pin for each in axolotl.KNOWN for pin in axolotl.requirements(Version(each)))
    of_llamafactory = (
        pin for each in llamafactory.KNOWN for pin in llamafactory.below(Version(each))
    )
    return frozenset((*of_sets, *of_axolotl, *of_llamafactory, *LLAMA_COOKBOOK, *VISUALGLM))


def _text(found: Mapping[str, Sequence[tuple[str, str]]]) -> str:
    kinds: dict[str, dict[str, list[str]]] = {"wheels": {}, "sources": {}}
    for pin, files in found.items():
        wheels = sorted(digest for name, digest in files if name.endswith(".whl"))
        kinds["wheels" if wheels else "sources"][pin] = wheels or sorted(d for _, d in files)
    return json.dumps(kinds, indent=1) + "\n"


def _files(pin: str) -> list[tuple[str, str]]:
    """Name and digest of each file of a pin that one of tunec's Python versions can install."""
    name, _, version = pin.partition("==")
    request = Request(f"{_INDEX}/{canonicalize_name(name)}/", headers=_JSON)  # noqa: S310  https
    with urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310  the scheme is written above
        published: Any = json.load(answer)["files"]
    return list(_fitting(published, version))


def _fitting(published: Iterable[Mapping[str, Any]], version: str) -> Iterator[tuple[str, str]]:
    for each in published:
        name = each["filename"]
        if _version(name) == Version(version) and _is_ours(name):
            yield name, each["hashes"]["sha256"]


def _version(name: str) -> Version | None:
    """The version in a file's name; None if the file is neither a wheel nor a `.tar.gz` sdist."""
    try:
        if name.endswith(".whl"):
            return parse_wheel_filename(name)[1]
        return parse_sdist_filename(name)[1] if name.endswith(".tar.gz") else None
    except ValueError:
        return None


def _is_ours(name: str) -> bool:
    if not name.endswith(".whl"):
        return True
    tags = parse_wheel_filename(name)[3]
    return any(_PYTHONS.fullmatch(tag.interpreter) or tag.abi == "abi3" for tag in tags)


if __name__ == "__main__":
    sys.exit(main())
