"""Samples as the memory account counts them: pairs, pictures, encoders and evaluation.

simpletuner 4.10.1 `helpers/training/trainer.py`: `init_unload_vae` and `init_unload_text_encoder`
let go of the encoders when the caches are filled, unless something is to be encoded later.

A picture that a file bounds is taken at its bound, as the text is at the longest that is allowed;
where nobody bounds it, the picture is the smallest that the family's processor makes.
"""

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place
from tunec.compiler.lints.facts.diffusion import lists
from tunec.compiler.lints.facts.lora import is_true
from tunec.compiler.lints.facts.memory.scripts import script_of
from tunec.compiler.lints.facts.training_loop import evaluates, is_whole
from tunec.schemas.frozen import replace

if TYPE_CHECKING:
    from tunec.compiler.analyses.memory.workload import Generation, Loss, Preference
    from tunec.schemas.models.architecture import Architecture, ImageTokens
    from tunec.schemas.terms import Reference


_STAGES: Final = ("dpo", "rm")
_KINDS: Final = ("dpo",)
_METHODS: Final = ("dpo", "dpop", "ipo", "orpo", "simpo")
_WITHOUT_REFERENCE: Final = ("orpo", "simpo")


def pairs_of(run: LintContext, adapter: str) -> "Preference | None":
    """Two sequences for each sample; None if one is read at a time, or it is unknown.

    llamafactory 0.9.1 to 0.9.5 data/collator.py `PairwiseDataCollatorWithPadding`; trl 0.9 to 1.16
    trainer/dpo_trainer.py, reward_trainer.py; axolotl 0.8.1 to 0.19.0 utils/schemas/enums.py
    `RLType`.
    """
    stage, method = run.said("llamafactory", "stage"), run.said("axolotl", "rl")
    is_pair = (
        scores_texts(run)
        or (stage is not None and stage.value in _STAGES)
        or (method is not None and method.value in _METHODS)
        or bool(run.of(*_KINDS))
    )
    if not is_pair:
        return None
    from tunec.compiler.analyses.memory.workload import Preference

    return Preference(2, _reference(run, adapter))


def scores_texts(run: LintContext) -> bool:
    """Whether a reward model is trained, which gives each text one number."""
    return bool(run.of("reward")) or run.value("objective.kind") == "reward"


def _reference(run: LintContext, adapter: str) -> "Reference":
    """A second model if the whole first one is surely trained; else none is counted.

    llamafactory 0.9.1 to 0.9.5 train/dpo/workflow.py `run_dpo`: finetuning_args.use_ref_model;
    train/trainer_utils.py `create_ref_model`.
    """
    if run.of("dpo"):
        told: Reference = run.value("objective.reference", "none")
        return told
    stage, loss = run.said("llamafactory", "stage"), run.said("llamafactory", "pref_loss")
    is_compared = stage is not None and stage.value == "dpo"
    compares = is_compared and (loss is None or loss.value not in _WITHOUT_REFERENCE)
    return "resident" if compares and adapter == "none" else "none"


_MOST_PIXELS: Final = ("image_max_pixels", "max_pixels", "image_resolution")
"""llamafactory 0.9.1 to 0.9.5 hparams/model_args.py; QwenLM/Qwen3-VL 9658872 qwen-vl-finetune/
qwenvl/train/argument.py; 2U1/Qwen-VL-Series-Finetune 93fef86 src/params.py."""
_LEAST_PIXELS: Final = ("image_min_pixels", "min_pixels")
_MOST_SLICES: Final = ("max_slice_nums", "max_dynamic_patch")
"""OpenBMB/MiniCPM-V 0dbb566 finetune/finetune.py; OpenGVLab/InternVL 2410d1d internvl_chat/
internvl/train/internvl_chat_finetune.py."""
_SLICES: Final = "dynamic_image_size"
"""Without these flags InternVL's script does not split images."""
_MANY: Final = 64
"""The number of slices above which they are not counted."""
_SIDE: Final = ("force_image_size",)
"""Pixels of a side of a slice, where InternVL's script changes them."""
_OF_PICTURES: Final = (
    *(*_MOST_PIXELS, *_LEAST_PIXELS, "image_folder", "media_dir", "image_dir"),
    *("freeze_vision_tower", "freeze_multi_modal_projector"),
)
"""Keys without which the data have no images."""
_ANY_SIZE: Final = 8192
"""Pixels of a side that every bound is below."""
_APART: Final = ("chatglm",)
"""Families of which one token of the text stands for the picture: THUDM/glm-4v-9b
modeling_chatglm.py `ChatGLMModel.forward` puts its states into the place of that token."""


