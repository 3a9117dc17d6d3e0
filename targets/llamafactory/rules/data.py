"""Chat templates and data of LLaMA-Factory."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix, Term
from tunec.compiler.diagnostics.wording import did_you_mean, nearest
from tunec.compiler.lints.conditions import where
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.lora import last, loras
from tunec.compiler.lints.facts.training_loop import is_whole
from tunec.compiler.lints.rows import Mend, Row, rows
from tunec.compiler.lints.rule import Finding, rule
from tunec.schemas.frozen import replace
from tunec.targets.llamafactory.templates import sees, since, template_names, templates_of


@rule("warning", "silent", consumers=("llamafactory",), reads=("llamafactory:template",))
def template_of_another_family(run: LintContext) -> Iterator[Finding]:
    """The chat template belongs to another family of models."""
    for document in run.of("llamafactory"):
        at, model = document.get("template"), document.get("model_name_or_path")
        if document.is_view or at is None or model is None or document.value("stage") == "pt":
            continue
        fitting = templates_of(model.value) if isinstance(model.value, str) else ()
        fitting = tuple(each for each in fitting if _is_had(run, each))
        if not fitting or at.value in fitting or not isinstance(at.value, str):
            continue
        if since(at.value) is None:
            yield from _of_nobody(run, at, fitting[0])
            continue
        note = (
            "it takes images, which templates without them refuse"
            if sees(fitting[0])
            else "turns end with other tokens than the model was tuned on, also when it is served"
        )
        yield Finding(
            f"template {at.value} is not the one for {model.value}",
            (at.label("another family's"), model.label("", primary=False)),
            (f"LLaMA-Factory's own template for this model is {fitting[0]}", note),
            f"write template: {fitting[0]}",
            Fix((at.replaced(fitting[0]),), "unsafe"),
            severity="note" if _writes_alike(document, at.value, fitting[0]) else None,
        )


def _is_had(run: LintContext, template: str) -> bool:
    """Whether LLaMA-Factory has a template: the repository's own copy, if it holds one."""
    is_own = run.own.packs("llamafactory") or run.own.packs("llmtuner")
    return not is_own or run.own.registers(template, "register_template")


_ALIKE: Final = (("qwen", "qwen3"), ("vicuna", "llava"))
"""Templates with the same format of turns: llamafactory 0.9.5 data/template.py. The second of the
last pair also takes images."""


def _writes_alike(document: Document, written: str, own: str) -> bool:
    is_export = document.get("export_dir") is not None
    return any(
        written == first and own.startswith(second) and (is_export or not sees(own))
        for first, second in _ALIKE
    )


def _of_nobody(run: LintContext, at: Place, fitting: str) -> Iterator[Finding]:
    """A template that no release has: refused, unless code of this repository registers it."""
    if run.own.holds(f'name="{at.value}"') or run.own.quotes(at.value):
        return
    yield Finding(
        f"LLaMA-Factory has no template `{at.value}`, and stops before the model is loaded",
        (at.label("does not exist"),),
        (f"its own template for this model is {fitting}",),
        f"write template: {fitting}",
        Fix((at.replaced(fitting),), "unsafe"),
        consequence="init",
    )


@rule(
    "error", "load", consumers=("llamafactory",), reads=("llamafactory:template",), unless="quoted"
)
def template_of_another_release(run: LintContext) -> Iterator[Finding]:
    """A template that the release of LLaMA-Factory does not have."""
    for document in run.of("llamafactory"):
        at = document.get("template")
        if document.is_view or at is None or not isinstance(at.value, str):
            continue
        release = run.release("llamafactory")
        names = template_names(str(release.version))
        is_early = run.runs("llamafactory<0.8.3")
        # a later release may have brought what is like no name that is known
        is_slip = since(at.value) is None and bool(nearest(at.value, names))
        if at.value not in names and not is_early and (release.is_named or is_slip):
            yield _release_finding(run, at, at.value, names)


