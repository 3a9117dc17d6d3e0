"""What ms-swift makes of arguments when the model is loaded.

Runs inside an environment that holds one release of ms-swift. Verbs: `quantise`.
"""

from collections.abc import Mapping
from typing import Any


def quantise(question: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of quantisation that follows from `arguments`; None where there is none."""
    from swift.arguments.base_args.quant_args import QuantizeArguments

    held = object.__new__(QuantizeArguments)
    for name, value in question["arguments"].items():
        setattr(held, name, value)
    found = held.get_quantization_config()
    return {"config": None if found is None else found.to_dict()}


VERBS = {"quantise": quantise}