class Pictures(NamedTuple):
    """The values of the slots of `data` for a sample, in their order."""

    images: int = 0
    width: int = 0
    height: int = 0
    image_tokens: int = 0
    """Positions of the language model's sequence that images fill."""
    vision_tokens: int = 0
    """Patches that the tower runs."""


NO_PICTURES: Final = Pictures()


def seen(run: LintContext, architecture: "Architecture") -> Pictures:
    """The image of a sample; none if nothing says that there are any."""
    rule = architecture.images
    if architecture.kind != "vision-language" or rule is None or not _has_pictures(run):
        return NO_PICTURES
    from tunec.compiler.analyses.architecture.image_tokens import image_tokens, vision_tokens

    if _number(run, _SIDE) not in (None, rule.image_size):
        return NO_PICTURES
    bounded, side = _bounded(run, rule)
    size = bounded, side, side
    return Pictures(1, side, side, image_tokens(*size), sum(vision_tokens(*size)))


def within(architecture: "Architecture", length: int | None, found: Pictures) -> Pictures:
    """The largest image that a sequence of this length holds; None: no file gives the length."""
    if length is None or architecture.family in _APART:
        return found
    return found._replace(image_tokens=min(found.image_tokens, length))


def text_tokens(architecture: "Architecture", length: int | None, found: Pictures) -> int:
    """Text tokens of a sample; if the length is unknown, the fewest possible."""
    if length is None or architecture.family in _APART:
        return length or int(not found.image_tokens)
    return length - found.image_tokens


def _has_pictures(run: LintContext) -> bool:
    if script_of(run) is not None or run.value("data.images", 0):
        return True
    if any(run.said("trainer", key) for key in _OF_PICTURES):
        return True
    scripts = (each.value("script") for each in run.of("launch"))
    return any("vlm" in str(words[0]) for words in scripts if isinstance(words, list) and words)


def _bounded(run: LintContext, rule: "ImageTokens") -> tuple["ImageTokens", int]:
    """The family's rule within the files' bounds, and the side of the image to apply it to."""
    if rule.rule in ("internvl", "minicpm-v"):
        slices = min(_number(run, _MOST_SLICES) or 1, _MANY)
        if rule.rule == "internvl" and not any(map(_is_on, run.each("trainer", _SLICES))):
            slices = 1
        return replace(rule, max_slices=slices), _ANY_SIZE if slices > 1 else rule.image_size
    if not rule.max_pixels:
        return rule, rule.image_size
    factor = (rule.patch * rule.merge) ** 2
    most, least = _number(run, _MOST_PIXELS), _number(run, _LEAST_PIXELS)
    if most is None:
        return replace(rule, min_pixels=min(max(least or 0, factor), rule.max_pixels)), 1
    return replace(rule, max_pixels=min(max(most, factor), rule.max_pixels)), _ANY_SIZE


def _is_on(at: Place) -> bool:
    return is_true(at.value)


def _number(run: LintContext, keys: tuple[str, ...]) -> int | None:
    """The number that a file gives one of the keys; a plan's own images have their size."""
    of = ("trainer", "minicpm-v")
    places = (place for kind in of for key in keys for place in run.each(kind, key))
    found: Any = next((at.value for at in places if not at.document.is_compiled), None)
    return found if is_whole(found) and found > 0 else None


_KEEPS_VAE: Final = ("keep_vae_loaded", "vae_cache_ondemand", "vae_cache_disable")
_KEEPS_TEXT: Final = ("text_cache_ondemand", "text_cache_disable")


def encoders(run: LintContext) -> "tuple[Architecture, ...]":
    """Text encoders and VAE that are on the device together before there is a model to train.

    Those of sd-scripts wait on the host: kohya-ss/sd-scripts 0.10.1 train_network.py
    `NetworkTrainer.train`, vae.to("cpu"). Those of ai-toolkit may be quantised apart, and
    musubi-tuner has none in training: what they give is cached by other scripts.
    """
    if run.of("sd-scripts", "ai-toolkit", "musubi-tuner"):
        return ()
    apart = _is_asked(run, ("offload_during_startup",))
    return () if run.model is None or apart else run.model.components


