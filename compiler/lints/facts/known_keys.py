"""Which keys readers know, in which releases and places, and checks of values beyond schemas."""

from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from typing import Final

from packaging.version import InvalidVersion, Version

from tunec.compiler.consumers.schemas import class_schema, ds_config_schema, known_releases
from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import nearest
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document, Place
from tunec.compiler.lints.effective import known_around, releases_around
from tunec.compiler.lints.environment import split_requirement
from tunec.compiler.lints.facts.sharding import FsdpSettings, asked
from tunec.compiler.lints.kinds import schema
from tunec.compiler.lints.rule import Consequence, Finding
from tunec.compiler.lints.schemas import Schema, kinds_of, paths_of, schemas
from tunec.compiler.releases import neighbours
from tunec.schemas.caches import cached
from tunec.schemas.frozen import replace

BF16_SCALING: Final = frozenset(
    f"bf16.{name}"
    for name in (
        *("loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis"),
        *("min_loss_scale", "consecutive_hysteresis", "auto_cast", "fp16_master_weights_and_grads"),
    )
)
"""Keys of the fp16 block that people copy below bf16."""
_PROFILER: Final = "flops_profiler."
DEEPSPEED_RELEASES: Final = ("0.14", "0.15", "0.16", "0.17", "0.18", "0.19")
_LIKE: Final = 0.88
"""The similarity of two names (difflib's ratio) above which one counts as a misspelling."""


def known_at(schema: Schema) -> tuple[str, ...]:
    """The keys that a mapping of this schema may hold."""
    return tuple(schema.get("properties", {}))


def is_whole(document: Document) -> bool:
    """Whether a document holds all that its reader gets, under the reader's own keys.

    A ds_config written inline, below `deepspeed:`, does; accelerate's keys for DeepSpeed do not,
    nor do the flags that SwissArmyTransformer puts into a file of its own.
    """
    is_other = kind_behind(document) in ("accelerate", "launch", "sat")
    return not document.is_view or (document.kind == "deepspeed" and not is_other)


def kind_behind(document: Document) -> str:
    """The kind of the document with a document's keys: for a view, the viewed document."""
    if not document.is_view:
        return document.kind
    held = (place for key in document.keys if (place := document.get(key)) is not None)
    first = next(held, None)
    return document.kind if first is None else first.document.kind


@cached()
def deepspeed_paths(minor: str) -> frozenset[str]:
    """Every dotted key of ds_config.json in a minor release."""
    schema = ds_config_schema(minor)
    return frozenset(paths_of(schema)) | frozenset(schema.get("x-refused", ()))


@cached()
def fields_of(stem: str, release: str) -> frozenset[str]:
    """The fields of a configuration class in a release, or in those before and after it."""
    around = releases_around(stem, release)
    return frozenset(name for each in around for name in class_schema(stem, each)["properties"])


@cached()
def fields_ever(stem: str) -> frozenset[str]:
    """The fields that a configuration class has in any known release."""
    return frozenset[str]().union(*(fields_of(stem, each) for each in known_releases(stem)))


def homes_of(run: LintContext, path: str) -> tuple[str, ...]:
    """Other paths of ds_config.json that end in the same name."""
    release = run.release("deepspeed").version
    minor = f"{release.major}.{release.minor}"
    name = path.rpartition(".")[2]
    if minor not in DEEPSPEED_RELEASES or "params" in path.split("."):
        return ()
    known = deepspeed_paths(minor)
    homes = sorted(each for each in known if each.rpartition(".")[2] == name and each != path)
    return tuple(each for each in homes if name not in ("enabled", "type", "params", "device"))


def known_in_other_releases(run: LintContext, kind: str, path: str) -> tuple[str, ...]:
    """The known releases that have a key which the running release lacks, oldest first."""
    if kind == "deepspeed":
        return tuple(each for each in DEEPSPEED_RELEASES if path in deepspeed_paths(each))
    candidates = run.release("transformers").candidates
    # a range begins where it is not known if the key has gone: what pip takes is its newest
    certain = [each for each in candidates if not _is_between(each, path)]
    found = [_in_other_releases(each, path) for each in certain]
    return found[-1] if found and all(found) else ()


