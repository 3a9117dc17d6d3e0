"""Every spec for every release of every target: what is refused, and by which words.

python -m tests.releases.sweep
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping

from tests.releases.specs import SPECS

from tunec.compiler.driver import compile_spec
from tunec.compiler.frontend.load import Loaded, load_text
from tunec.targets.registry import REGISTRY

CODES = ("E0901", "E0902", "E0903", "E0904", "E0905")
_NUMBERS = re.compile(r"\(\S+ [\d.a-z]+\) ")


def loaded(name: str) -> Loaded:
    """One of the specs, which is well formed."""
    found = load_text(SPECS[name], targets=REGISTRY.names())
    assert found.spec is not None, (name, found.diagnostics)
    return found


def refusals(name: str, target: str, release: str) -> Iterator[str]:
    """Code and words of each refusal of a target's release, without its number."""
    spec = loaded(name)
    asked = REGISTRY.resolve(f"{target}@{release}", {})
    for each in compile_spec(spec, [asked]).diagnostics:
        if each.id in CODES:
            yield f"{each.id} {_NUMBERS.sub('', each.message)}"


def releases(target: str) -> tuple[str, ...]:
    """The newest release of each minor version that a target knows."""
    return REGISTRY.resolve(target, {})[0].releases


def sweep(
    targets: tuple[str, ...], specs: tuple[str, ...] = tuple(SPECS)
) -> Mapping[str, set[str]]:
    """Where each distinct refusal appears, as `spec: target@release`."""
    found: dict[str, set[str]] = defaultdict(set)
    for target in targets:
        for release in releases(target):
            for name in specs:
                for refusal in refusals(name, target, release):
                    found[refusal].add(f"{name}: {target}@{release}")
    return found


def main() -> int:
    """Print each distinct refusal with its releases."""
    for refusal, places in sorted(sweep(tuple(sys.argv[1:]) or REGISTRY.names()).items()):
        by: dict[str, list[str]] = defaultdict(list)
        for place in sorted(places):
            name, _, at = place.partition(": ")
            by[f"{name}: {at.partition('@')[0]}"].append(at.partition("@")[2])
        print(refusal)
        for name, at in by.items():
            print(f"    {name} ({len(at)}): {', '.join(at[:60])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
