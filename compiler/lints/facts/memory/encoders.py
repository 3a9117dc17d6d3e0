"""What SimpleTuner keeps on the device of the models that encode its data.

simpletuner 4.10.1 `helpers/training/trainer.py`: `init_unload_vae` and `init_unload_text_encoder`
let go of them when the caches are filled, unless something is to be encoded later.
"""

from typing import TYPE_CHECKING, Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.facts.simpletuner_data import lists

if TYPE_CHECKING:
    from tunec.schemas.models.architecture import Architecture

_KEEPS_VAE: Final = ("keep_vae_loaded", "vae_cache_ondemand", "vae_cache_disable")
_KEEPS_TEXT: Final = ("text_cache_ondemand", "text_cache_disable")


def encoders(run: LintContext) -> "tuple[Architecture, ...]":
    """Text encoders and VAE that are on the device together before there is a model to train."""
    apart = _is_asked(run, ("offload_during_startup",))
    return () if run.model is None or apart else run.model.components


def kept_encoders(run: LintContext) -> "tuple[Architecture, ...]":
    """Text encoders and VAE that stay through training."""
    if run.model is None or not run.of("simpletuner"):
        return ()
    vae, text = _is_asked(run, _KEEPS_VAE), _is_asked(run, _KEEPS_TEXT)
    return tuple(
        each for each in run.model.components if (vae if each.kind == "autoencoder" else text)
    )


def _is_asked(run: LintContext, keys: tuple[str, ...]) -> bool:
    """Whether the config says so, or one of the data sets."""
    said = [place.value for key in keys for place in run.each("simpletuner", key)]
    sets = [each.value(key) for _, found in lists(run) for each in found for key in keys]
    return any(str(value).lower() == "true" for value in (*said, *sets))