@cached()
def _is_between(version: Version, path: str) -> bool:
    """Whether the known release before one has a key, and the one after lacks it."""
    around = releases_around("training_arguments", str(version))
    held = [path in fields_of("training_arguments", each) for each in around]
    return held == [True, False]


@cached()
def _in_other_releases(version: Version, path: str) -> tuple[str, ...]:
    around = releases_around("training_arguments", str(version))
    if any(path in fields_of("training_arguments", each) for each in around):
        return ()
    known = known_releases("training_arguments")
    return tuple(each for each in known if path in fields_of("training_arguments", each))


def foreign_keys(run: LintContext, document: Document) -> Iterator[tuple[Place, str]]:
    """Keys that no release of TrainingArguments has, with the field that each misspells."""
    around = known_around("training_arguments", run.release("transformers"))
    fields = frozenset(name for each in around for name in fields_of("training_arguments", each))
    every = fields_ever("training_arguments")
    for path, place in document.found.items():
        if "." in path or path in every:
            continue
        likely = (*nearest(path, fields)[:1], *nearest(path, every)[:1])
        near = next((each for each in likely if _alike(path, each)), None)
        if near is not None and near not in document.found:
            yield place, near


def _alike(name: str, other: str) -> bool:
    return SequenceMatcher(None, name, other).ratio() >= _LIKE


def read_late(run: LintContext, path: str) -> Consequence | None:
    """What a value of another type comes to at such a key; None: it is as for every other key.

    deepspeed 0.14.5 to 0.19.8 runtime/engine.py `_take_model_step`: `% self.steps_per_print()`;
    runtime/zero/stage_1_and_2.py, stage3.py `step`: `self.clip_grad > 0.`; accelerate 0.30.1 to
    1.15.0 utils/dataclasses.py `DeepSpeedPlugin.__post_init__`: steps_per_print is inf, whatever
    the file says; transformers integrations/deepspeed.py `fill_match` compares gradient_clipping.
    """
    if path == "steps_per_print":
        return "silent" if run.deepspeed_reader == "trainer" else "step"
    if path == "gradient_clipping":
        return None if run.of("trainer") else "step"
    if path.startswith(_PROFILER) and path != f"{_PROFILER}enabled":
        is_on = run.effective("deepspeed", f"{_PROFILER}enabled").value is True
        is_compared = path.endswith("profile_step")
        return "step" if is_on and not is_compared else "silent"
    return None


TOOLS: Final = ("llamafactory", "axolotl", "ms-swift", "accelerate")
"""Kinds of documents that have a JSON Schema of the whole file for each release."""
CLASSES: Final = TRL
"""Kinds whose keys are the fields of a class of TRL."""
_FILES: Final = {
    "llamafactory": ("0.9.1", "0.9.3", "0.9.5"),
    "axolotl": ("0.8.1", "0.13.2", "0.19.0"),
    "ms-swift": ("4.0.4", "4.3.2", "4.6.0"),
    "accelerate": (
        *("0.30.1", "0.31.0", "0.34.2", "1.0.1", "1.4.0", "1.6.0", "1.7.0", "1.8.1", "1.10.1"),
        *("1.12.0", "1.13.0", "1.14.0", "1.15.0"),
    ),
}


def releases_of(kind: str) -> tuple[str, ...]:
    """The releases whose keys are known, oldest first."""
    if kind in CLASSES:
        return known_releases(f"{kind}_config")
    return _FILES[kind]


@cached()
def keys_at(kind: str, release: str) -> frozenset[str]:
    """The keys at the top of a file of that kind in a release."""
    if kind in CLASSES:
        return fields_of(f"{kind}_config", release)
    return frozenset(schema(f"{kind}/{release}.json")["properties"])


@cached()
def keys_ever(kind: str) -> frozenset[str]:
    """The keys of all known releases."""
    return frozenset[str]().union(*(keys_at(kind, each) for each in releases_of(kind)))


@cached()
def keys_ever_in(block: str) -> frozenset[str]:
    """The keys that a block of accelerate's file has in all known releases."""
    found = (schema(f"accelerate/{each}.json")["properties"] for each in releases_of("accelerate"))
    blocks = (each.get(block, {}).get("properties", {}) for each in found)
    return frozenset(name for each in blocks for name in each)


