"""Muon where nothing makes its steps orthogonal."""

from typing import Final

from tunec.compiler.lints.rows import Row, rows

_MUON: Final = "deepspeed:optimizer.type~=muon"
_INLINE: Final = "deepspeed>=0.18,<0.19.6"
"""deepspeed 0.18.9 to 0.19.5 runtime/zero/muon/muon_optimizer.py `MuonWithAuxAdam` leaves that to
ZeRO's optimizers; 0.19.6 has `fallback_to_inline`."""

MUON_WITHOUT_ITS_STEP: Final = rows(
    "muon-without-its-step",
    "error",
    "silent",
    consumers=("deepspeed",),
    rows=(
        Row(
            _MUON,
            "Muon is plain SGD without ZeRO",
            "not orthogonal",
            "its steps are made orthogonal by the optimizer of ZeRO stage 1 and up",
            "write zero_optimization.stage: 1 or 2, or use DeepSpeed 0.19.8",
            effective=("deepspeed:zero_optimization.stage=0",),
            since=_INLINE,
        ),
        Row(
            f"{_MUON} & data_types.grad_accum_dtype=fp32 & bf16.enabled=true",
            "Muon is plain SGD beside gradients in fp32",
            "not orthogonal",
            "with bf16, stage 1 and these keys, another optimizer is used, which keeps flat parts",
            "remove data_types.grad_accum_dtype, or use DeepSpeed 0.19.8",
            effective=("deepspeed:zero_optimization.stage=1",),
            since=_INLINE,
        ),
    ),
)
