"""Which modules of a UNet adapters go on by default, against the model that diffusers builds."""

import pytest

from tunec.compiler.analyses.architecture import derive
from tunec.compiler.analyses.trainable import adapted_modules
from tunec.compiler.driver import plan
from tunec.compiler.frontend.load import load_text
from tunec.schemas.models.catalogue import card

pytest.importorskip("diffusers")


@pytest.mark.parametrize("name", ["sdxl-base-1.0", "stable-diffusion-v1-5"])
def test_adapters_go_on_the_attention_of_the_real_unet(name, build):
    """Every projection of an `Attention`, and nothing else of the block that holds it."""
    from diffusers.models.attention_processor import Attention
    from torch.nn import Linear

    found = card(name)
    unet = build(found.config, "diffusion")
    real = {
        f"{path}.{inner}"
        for path, module in unet.named_modules()
        if isinstance(module, Attention)
        for inner, part in module.named_modules()
        if isinstance(part, Linear)
    }
    decided = plan(
        load_text(
            f"tunec: 1\nmodel: {name}\nmethod: lora\nhardware: a100-80g-x1\ndata: {{train: p}}\n"
        )
    ).plan
    assert decided is not None
    assert set(decided.adapter.targets) == set(found.lora_targets)
    adapted = adapted_modules(derive(found.config), decided.adapter.targets)
    assert {path for module in adapted for path in module.names()} == real
