"""Model cards: a known model as data, with the facts of its own config file."""

from typing import Any, Literal

from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Architecture, ClipEncoder, References
from tunec.schemas.shape import Shape


class Refusal(Shape):
    """Something that a model cannot do, with the evidence."""

    reason: str
    source: str


class Component(Shape):
    """A further model that a run loads beside the trained one (text encoder, VAE)."""

    part: Literal["text_encoder", "vae"]
    config: dict[str, Any] = {}
    """The facts of its own config; empty if a card of the catalogue has them."""
    model: str | None = None
    """The card that describes it completely: a language model that encodes texts."""
    source: str


class Sibling(Shape):
    """Other weights for the modules that a card describes, and how their config differs."""

    config: dict[str, Any] = {}
    """The keys in which it differs from the card's."""
    stored_dtype: Literal["bf16", "fp16", "fp32"] | None = None
    """The dtype of these weights, if it differs from the card's."""
    reads_images: str = ""
    """As the card's, of these weights."""
    source: str = ""


class Edits(Shape):
    """How many reference images an edit model takes."""

    least: int = 1
    """The fewest in a sample; 0: it also generates from text alone."""
    most: int
    """The most in a sample."""
    seen: int = 0
    """Tokens that the text encoder makes of each, besides those of the text; 0: it sees none."""
    pipeline: str = ""
    """diffusers' class of its pipeline, by which a copy is known whose denoiser another has too."""
    source: str


class AutoencoderOfClips(Shape):
    """What it costs to encode one clip ahead of training, measured on the autoencoder's class."""

    config: dict[str, Any]
    """The facts of its own config."""
    parameters: int
    pixel: float
    """Elements for each pixel of one frame, however many frames there are."""
    frame: float
    """Elements for each pixel of every frame."""
    source: str


class ModelCard(Shape):
    """One model; the architecture is derived from `config`, never typed in.

    Facts about modules hold for siblings too: config, processor, components, parameters, LoRA
    targets, the maker's extras, SimpleTuner's family. So does a refused precision, since further
    training keeps the ranges of activations, that the weights are made for images, and the stored
    dtype unless a sibling has its own. `repo`, the aliases and a SimpleTuner flavour name only the
    card's own weights.
    """

    name: str
    """Short name of the weights in `repo`."""
    title: str
    repo: str
    """Where the weights are: the name that `from_pretrained` takes."""
    aliases: tuple[str, ...] = ()
    """Other names of these very weights: short ones, and repositories with a copy of them."""
    siblings: dict[str, Sibling] = {}
    """Repositories with other weights of the same modules, such as those tuned to a chat."""
    config: dict[str, Any]
    """The facts of the model's own config.json that define its modules."""
    config_source: str
    """Repository, file and revision that `config` was read from."""
    processor: dict[str, Any] = {}
    """The facts of its preprocessor_config.json that decide how many tokens an image becomes."""
    processor_source: str = ""
    reads_images: str = ""
    """The source which says that these weights are made for images, such as pages or screens.

    A sample then has an image by default, in families too whose samples hold text alone by default.
    """
    stored_dtype: Literal["bf16", "fp16", "fp32"] = "bf16"
    """The dtype of the published weights; also assumed for a spec's own config."""
    published_parameters: int | None = None
    """The count that the maker states (safetensors index), a check on the derived one."""
    precision_refused: dict[Literal["bf16", "fp16", "fp32"], Refusal] = {}
    """Precisions in which this model does not train, with the maker's statement."""
    lora_targets: tuple[str, ...] = ()
    """What LoRA normally adapts, by the last part of the module path."""
    lora_pattern: str | None = None
    """The regular expression over module paths that the maker's trainer uses, where it does."""
    trainer_extras: tuple[str, ...] = ()
    """Module paths that the maker's trainer trains in full beside LoRA (embeddings, resampler)."""
    simpletuner_family: str | None = None
    """SimpleTuner's `--model_family`, if there is one."""
    components: tuple[Component, ...] = ()
    edits: Edits | None = None
    """The reference images of a diffusion model that edits."""
    clips: AutoencoderOfClips | None = None
    """The autoencoder of a diffusion model that paints clips."""
    sources: dict[str, str] = {}
    notes: tuple[str, ...] = ()

    def completed(self, architecture: Architecture) -> Architecture:
        """An architecture with what the card says of reference images and of clips."""
        edits, clips = self.edits, self.clips
        if edits is None and clips is None:
            return architecture
        references = References(edits.least, edits.most, edits.seen) if edits else None
        encoder = ClipEncoder(clips.parameters, clips.pixel, clips.frame) if clips else None
        return replace(architecture, references=references, clip_encoder=encoder)