def package_of(kind: str) -> str:
    """The distribution that reads a kind."""
    return "trl" if kind in CLASSES else kind


def around(run: LintContext, kind: str) -> tuple[str, ...]:
    """The known releases that may run, or those before and after each; empty: not known.

    Those of its own minor release suffice if there are any.
    """
    try:
        asked = run.release(package_of(kind)).candidates
    except (LookupError, InvalidVersion):
        return ()
    return tuple(dict.fromkeys(each for one in asked for each in _around(kind, one)))


@cached()
def _around(kind: str, asked: Version) -> tuple[str, ...]:
    known = releases_of(kind)
    same = [each for each in known if Version(each).release[:2] == asked.release[:2]]
    among = same or known
    if exact := [each for each in among if Version(each) == asked]:
        return (exact[-1],)
    return neighbours(asked, among)


def having(kind: str, key: str, among: Iterable[str]) -> tuple[str, ...]:
    """Those of some releases that have a key."""
    return tuple(each for each in among if key in keys_at(kind, each))


_STRICT: Final = "trl>=0.19"
"""huggingface/trl v0.18.2 scripts/utils.py `TrlParser.parse_args_and_config` drops the keys of its
file that no class has; v0.19.0 raises ValueError: Unknown arguments from config file."""


def consequence_of_unknown(run: LintContext, document: Document) -> Consequence:
    """What happens to a key that the reader of a file or of flags does not know."""
    if document.kind == "axolotl":
        return "silent"
    is_strict = run.runs(_STRICT)
    if is_strict is None:  # then the release that fits the others decides
        is_strict = split_requirement(_STRICT)[1].contains(run.release("trl").version)
    return "parse" if is_strict or not _is_recipe(document) else "silent"


def may_be_dropped(run: LintContext, document: Document) -> bool:
    """Whether an unknown release decides if an unknown key is refused."""
    return _is_recipe(document) and run.runs(_STRICT) is None


def _is_recipe(document: Document) -> bool:
    return document.kind in CLASSES and document.format not in ("shell", "python")


@cached()
def script_keys() -> frozenset[str]:
    """The keys of TRL's scripts outside the trainers' classes: ScriptArguments, ModelConfig."""
    files = schema("trl/index.json")["sft"].items()
    return frozenset[str]().union(
        *(
            frozenset(schema(f"trl/{name}")["properties"]) - keys_at("sft", release)
            for release, name in files
            if release in releases_of("sft")
        )
    )


_NO_INTEGER: Final = "'float' object cannot be interpreted as an integer"
_REFUSED: Final[Mapping[str, tuple[str, Consequence]]] = {
    "per_device_train_batch_size": ("batch_size should be a positive integer value", "init"),
    "per_device_eval_batch_size": ("batch_size should be a positive integer value", "step"),
    "gradient_accumulation_steps": (_NO_INTEGER, "init"),
    "max_steps": (_NO_INTEGER, "init"),
    "dataloader_num_workers": (_NO_INTEGER, "init"),
    "dataloader_prefetch_factor": (_NO_INTEGER, "init"),
    "seed": ("NumPy casts no fraction to its seed", "init"),
    "data_seed": ("manual_seed expected a long", "init"),
    "torch_empty_cache_steps": ("it must be an integer bigger than 0", "parse"),
}
"""The answers of transformers 5.23.0 and torch 2.13.0 for each of them; they accepted
save_total_limit, warmup_steps, logging_steps and ddp_timeout."""
_SWITCHES: Final = ("split_batches", "dispatch_batches", "even_batches", "non_blocking")
_STEPS: Final = "accelerator_config.gradient_accumulation_kwargs.num_steps"


def beyond_the_schema(run: LintContext) -> Iterator[Finding]:
    """Findings for `value-of-another-type`: fields of TrainingArguments in files and flags."""
    for document in run.of("hf", *TRL, "llamafactory"):
        if document.is_view:
            continue
        names = _whole_fields(run, document) if document.format == "shell" else _REFUSED
        for name in names:
            place = document.get(name)
            if place is not None and isinstance(place.value, float) and place.value.is_integer():
                yield _with_a_point(place, *_why(document, name))
        yield from _of_loader(document)
        yield from _of_samples(document)
    for each in asked(run):
        yield from _of_units(run, each)


