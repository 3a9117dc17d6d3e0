"""A key in accelerate's file that accelerate does not know, or not at that place."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.wording import did_you_mean, nearest
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.keys.misspelt_key import is_near
from tunec.compiler.lints.keys.tools import around, keys_at, keys_ever, releases_of
from tunec.compiler.lints.kinds import schema
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_BLOCKS: Final = ("deepspeed_config", "fsdp_config", "megatron_lm_config", "parallelism_config")
_OLD: Final = frozenset({"fp16", "dynamo_backend"})
_PATH: Final = "accelerate/{}.json"


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("accelerate"):
        here = around(run, "accelerate")
        if document.is_view or not here or _is_elsewhere(document):
            continue
        known = frozenset[str]().union(*(keys_at("accelerate", each) for each in here))
        for path, place in document.found.items():
            holder, _, name = path.rpartition(".")
            if not holder and name not in keys_ever("accelerate") | _OLD:
                if not is_near(name, known - frozenset(document.found)):
                    yield _refused(place, name)
            elif holder in _BLOCKS and name not in _keys_of(run, holder, here):
                yield _ignored(place, holder, name)


def _is_elsewhere(document: Document) -> bool:
    return document.value("compute_environment") not in (None, "LOCAL_MACHINE")


def _keys_of(run: Run, block: str, here: tuple[str, ...]) -> frozenset[str]:
    """The block's keys: in the release that somebody names, else in any."""
    if not run.release("accelerate").is_named:
        return _keys_ever_in(block)
    return frozenset[str]().union(*(_keys_in(block, each) for each in here))


def _keys_in(block: str, release: str) -> frozenset[str]:
    found = schema(_PATH.format(release))["properties"].get(block, {})
    return frozenset(found.get("properties", {}))


def _keys_ever_in(block: str) -> frozenset[str]:
    found = (schema(_PATH.format(each))["properties"] for each in releases_of("accelerate"))
    keys = (each.get(block, {}).get("properties", {}) for each in found)
    return frozenset(name for each in keys for name in each)


def _home(name: str) -> str | None:
    return next((block for block in _BLOCKS if name in _keys_ever_in(block)), None)


def _refused(place: Place, name: str) -> Finding:
    home = _home(name)
    return Finding(
        f"accelerate has no key `{name}` at the top",
        (place.key_label("refused"),),
        (),
        f"write it below {home}" if home else "remove it",
        consequence="parse",
    )


def _ignored(place: Place, holder: str, name: str) -> Finding:
    near = nearest(name, _keys_ever_in(holder))
    home = next((block for block in _BLOCKS if name in _keys_ever_in(block)), None)
    return Finding(
        f"accelerate knows no key `{name}` in {holder}",
        (place.key_label("not read"),),
        ("it becomes an argument of the launcher that nothing looks at",),
        f"write it below {home}" if home else did_you_mean(near) or "remove it",
    )


RULE = Rule(
    name="key-of-none",
    severity="error",
    consequence="silent",
    consumers=("accelerate",),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 commands/config/config_args.py `from_yaml_file`: had "
            "unknown keys; commands/launch.py `_validate_launch_command`: setattr(args, key, "
            "value) for what stands in a block, whatever its name"
        ),
    ),
    check=_check,
)
