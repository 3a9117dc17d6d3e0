"""bundle.yaml: the ConfigMap that brings a bundle's files into the pods."""

from collections.abc import Mapping
from typing import Any, Final

import yaml

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Artifact, File, Json, in_no_plan
from tunec.targets.kubeflow.volumes import config_map

_SUFFIX: Final = "-bundle"


def _is_bundle(document: Json) -> bool:
    if not isinstance(document, dict) or document.get("kind") != "ConfigMap":
        return False
    return str(document.get("metadata", {}).get("name", "")).endswith(_SUFFIX)


def _texts(document: Json) -> Mapping[str, str]:
    """The files by their paths, which `key_of` made keys."""
    held = document.get("data") or {}
    return {str(key).replace(_SLASH, "/"): text for key, text in held.items()}


BUNDLE_YAML: Final = File("bundle.yaml", "yaml", (), _is_bundle, when=in_no_plan, holds=_texts)
"""No row writes it: it holds the texts of the others."""

_SLASH: Final = "__"


def key_of(path: str) -> str:
    """A path as a key, which has no slashes (kubernetes ConfigMap `data`); see `unpacked`."""
    return path.replace("/", _SLASH)


def bundle_yaml(plan: Plan, texts: Mapping[str, str]) -> Artifact:
    """The files of the run by their paths below the bundle's root, as one ConfigMap.

    The manifests of this target are left out: they are applied beside it.
    """
    metadata = {"name": config_map(plan)}
    if plan.job.namespace is not None:
        metadata["namespace"] = plan.job.namespace
    values = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {key_of(path): text for path, text in texts.items() if _is_read(path)},
    }
    text: str = yaml.dump(values, Dumper=_Blocks, sort_keys=False, allow_unicode=True, width=2**31)
    return Artifact(BUNDLE_YAML.name, BUNDLE_YAML.format, text, values)


def _is_read(path: str) -> bool:
    return not path.startswith("kubeflow/") or path.endswith("/accelerate.yaml")


class _Blocks(yaml.SafeDumper):
    """Writes texts of several lines as they are."""


def _text(dumper: yaml.SafeDumper, text: str) -> Any:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Blocks.add_representer(str, _text)