def _release_finding(run: LintContext, at: Place, name: str, names: frozenset[str]) -> Finding:
    brought = since(name)
    near = nearest(name, names)[:1] if brought is None else ()
    notes = (f"LLaMA-Factory {brought} brought it",) if brought else ()
    own = ("unless your own code registers it",) if brought is None else ()
    return Finding(
        f"{run.release('llamafactory')} has no template `{name}`",
        (at.label("does not exist"),),
        (*notes, *own),
        did_you_mean(near) or "use a template that the release has",
        Fix((at.replaced(near[0]),), "unsafe") if near else None,
        severity="warning" if brought is None else None,
    )


_BASE: Final = re.compile(r"/(meta-)?llama-3(\.[12])?-\d+b$")
"""Base models of Llama 3, in which the embeddings of `<|eot_id|>` and similar tokens are
untrained."""
_WORDS: Final = ("llama3",)
_EMBEDDINGS: Final = frozenset({"embed_tokens", "lm_head"})


@rule("warning", "silent", consumers=("llamafactory",), reads=("llamafactory:template",))
def turn_words_untrained(run: LintContext) -> Iterator[Finding]:
    """An adapter is trained with turn tokens whose embeddings the base model never trained."""
    for lora in loras(run):
        document = lora.document
        at, model = document.get("template"), document.get("model_name_or_path")
        if document.kind != "llamafactory" or at is None or at.value not in _WORDS or not model:
            continue
        if document.get("export_dir") is not None:
            continue  # it merges what another file has trained
        name = f"/{str(model.value).lower().rpartition('/')[2]}"
        is_learnt = bool(_EMBEDDINGS & {last(each) for each in lora.saved})
        if document.value("stage", "sft") != "pt" and _BASE.search(name) and not is_learnt:
            yield Finding(
                f"template {at.value} for a base model whose embeddings are not trained",
                (
                    at.label("its turn tokens are untrained"),
                    model.label("a base model", primary=False),
                ),
                ("nothing has taught it to end a turn by <|eot_id|>: answers go on and repeat",),
                "write template: default, tune the Instruct model, or add additional_target: "
                "embed_tokens,lm_head",
            )


_MIXED: Final = Row(
    "llamafactory:packing=true",
    "packing without neat_packing: samples of one sequence attend to each other",
    "several samples in one",
    "plain packing is meant for pre-training; neat_packing masks them from each other",
    "write neat_packing: true",
    files_only=True,
)
packing_lets_samples_mix = rows(
    "packing-lets-samples-mix",
    "warning",
    "silent",
    consumers=("llamafactory",),
    rows=(
        replace(
            _MIXED,
            mend=Mend("unsafe", rename="neat_packing"),
            beside=("no stage!=sft", "no neat_packing"),
        ),
        replace(_MIXED, beside=("no stage!=sft", "(neat_packing?)", "no neat_packing=true")),
    ),
)


_BEFORE: Final = ("dispatch_batches", "split_batches")
"""Keys of earlier releases that decide which process reads the data."""


@rule("error", "step", consumers=("llamafactory",), reads=("llamafactory:streaming",))
def streamed_batches_handed_out(run: LintContext) -> Iterator[Finding]:
    """One process reads a stream for all, and concatenates batches of several lengths."""
    world = run.world.value if run.world is not None else None
    if not isinstance(world, int) or world < 2:
        return
    for document in run.of("llamafactory"):
        stream = where(document, "streaming")
        if document.is_view or stream is None or _is_even(document) or _is_told(document):
            continue
        yield Finding(
            f"one of {world} processes reads for all, and concatenates batches of several lengths",
            (stream.label("batches are concatenated"),),
            (
                "each is padded to its own longest sample: batches of different size are refused",
                "accelerate does so for every stream, by default",
            ),
            "write accelerator_config: {dispatch_batches: false}",
        )


