"""How the Trainer of each release of transformers counts optimizer steps."""

from collections.abc import Mapping
from typing import Any, Final

from packaging.version import Version

from tunec.compiler.analyses.counting import Counting, count_whole, count_whole_and_partial
from tunec.compiler.analyses.packing import PackingStrategy
from tunec.compiler.releases import row_at
from tunec.compiler.target import Dialect
from tunec.schemas.caches import cached

_COUNTS_THE_TAIL: Final = Version("4.52")
"""The first release that counts a partial accumulation: transformers 4.52.4 trainer.py
`set_initial_training_values`; 4.51.3 only counts whole ones."""


_PACKS: Final[tuple[tuple[str, PackingStrategy], ...]] = (
    ("0", "buffered"),
    ("0.15", "wrapped"),
    ("0.19", "bfd"),
    ("0.27", "bfd_split"),
    ("0.29", "bfd"),
)
"""(First release of trl, meaning of `packing` alone): 0.8.6 to 0.14.0 trainer/utils.py
`ConstantLengthDataset`, 0.15.2 to 0.18.2 data_utils.py `pack_examples`, then `pack_dataset` with
the default of trainer/sft_config.py `packing_strategy`, whose bfd split in 0.27.2 and 0.28.0."""


_STRATEGIES: Final[Mapping[str, PackingStrategy]] = {
    "bfd": "bfd",
    "bfd_split": "bfd_split",
    "wrapped": "wrapped",
}
"""The values of `packing_strategy`: trl 1.16.0 data_utils.py `pack_dataset`."""


def counting(dialect: Dialect, passed: Mapping[str, Any]) -> Counting:
    """How the Trainer of a dialect counts steps, with TRL's packing if the dialect has TRL."""
    trl = dialect.get("trl")
    usual = "bfd" if trl is None else row_at(trl, _PACKS)
    packing = _STRATEGIES.get(str(passed.get("packing_strategy")), usual)
    return _of(dialect["transformers"], packing)


@cached(64)
def _of(version: Version, packing: PackingStrategy) -> Counting:
    steps = count_whole_and_partial if version >= _COUNTS_THE_TAIL else count_whole
    return Counting(f"the Trainer of transformers {version}", steps, packing)
