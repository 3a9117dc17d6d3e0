"""DDP looks for unused parameters in a graph that reentrant checkpointing runs twice."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.batch.counts import engine_of
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    yield from _in_llamafactory(run)
    yield from _in_axolotl(run)
    find = run.said("trainer", "ddp_find_unused_parameters")
    checks = run.said("trainer", "gradient_checkpointing", "activation_checkpointing")
    if find is None or checks is None or find.value is not True or checks.value is not True:
        return
    world = run.value("parallel.world")
    reentrant = _is_reentrant(run)
    if engine_of(run) or world == 1 or reentrant is False:
        return
    yield Finding(
        "ddp_find_unused_parameters with reentrant checkpointing",
        (find.label("looks before the graph is there"), checks.label("", primary=False)),
        (
            "RuntimeError in the backward pass: expected to mark a variable ready only once",
            (
                "reentrant checkpointing builds each layer's graph in the backward pass, after DDP "
                "has looked which parameters take part"
            ),
            *(("transformers before 5 does so where nobody says",) if reentrant is None else ()),
        ),
        "remove ddp_find_unused_parameters, or write gradient_checkpointing_kwargs: "
        "{use_reentrant: false}",
        Fix((find.removed(),), "safe"),
        severity=None if reentrant else "warning",
    )


def _in_llamafactory(run: Run) -> Iterator[Finding]:
    """It checkpoints where nobody turns that off, and reentrantly where nobody asks for less."""
    for document in run.of("llamafactory"):
        find, world = document.get("ddp_find_unused_parameters"), run.value("parallel.world")
        if find is None or find.value is not True or engine_of(run) or world == 1:
            continue
        if document.value("disable_gradient_checkpointing") is True:
            continue
        if document.value("use_reentrant_gc") is False or run.said(
            "trainer", "gradient_checkpointing"
        ):
            continue
        yield Finding(
            "ddp_find_unused_parameters with LLaMA-Factory's reentrant checkpointing",
            (find.label("looks before the graph is there"),),
            (
                (
                    "layers are checkpointed unless disable_gradient_checkpointing is true, and "
                    "reentrantly unless use_reentrant_gc is false"
                ),
                "RuntimeError in the backward pass: expected to mark a variable ready only once",
            ),
            "remove it: with LoRA it is set to false for you",
            Fix((find.removed(),), "safe"),
            certain=world is not None,
        )


def _in_axolotl(run: Run) -> Iterator[Finding]:
    """It asks for the reentrant variant itself where a file does not say which."""
    for document in run.of("axolotl"):
        find, checks = (
            document.get(key) for key in ("ddp_find_unused_parameters", "gradient_checkpointing")
        )
        if find is None or checks is None or find.value is not True or checks.value is not True:
            continue
        if engine_of(run) or run.value("parallel.world") == 1 or not _reentrant_of(document):
            continue
        if any(document.value(key) for key in ("fsdp", "fsdp_config", "deepspeed")):
            continue
        yield Finding(
            "ddp_find_unused_parameters with reentrant checkpointing",
            (find.label("looks before the graph is there"), checks.label("", primary=False)),
            ("RuntimeError in the backward pass: expected to mark a variable ready only once",),
            "write gradient_checkpointing_kwargs: {use_reentrant: false}",
            severity=None if run.value("parallel.world") else "warning",
        )


def _reentrant_of(document: Document) -> bool:
    """Whether Axolotl recomputes so: written, or unasked where no word is said of it."""
    if document.get("gradient_checkpointing_kwargs") is not None:
        return document.value("gradient_checkpointing_kwargs.use_reentrant") is True
    keys = ("unfrozen_parameters", "rl", "activation_offloading")
    base = str(document.value("base_model") or "").lower()
    return "gemma-4" not in base and not any(document.get(key) for key in keys)


def _is_reentrant(run: Run) -> bool | None:
    """Written, or left to a release where it is the default; None: nobody names the release."""
    own = run.said("llamafactory", "use_reentrant_gc")
    if run.of("llamafactory"):
        return own is None or own.value is not False
    said = run.said("trainer", "gradient_checkpointing_kwargs.use_reentrant")
    if said is not None:
        return said.value is True
    kwargs = run.said("trainer", "gradient_checkpointing_kwargs")
    return run.runs("transformers<5") if kwargs is None else False


RULE = Rule(
    name="unused-parameters-with-checkpointing",
    severity="error",
    consequence="step",
    consumers=("transformers", "llamafactory", "axolotl"),
    sources=(
        (
            "torch 2.13.0 utils/checkpoint.py `checkpoint`: the reentrant variant does not work "
            "with DDP's find_unused_parameters; csrc/distributed/c10d/reducer.cpp: mark a variable "
            "ready only once"
        ),
        (
            "transformers 4.40.2 to 4.57.6 modeling_utils.py `gradient_checkpointing_enable`: "
            "use_reentrant True; 5.0.0 to 5.23.0: False"
        ),
        (
            "llamafactory 0.9.5 model/model_utils/checkpointing.py `prepare_model_for_training`; "
            "hparams/model_args.py `use_reentrant_gc`, true; hparams/parser.py: false for LoRA "
            "where nobody sets it"
        ),
        (
            "axolotl 0.13.2 and 0.19.0 utils/config/__init__.py `normalize_config`: use_reentrant "
            "True where gradient_checkpointing_kwargs are left out, but for rl, "
            "unfrozen_parameters and (0.19) Gemma 4; core/builders/causal.py hands the other on"
        ),
        "huggingface/accelerate#2017, hiyouga/LlamaFactory#2681",
    ),
    check=_check,
)