def _why(document: Document, name: str) -> tuple[str, Consequence]:
    if document.format == "shell":
        return "argparse makes the value of the word by int()", "parse"
    return _REFUSED[name]


def _whole_fields(run: LintContext, document: Document) -> Iterator[str]:
    """Flags whose text is converted to an integer, in every release around."""
    around = schemas(run, document)
    for name in around[0].get("properties", {}) if around else ():
        fields = [each.get("properties", {}).get(name) for each in around]
        kinds = [set(kinds_of(each)) - {"null"} for each in fields if each is not None]
        if all(each == {"integer"} for each in kinds):
            yield name


def _with_a_point(place: Place, why: str, consequence: Consequence) -> Finding:
    number = round(place.value)
    return Finding(
        f"`{place.path}` has to be a whole number, and is {place.value}",
        (place.label("of another type"),),
        (why,),
        f"write {number}",
        Fix((place.replaced(number),), "safe"),
        consequence=consequence,
    )


def _of_samples(document: Document) -> Iterator[Finding]:
    """LLaMA-Factory's number of samples, if it is not an integer."""
    at = document.get("max_samples") if document.kind == "llamafactory" else None
    if at is not None and document.format != "shell" and isinstance(at.value, float):
        found = _text(at, "a whole number", f"{_NO_INTEGER}: range(max_samples)", "init")
        # 1000.0 goes unused where there are fewer samples
        yield replace(found, severity="warning") if at.value.is_integer() else found


def _of_loader(document: Document) -> Iterator[Finding]:
    """Texts within `accelerator_config`, whose dataclass takes any value."""
    steps = document.get(_STEPS)
    if steps is not None and isinstance(steps.value, str):
        why = "it takes the place of gradient_accumulation_steps, which is counted with"
        yield _text(steps, "a whole number", why, "init")
    for name in _SWITCHES:
        place = document.get(f"accelerator_config.{name}")
        if place is not None and isinstance(place.value, str) and place.value:
            yield _text(place, "true or false", "any text counts as true", "silent")


def _of_units(run: LintContext, each: FsdpSettings) -> Iterator[Finding]:
    """The size of an FSDP unit: the trainer compares it, accelerate converts it."""
    size, policy = each.get("min_num_params"), each.get("auto_wrap_policy")
    if size is None or each.who == "axolotl":
        return
    if each.who == "trainer" and isinstance(size.value, str):
        by_size = policy is not None and "SIZE" in str(policy.value).upper()
        is_old = run.runs("transformers<=5.6.2")
        if is_old is not False or by_size:
            found = _text(size, "a whole number", "it is compared with 0 as it is", "parse")
            yield found if is_old or by_size else replace(found, severity="warning")
    elif each.who == "accelerate" and _is_no_count(size.value):
        why = f"int('{size.value}') is refused when FSDP is set up"
        yield _text(size, "a whole number", why, "init")


def _is_no_count(value: object) -> bool:
    """Whether accelerate gets a text that is not an integer; `1e8` has its own rule."""
    if isinstance(value, str):
        return bool(value) and not value.isdigit() and "e" not in value.lower()
    return isinstance(value, float)


def _text(place: Place, wanted: str, why: str, consequence: Consequence) -> Finding:
    return Finding(
        f"`{place.path}` has to be {wanted}, and is {place.value!r}",
        (place.label("of another type"),),
        (why,),
        f"write {wanted}",
        consequence=consequence,
    )


WHOLE_FLAGS: Final = ("axolotl", "accelerate")
"""Whose flags are written out: axolotl 0.19.0 cli/main.py is click's; accelerate 0.30.1 to 1.15.0
commands/launch.py has `allow_abbrev=False`."""


def is_begun(document: Document, name: str, keys: frozenset[str]) -> bool:
    """Whether a parser takes a flag for the one that it is a prefix of.

    python 3.11 argparse: `allow_abbrev` is on, also for transformers' HfArgumentParser.
    """
    return document.format == "shell" and sum(each.startswith(name) for each in keys) == 1
