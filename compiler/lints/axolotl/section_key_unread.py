"""A key of one of Axolotl's sections that the section does not have."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import nearest
from tunec.compiler.lints.axolotl.asked import configs
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.kinds import schema
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_PREFIX: Final = "fsdp_"
"""Taken off the keys of `fsdp_config` (0.13.2, 0.19.0 `check_fsdp_config_kwargs_prefix`)."""

_AS_BY_ITSELF: Final[Mapping[str, Any]] = {
    "sharding_strategy": "FULL_SHARD",
    "limit_all_gathers": True,
    "backward_prefetch": "BACKWARD_PRE",
    "forward_prefetch": False,
}
"""Keys of FSDP 1 with what it does where nothing is said (accelerate 1.15.0 utils/dataclasses.py
`FullyShardedDataParallelPlugin`): nothing is lost with them."""


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        known = _sections(_schemas(run, document))
        for path, at in document.found.items() if known else ():
            section, _, name = path.partition(".")
            keys = known.get(section)
            is_lost = keys and name and "." not in name and not _is_known(section, name, keys)
            if keys and is_lost and _AS_BY_ITSELF.get(name.removeprefix(_PREFIX), at) != at.value:
                yield _finding(section, name, at, keys)


def _is_known(section: str, name: str, keys: frozenset[str]) -> bool:
    bare = name.removeprefix(_PREFIX)
    return name in keys or (section == "fsdp_config" and (bare in keys or bare == "version"))


def _schemas(run: Run, document: Document) -> tuple[str, ...]:
    """Those of the release that is named, or of each that is known."""
    if document.target is None or document.file is None or document.file.schema is None:
        return ()
    target, release = document.target, run.release("axolotl")
    known = [str(release.version)] if release.is_named else target.releases
    names = (document.file.schema(target.dialect(target.release(each))) for each in known)
    return tuple(dict.fromkeys(name for name in names if name is not None))


@cache
def _sections(names: tuple[str, ...]) -> Mapping[str, frozenset[str]]:
    """The keys of each section that is closed in every one of some schemas."""
    tables = [_closed(name) for name in names]
    every = set(tables[0]).intersection(*tables) if tables else set()
    return {key: frozenset().union(*(table[key] for table in tables)) for key in every}


def _closed(name: str) -> Mapping[str, frozenset[str]]:
    read = schema(name)
    named: Mapping[str, Any] = read.get("$defs", {})
    found: dict[str, frozenset[str]] = {}
    for key, rule in read.get("properties", {}).items():
        parts = [each for each in rule.get("anyOf", (rule,)) if each.get("type") != "null"]
        refs = [named.get(str(each.get("$ref", "")).rpartition("/")[2], {}) for each in parts]
        held = [frozenset(each.get("properties", ())) for each in refs]
        if len(held) == 1 and held[0] and not refs[0].get("additionalProperties"):
            found[key] = held[0]
    return found


def _finding(section: str, name: str, at: Place, keys: frozenset[str]) -> Finding:
    near = nearest(name, keys)[:1]
    return Finding(
        f"{section} has no key `{name}`",
        (at.key_label("not read"),),
        ("what the schema of a section does not have is dropped without a word",),
        f"did you mean `{near[0]}`?" if near else "remove it",
        Fix((at.renamed(near[0]),), "unsafe") if near else None,
    )


RULE = Rule(
    name="section-key-unread",
    severity="warning",
    consequence="silent",
    consumers=("axolotl",),
    sources=(
        (
            "axolotl 0.8.1 to 0.19.0 utils/schemas/trl.py `TRLConfig`, vllm.py `VllmConfig`, "
            "fsdp.py `FSDPConfig`, peft.py, quantization.py: pydantic models that drop other keys; "
            "run with 0.19.0: trl.num_generation is taken, and is nowhere"
        ),
    ),
    check=_check,
)