def kept_encoders(run: LintContext) -> "tuple[Architecture, ...]":
    """Text encoders and VAE that stay through training."""
    if run.model is None or not run.of("simpletuner"):
        return ()
    vae, text = _is_asked(run, _KEEPS_VAE), _is_asked(run, _KEEPS_TEXT)
    return tuple(
        each for each in run.model.components if (vae if each.kind == "autoencoder" else text)
    )


def _is_asked(run: LintContext, keys: tuple[str, ...]) -> bool:
    """Whether the config, or one of the data sets, sets it."""
    said = [place.value for key in keys for place in run.each("simpletuner", key)]
    sets = [each.value(key) for _, found in lists(run) for each in found for key in keys]
    return any(str(value).lower() == "true" for value in (*said, *sets))


_PATCHES: Final = ("use_liger", "freeze_merger", "vision_lora")
"""Flags of a script that puts Liger's loss into the model unasked (2U1/Qwen-VL-Series-Finetune
93fef86 src/params.py)."""
_OF_THEIR_OWN: Final = ("minicpmv", "internvl_chat", "VisualGLMModel")
"""Families whose own code makes the loss of logits in a dtype that differs between releases of
transformers: openbmb/MiniCPM-V 0dbb566 finetune/trainer.py `compute_loss`; OpenGVLab/InternVL
2410d1d internvl_chat/internvl/model/internvl_chat/modeling_internvl_chat.py `forward`."""


def answers_of(run: LintContext) -> "Generation | None":
    """The answers that Seq2SeqTrainer writes; None where there are none, or of unknown length.

    `generation_max_length` counts the prompt of a decoder, whose length nobody tells: the cheaper
    reading is a short one, since long ones are read at once.
    """
    if run.effective("trainer", "predict_with_generate").value is not True or not evaluates(run):
        return None
    length = run.effective("trainer", "generation_max_length").value
    if not is_whole(length) or length < 2:
        return None
    beams = run.effective("trainer", "generation_num_beams").value
    beams = beams if is_whole(beams) and beams > 0 else 1
    from tunec.compiler.analyses.memory.workload import Generation

    return Generation(length, beams, by_sample=True, steps=length - 1, beams=beams)


def evaluation_batch(run: LintContext, micro: int) -> int:
    """Samples at once in evaluation, where it takes more than training's do; else as many.

    Where answers of unknown length are written, prompts alone may be read.
    """
    asked = run.value("batch.evaluation")
    known = evaluates(run) and is_whole(asked) and asked > 0
    return asked if known and (not _writes(run) or answers_of(run) is not None) else micro


def _writes(run: LintContext) -> bool:
    said = run.effective("trainer", "predict_with_generate").value
    return bool(run.of("glm4")) or said is True


_OF_LABELS: Final = ("sft", "pt", "dpo")
"""Stages of LLaMA-Factory whose loss is of all logits (llamafactory 0.9.1 to 0.9.5 train/dpo/
trainer.py `concatenated_forward`: logits.to(torch.float32)); a reward's is of one value."""


def _stage(run: LintContext) -> object:
    said = run.said("llamafactory", "stage")
    return "sft" if said is None else said.value


def loss_of(run: LintContext) -> "Loss":
    """How the loss comes of the logits: all at once only where that is sure, else fused.

    transformers 4.40.2 to 5.23.0 models/<family>/modeling_<family>.py `forward`: logits of all
    positions where there are labels, in evaluation too. TRL changed its own way between releases.
    """
    if scores_texts(run):
        return "full"  # of one number for each sequence
    of_labels = run.value("objective.kind", "sft") == "sft"
    if run.of("llamafactory"):
        of_labels = _stage(run) in _OF_LABELS
    if run.value("loss.path") != "full" or not of_labels:
        return "fused"
    if run.model is None or run.model.architecture.family in _OF_THEIR_OWN:
        return "fused"
    if answers_of(run) is not None:
        return "fused"  # llamafactory 0.9.5 train/sft/trainer.py `prediction_step` pops the labels
    if run.of("axolotl", "alpaca-lora") or any(run.said("hf", key) for key in _PATCHES):
        return "fused"
    if run.of("sft") and not run.release("trl").is_named:
        return "fused"
    return "full" if run.of("hf", "sft", "llamafactory", "glm4") else "fused"
