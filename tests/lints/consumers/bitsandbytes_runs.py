"""What bitsandbytes says of a device, and of inputs to its products of 8 bits.

Runs inside an environment that holds one release of bitsandbytes. Verbs: `diagnose`, `multiply`.
"""

import io
import logging
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Any


def diagnose(question: Mapping[str, Any]) -> dict[str, Any]:
    """What its own report says where the best device is of that `capability`."""
    from bitsandbytes.cuda_specs import CUDASpecs
    from bitsandbytes.diagnostics import cuda

    specs = CUDASpecs(tuple(question["capability"]), "124", (12, 4))
    with redirect_stdout(io.StringIO()) as said:
        cuda._print_cuda_diagnostics(specs)
    return {"said": said.getvalue()}


def multiply(question: Mapping[str, Any]) -> dict[str, Any]:
    """What LLM.int8() of a device says of an input, and whether what comes out is finite."""
    import bitsandbytes as bnb
    import torch
    from bitsandbytes.autograd._functions import MatMul8bitLt, MatmulLtState

    told: list[str] = []
    hears = logging.Handler()
    hears.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("bitsandbytes").addHandler(hears)
    weight = torch.eye(16, dtype=torch.float16)
    state = MatmulLtState()
    state.CB, state.SCB, _ = bnb.functional.int8_vectorwise_quant(weight)
    state.has_fp16_weights = False
    given = torch.ones(2, 16, dtype=getattr(torch, question["dtype"]))
    given[0, 0] = question["largest"]
    found = MatMul8bitLt.apply(given, weight, None, None, state)
    return {"warned": " | ".join(told), "finite": bool(found.isfinite().all())}


VERBS = {"diagnose": diagnose, "multiply": multiply}
