"""Files whose keys have other paths or spellings than in their program."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.consumers.openrlhf_flags import RENAMED, RENAMED_OF_REWARDS, SWITCHES
from tunec.compiler.frontend.nodes import Node
from tunec.schemas.frozen import replace


def undashed(root: Node) -> tuple[Node, dict[str, str]]:
    """A tree whose top-level keys have no dashes, and the key of each in the file.

    simpletuner 3.1.6 and 4.10.1 helpers/configuration/cli_utils.py `mapping_to_cli_args`: a key of
    config.json may be written as the flag that it becomes.
    """
    fields = root.fields or {}
    named = {key: key.removeprefix("--") for key in fields}
    if all(key == name for key, name in named.items()):
        return root, {}
    plain = replace(root, fields={named[key]: child for key, child in fields.items()})
    return plain, {name: key for key, name in named.items() if name != key}


def unsectioned(root: Node) -> tuple[Node, dict[str, str]]:
    """A tree without its sections, and the path of each key that was in one.

    kohya-ss/sd-scripts 0.8.8 to 0.10.1 library/train_util.py `read_config_from_file`, and
    musubi-tuner 0.2.0 to 0.3.4 of the same name: a section's name has no meaning, and of two keys
    with one name the later one counts; the earlier one keeps its path.
    """
    fields: dict[str, Node] = {}
    paths: dict[str, str] = {}
    for name, child in (root.fields or {}).items():
        for key, inner in ((name, child),) if child.fields is None else child.fields.items():
            if key in fields:
                fields[paths.get(key, f".{key}")] = fields[key]
            fields[key] = inner
            paths[key] = key if inner is child else f"{name}.{key}"
    return replace(root, fields=fields), {key: path for key, path in paths.items() if key != path}


def numbered(root: Node) -> tuple[Node, dict[str, str]]:
    """A tree of sets and their folders, each by its number: `datasets.[0].subsets.[1]`."""
    return _numbered(root), {}


def _numbered(node: Node) -> Node:
    if node.fields is not None:
        return replace(node, fields={key: _numbered(each) for key, each in node.fields.items()})
    if node.items and all(each.fields is not None for each in node.items):
        return replace(
            node,
            items=None,
            fields={f"[{at}]": _numbered(each) for at, each in enumerate(node.items)},
        )
    return node


def first_process(root: Node) -> tuple[Node, dict[str, str]]:
    """The first process of a job, with the job's name, and the path of each key in the file.

    ostris/ai-toolkit 0.2.0 to 0.12.26 jobs/BaseJob.py `load_processes`.
    """
    config = (root.fields or {}).get("config")
    held = config.fields if config is not None and config.fields is not None else {}
    processes = _numbered(held["process"]).fields if "process" in held else None
    first = (processes or {}).get("[0]")
    fields = dict(first.fields or {}) if first is not None else {}
    paths = {path: f"config.process.[0].{path}" for path in _paths(fields, "")}
    around = {"job": (root.fields or {}).get("job"), "meta": (root.fields or {}).get("meta")}
    fields |= {key: each for key, each in around.items() if each is not None}
    more = {f"process.{at}": each for at, each in (processes or {}).items() if at != "[0]"}
    paths |= {key: f"config.{key}" for key in more}
    if "name" in held:
        more["name"], paths["name"] = held["name"], "config.name"
    return replace(root, fields={**fields, **more}), paths


def sectioned(root: Node) -> tuple[Node, dict[str, str]]:
    """A tree whose flags have the names of OpenRLHF since 0.10.2, and the older name of each."""
    return _sectioned(root, RENAMED)


def sectioned_for_rewards(root: Node) -> tuple[Node, dict[str, str]]:
    """`sectioned` for the program that trains by rewards."""
    return _sectioned(root, {**RENAMED, **RENAMED_OF_REWARDS})


def _sectioned(root: Node, names: Mapping[str, str]) -> tuple[Node, dict[str, str]]:
    fields: dict[str, Node] = {}
    paths: dict[str, str] = {}
    given = root.fields or {}
    for key, child in given.items():
        switch = SWITCHES.get(key) if child.value is True else None
        new = names.get(key, key) if switch is None else switch[0]
        new = key if new in given else new
        fields[new] = child if switch is None or new == key else replace(child, value=switch[1])
        if new != key:
            paths[new] = key
    return (replace(root, fields=fields), paths) if paths else (root, {})


def _paths(fields: Mapping[str, Node], prefix: str) -> Iterator[str]:
    for key, each in fields.items():
        yield f"{prefix}{key}"
        yield from _paths(each.fields or {}, f"{prefix}{key}.")


_FORMS: Final = {
    "simpletuner": undashed,
    **dict.fromkeys(("sd-scripts", "musubi-tuner"), unsectioned),
    **dict.fromkeys(("sd-scripts-data", "musubi-tuner-data"), numbered),
    "ai-toolkit": first_process,
    **dict.fromkeys(("openrlhf", "openrlhf-rm"), sectioned),
    "openrlhf-ppo": sectioned_for_rewards,
}
"""The conversion of each kind of file to its program's keys."""


def spelled(kind: str, root: Node) -> tuple[Node, dict[str, str]]:
    """A file's tree under its program's keys, and the path of each key that differs in the file."""
    form = _FORMS.get(kind)
    return (root, {}) if form is None else form(root)
