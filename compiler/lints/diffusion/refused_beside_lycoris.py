"""Keys beside LyCORIS that it refuses or does not read."""

from collections.abc import Iterator

from tunec.compiler.lints.diffusion.asked import configs, is_lora, is_on, said, word
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        at = said(document, "lora_type")
        if at is None or word(document, "lora_type") != "lycoris" or not is_lora(document):
            continue
        text = said(document, "train_text_encoder")
        if text is not None and is_on(text):
            yield Finding(
                "train_text_encoder cannot stand beside lora_type lycoris",
                (text.label("refused"), at.label("", primary=False)),
                (),
                "remove it",
            )
        for key in ("lora_rank", "lora_alpha", "lora_dropout", "use_dora"):
            rank = said(document, key)
            if rank is not None and rank.value not in (False, 0):
                yield Finding(
                    f"{key} does nothing with lora_type lycoris",
                    (rank.label("not used"), at.label("", primary=False)),
                    ("lycoris_config has its own linear_dim, linear_alpha and dropout",),
                    "remove it, and set it in the file",
                    severity="warning",
                    consequence="silent",
                )


RULE = Rule(
    name="refused-beside-lycoris",
    severity="error",
    consequence="init",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 3.1.6 and 4.10.1 helpers/training/default_settings/safety_check.py: "
            "LyCORIS training is not meant to be combined with --train_text_encoder; "
            "helpers/training/trainer.py `create_lycoris` reads lycoris_config alone"
        ),
    ),
    check=_check,
)
