"""Cards that tests derive in their own process, answered from what is recorded."""

from collections.abc import Mapping
from typing import Any

from tests.recording.traces import recorded

from tunec.compiler.tracing import derivation
from tunec.schemas.models.derived_card import DerivedCard


@recorded
def _card_of(config: Mapping[str, Any]) -> str:
    return derivation.derived(config).to_json().decode()


def derived(config: Mapping[str, Any]) -> DerivedCard:
    """A config's card, as it is read when it was kept."""
    return DerivedCard.of_json(_card_of(config).encode())
