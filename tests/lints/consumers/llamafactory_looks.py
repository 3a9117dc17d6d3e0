"""What LLaMA-Factory looks up by a word: templates, kernels by a model's kind, layers by `all`.

Runs inside an environment that holds one release of llamafactory. Verbs: `speak`, `fuse`, `find`.
"""

import os
import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

from lints.consumers.missing_stand_ins import stand_in

os.environ["DISABLE_VERSION_CHECK"] = "1"
stand_in("torchaudio")  # for data, which nobody reads here


def speak(question: Mapping[str, Any]) -> dict[str, Any]:
    """What becomes of a `template`: refused, or the words that end its turns."""
    from llamafactory.data import template

    asked = MagicMock(template=question["template"], tool_format=None, train_on_prompt=False)
    words = {"bos_token": "<s>", "eos_token": "</s>"}
    tokenizer = MagicMock(**words, **{"add_special_tokens.return_value": 0})
    try:
        held = template.get_template_and_fix_tokenizer(tokenizer, asked)
    except ValueError as refusal:
        return {"refused": "load", "text": str(refusal)}
    return {"refused": None, "ends": held.stop_words}


def fuse(question: Mapping[str, Any]) -> dict[str, Any]:
    """What is said of Liger's kernels for a model of that `kind`, and which are asked for."""
    from llamafactory.model.model_utils import liger_kernel

    told: list[str] = []
    kernels = MagicMock()
    asked = SimpleNamespace(enable_liger_kernel=True)
    kind = SimpleNamespace(model_type=question["kind"])
    stood = {"liger_kernel": MagicMock(), "liger_kernel.transformers": kernels}
    with (
        patch.dict(sys.modules, stood),
        patch.object(liger_kernel.logger, "warning_rank0", told.append),
    ):
        liger_kernel.apply_liger_kernel(kind, asked, is_trainable=True, require_logits=False)
    called = [name for name, *_ in kernels.mock_calls if name.startswith("apply")]
    return {"warned": " | ".join(told), "asked": called}


def find(question: Mapping[str, Any]) -> dict[str, Any]:
    """The layers that `all` stands for in a model of that `kind` with these `linear` layers."""
    from llamafactory.model.model_utils import misc
    from torch.nn import Linear

    layers = [(name, Linear(1, 1)) for name in question["linear"]]
    model = MagicMock(config=SimpleNamespace(model_type=question["kind"]))
    model.named_modules.return_value = layers
    return {"found": sorted(misc.find_all_linear_modules(model, question["freezes"]))}


VERBS = {"speak": speak, "fuse": fuse, "find": find}
