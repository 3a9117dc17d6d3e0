"""Values of another type where a class's schema says nothing: within mappings, and 8.0 for 8."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document
from tunec.compiler.lints.facts.fsdp import Asked, asked
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Consequence, Finding
from tunec.compiler.lints.schemas import kinds_of, schemas
from tunec.schemas.frozen import replace

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
"""What transformers 5.23.0 and torch 2.13.0 said, asked with each of them; save_total_limit,
warmup_steps, logging_steps and ddp_timeout they took."""
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
    """Flags whose word becomes a whole number, in every release around."""
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
    """LLaMA-Factory's number of samples, which is no share of them."""
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


def _of_units(run: LintContext, each: Asked) -> Iterator[Finding]:
    """The size of a unit of FSDP: the trainer compares it, accelerate makes a number of it."""
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
    """What accelerate hands on as a text that is no whole number; `1e8` is a rule of its own."""
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
