"""LLaMA-Factory's own choice of a chat template. Verb: `of_models`."""

from collections.abc import Mapping
from typing import Any


def of_models(_: Mapping[str, Any]) -> dict[str, str]:
    """The template that its page offers for each chat model, by the repository on the Hub."""
    from llamafactory.extras.constants import DEFAULT_TEMPLATE, SUPPORTED_MODELS, DownloadSource

    hub = DownloadSource.DEFAULT
    known = ((SUPPORTED_MODELS[name].get(hub), name) for name in DEFAULT_TEMPLATE)
    return {repository: DEFAULT_TEMPLATE[name] for repository, name in known if repository}


VERBS = {"of_models": of_models}
