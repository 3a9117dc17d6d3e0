"""What ds_config.json says of DeepSpeed's own data loader, where the Trainer loads the data."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_DROP: Final = "dataloader_drop_last"
_SAMPLING: Final = "data_efficiency.data_sampling."
_SWITCHES: Final = (
    f"{_SAMPLING}curriculum_learning.enabled",
    f"{_SAMPLING}dynamic_batching.enabled",
)


def _check(run: Run) -> Iterator[Finding]:
    if run.deepspeed_reader != "trainer":
        return
    drops = run.effective("trainer", _DROP).value
    for document in run.of("deepspeed"):
        at = document.get(_DROP)
        if at is not None and at.value is True and drops is not True:
            mend = f"write {_DROP}: true into the trainer's arguments"
            yield _finding(at, "an incomplete last batch is not dropped", mend)
        at = _sampling(document)
        if at is not None:
            name = at.path.split(".")[-2]
            yield _finding(at, f"no {name} takes place", "remove the block")


def _sampling(document: Document) -> Place | None:
    """The switch of a sampler that is turned on, and the blocks around it."""
    around = [document.get(f"{_SAMPLING}enabled"), document.get("data_efficiency.enabled")]
    if any(at is None or at.value is not True for at in around):
        return None
    asked = (document.get(key) for key in _SWITCHES)
    return next((at for at in asked if at is not None and at.value is True), None)


def _finding(at: Place, what: str, mend: str) -> Finding:
    return Finding(
        f"{at.path} is not read under the Trainer: {what}",
        (at.label("not read"),),
        ("DeepSpeed builds its own loader of training_data, which the Trainer does not give it",),
        mend,
    )


RULE = Rule(
    name="deepspeed-loader-unread",
    severity="warning",
    consequence="silent",
    consumers=("transformers", "accelerate"),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/engine.py `DeepSpeedEngine.__init__`: deepspeed_io "
            "where training_data is given; `deepspeed_io`: dataloader_drop_last and the sampler"
        ),
        (
            "accelerate 0.30.1 to 1.15.0 accelerator.py `_prepare_deepspeed`: deepspeed.initialize "
            "without training_data"
        ),
    ),
    check=_check,
)