def _is_even(document: Document) -> bool:
    """Whether all batches have one length: packed samples do, and pre-training packs by default."""
    packed = document.value("packing")
    is_packed = packed if packed is not None else document.value("stage") == "pt"
    return bool(is_packed or document.value("neat_packing"))


def _is_told(document: Document) -> bool:
    said = document.get("accelerator_config")
    if said is not None and said.node.fields is None:
        return True  # a file that is not read here
    if any(document.get(key) is not None for key in _BEFORE):
        return True
    is_apart = document.value("accelerator_config.dispatch_batches") is False
    return is_apart or document.value("accelerator_config.split_batches") is True


_SHARE: Final = Row(
    "llamafactory:val_size>1e-6",
    "LLaMA-Factory refuses val_size {0.value} beside {1.key}",
    "refused",
    files_only=True,
)
validation_split_refused = rows(
    "validation-split-refused",
    "error",
    "parse",
    consumers=("llamafactory",),
    rows=(
        replace(_SHARE, beside=("eval_dataset",), help="keep one of them"),
        replace(
            _SHARE,
            when="llamafactory:val_size>1e-6 & (val_size<1)",
            message="LLaMA-Factory refuses val_size {0.value} beside {2.key}",
            beside=("streaming=true", "no eval_dataset"),
            help="write a number of samples",
        ),
    ),
)


_SIDES: Final = ((re.compile(r"(?i)qwen2(\.5)?-?vl"), 28), (re.compile(r"(?i)qwen3-?vl"), 32))
"""Pixels of a token's side: config.json `vision_config`, patch_size x spatial_merge_size."""
_FRAMES: Final = 128
_PIXELS: Final = 256 * 256
"""llamafactory 0.9.2 to 0.9.5 hparams/model_args.py `video_maxlen`, `video_max_pixels`."""
_TOGETHER: Final = 2
"""Frames of one token: config.json `vision_config.temporal_patch_size`."""


@rule("warning", "step", consumers=("llamafactory",), reads=("llamafactory:cutoff_len",))
def video_longer_than_sequence(run: LintContext) -> Iterator[Finding]:
    """A video with the requested frames and pixels has more tokens than the sequence."""
    for document in run.of("llamafactory"):
        if not document.is_view:
            yield from _of(document)


def _of(document: Document) -> Iterator[Finding]:
    length, model = document.get("cutoff_len"), document.value("model_name_or_path")
    frames_at, pixels_at = document.get("video_maxlen"), document.get("video_max_pixels")
    side = next((side for name, side in _SIDES if name.search(str(model))), None)
    said = [each for each in (pixels_at, frames_at) if each is not None]
    if side is None or length is None or not said or not _whole(length.value):
        return
    frames = frames_at.value if frames_at is not None else _FRAMES
    pixels = pixels_at.value if pixels_at is not None else _PIXELS
    if not _whole(frames) or not _whole(pixels):
        return
    each, pairs = pixels // side**2, -(-frames // _TOGETHER)
    if each * pairs < length.value:
        return
    yield Finding(
        f"a video takes up to {each * pairs:,} tokens, but a sequence holds {length.value:,}",
        (length.label("cuts the sequence"), *(at.label("", primary=False) for at in said)),
        (
            (
                f"{pixels:,} pixels / {side**2} a token = {each}; {frames} frames, "
                f"{_TOGETHER} a token = {pairs}: {each} x {pairs} = {each * pairs:,}"
            ),
            "video tokens that are cut off no longer match the video's features: the forward fails",
        ),
        "lower video_maxlen or video_max_pixels, or raise cutoff_len",
        sum=(
            Term("one video", each * pairs, "tokens"),
            Term("the sequence", length.value, "tokens"),
        ),
        severity=None if "video" in str(document.value("dataset")).lower() else "note",
    )


def _whole(value: object) -> bool:
    return is_whole(value) and value > 0
