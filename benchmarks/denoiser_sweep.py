"""Try to derive a card of every transformer and UNet of diffusers that paints or makes sound.

`python benchmarks/denoiser_sweep.py [CLASS...] [-j 2] [--seconds 400] [--every-way]` asks each
class in a process of its own and keeps the answers in `denoiser_sweep.jsonl`, of which
`just generate` makes `docs/derived-denoisers.md`. A class whose real models come with a card, or
which a rule derives, is not asked again. One of the twelve ways of computing is measured, unless
`--every-way` asks for all.
"""

import argparse
import inspect
import json
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from card_sweep import Family, shuffled, sweep
from forks import Row

ROWS: Final = Path(__file__).with_suffix(".jsonl")
HEAD: Final = "denoiser"
NO_DENOISER: Final = frozenset({"MotionAdapter"})
"""Classes without a forward pass: weights that a UNet loads (`unet_motion_model.py`)."""
FEW: Final = ("trained 2",)
"""The ways of computing that the sweep measures: all weights trained, in 16 bits."""
CONFIGS: Final[Mapping[str, Mapping[str, Any]]] = {
    # tests/pipelines/latte/test_latte.py in diffusers 0.42.1, in the widths of the class's defaults
    "LatteTransformer3DModel": {
        "in_channels": 4,
        "out_channels": 8,
        "patch_size": 2,
        "attention_head_dim": 72,
        "cross_attention_dim": 1152,
        "caption_channels": 4096,
        "num_layers": 28,
        "attention_bias": True,
        "activation_fn": "gelu-approximate",
        "num_embeds_ada_norm": 1000,
        "norm_type": "ada_norm_single",
        "norm_elementwise_affine": False,
    },
    # tests/pipelines/easyanimate/test_easyanimate.py, in the widths of the class's defaults
    "EasyAnimateTransformer3DModel": {"in_channels": 16, "out_channels": 16, "patch_size": 2},
    # tests/pipelines/hunyuandit: the channels and the patch that the class lacks
    "HunyuanDiT2DModel": {"in_channels": 4, "patch_size": 2, "hidden_size": 1408},
    # HiDream-ai/HiDream-I1-Full, transformer/config.json: 48 blocks read Llama's 32 layers
    "HiDreamImageTransformer2DModel": {
        "patch_size": 2,
        "axes_dims_rope": [64, 32, 32],
        "caption_channels": [4096, 4096],
        "llama_layers": [*range(32), *[31] * 16],
    },
    # scripts/convert_lumina_to_diffusers.py
    "LuminaNextDiT2DModel": {"num_layers": 24, "num_kv_heads": 8},
    # scripts/convert_dance_diffusion_to_diffusers.py: noise and time are channels too
    "UNet1DModel": {"extra_in_channels": 16},
    # models/unets/unet_2d_blocks.py: as a block of Stable Diffusion holds it
    "Transformer2DModel": {
        "in_channels": 320,
        "num_attention_heads": 8,
        "attention_head_dim": 40,
        "cross_attention_dim": 768,
    },
    # tests/pipelines/hunyuan_video/test_hunyuan_video_framepack.py: a picture and frames before it
    "HunyuanVideoFramepackTransformer3DModel": {
        "has_image_proj": True,
        "has_clean_x_embedder": True,
    },
    # scripts/convert_omnigen_to_diffusers.py: as many factors of positions; their values take none
    "OmniGenTransformer2DModel": {
        "rope_scaling": {"type": "su", "long_factor": [1.0] * 48, "short_factor": [1.0] * 48}
    },
    "DreamLiteTransformer2DModel": {
        "in_channels": 320,
        "num_attention_heads": 5,
        "attention_head_dim": 64,
        "num_kv_heads": 1,
        "cross_attention_dim": 2048,
    },
    # models/unets/unet_3d_blocks.py: as a block of the text-to-video UNet holds it
    "TransformerTemporalModel": {
        "in_channels": 320,
        "num_attention_heads": 8,
        "attention_head_dim": 40,
    },
}
"""Config keys of classes that cannot be built from their defaults."""


def denoisers() -> dict[str, Any]:
    """Every transformer and UNet that diffusers exports, by name."""
    import diffusers
    import torch
    from diffusers.models import transformers, unets

    found = {
        name: made
        for module in (transformers, unets)
        for name, made in vars(module).items()
        if inspect.isclass(made) and issubclass(made, torch.nn.Module) and hasattr(diffusers, name)
    }
    return {name: found[name] for name in sorted(found.keys() - NO_DENOISER)}


def known() -> dict[str, str]:
    """Classes that a rule derives or whose real models have a card in tunec, with the reason."""
    from tunec.compiler.analyses.architecture.families import FAMILIES
    from tunec.schemas.models.catalogue import card, card_names
    from tunec.schemas.models.derived_card import card_name, shipped

    found = dict.fromkeys(FAMILIES, "a rule of tunec")
    for name in card_names():
        config = card(name).config
        family = config.get("_class_name")
        if family and family not in found and shipped(card_name(config)):
            found[family] = f"the card of {name}"
    return found


def kept() -> dict[str, Row]:
    """The rows that are kept, by class."""
    lines = ROWS.read_text("utf-8").splitlines() if ROWS.exists() else []
    return {row["family"]: row for row in map(json.loads, lines)}


def keep(rows: Mapping[str, Row]) -> None:
    """Write the rows, sorted by class."""
    ROWS.write_text("".join(json.dumps(rows[name]) + "\n" for name in sorted(rows)), "utf-8")


def _measure_few() -> None:
    from tunec.compiler.tracing.live.derivation import denoiser_measures

    held = vars(denoiser_measures)
    held["WAYS"] = tuple(each for each in held["WAYS"] if each.named(eager=False) in FEW)


def main(arguments: Sequence[str] | None = None) -> int:
    """Derive the requested classes, and keep each row as it finishes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("classes", nargs="*", metavar="CLASS")
    parser.add_argument("-j", "--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=400)
    parser.add_argument("--gibibytes", type=int, default=8)
    parser.add_argument("--missing", action="store_true")
    parser.add_argument("--every-way", action="store_true")
    options = parser.parse_args(arguments)
    import diffusers
    import torch

    # what a fork would import for itself could be that of a later moment
    import_module("tunec.compiler.tracing.live.derivation.denoiser")
    torch.set_num_threads(1)
    release = f"diffusers {diffusers.__version__}"
    every, others = denoisers(), known()
    if not options.every_way:
        _measure_few()
    rows = {name: row for name, row in kept().items() if name in every}
    rows |= {
        name: {"family": name, "by": others[name], "release": release}
        for name in every.keys() & others.keys()
    }
    done = {n for n, row in rows.items() if options.missing and row["release"] == release}
    wanted = [n for n in options.classes or shuffled(every) if n not in done and n not in others]
    asked = {name: asked_of(name) for name in wanted}
    for row in sweep(asked, options.jobs, (options.seconds, options.gibibytes)):
        rows[row["family"]] = {**row, "release": release}
        keep(rows)
        sys.stdout.write(f"{row['family']}: {row.get('refused', 'derived')}\n")
        sys.stdout.flush()
    keep(rows)
    return 0


def asked_of(name: str) -> Family:
    """A class as the sweep derives it: its defaults, and the keys of `CONFIGS`."""
    return HEAD, {"_class_name": name, **CONFIGS.get(name, {})}, name


if __name__ == "__main__":
    sys.exit(main())
