"""Switches of LLaMA-Factory that are on and change nothing."""

from typing import Final

from tunec.compiler.lints.rows import Row, rows

SWITCH_NOT_IN_FORCE: Final = rows(
    "switch-not-in-force",
    "error",
    "silent",
    consumers=("llamafactory",),
    rows=(
        Row(
            "llamafactory:fp8=true",
            "fp8 true trains in another precision",
            "without effect",
            "its variables are set after the Accelerator that would read them is made",
            "use llamafactory 0.9.5, or remove fp8",
            since="llamafactory>=0.9.4,<0.9.5",
        ),
        Row(
            "llamafactory:use_muon=true",
            "use_muon true steps every weight by AdamW",
            "without effect",
            "Muon takes weights of two dimensions, and ZeRO stage 3 leaves each with one",
            "use ZeRO stage 2, or remove use_muon",
            effective=("deepspeed:zero_optimization.stage=3",),
        ),
    ),
)
