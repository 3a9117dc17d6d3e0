"""An option of one of Axolotl's plugins, which is not among `plugins`."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.axolotl.asked import configs
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_PLUGINS: Final = {
    "liger_": ("liger", "axolotl.integrations.liger.LigerPlugin"),
    "cut_cross_entropy": (
        "cut_cross_entropy",
        "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin",
    ),
    "spectrum_": ("spectrum", "axolotl.integrations.spectrum.SpectrumPlugin"),
    "kd_": ("kd", "axolotl.integrations.kd.KDPlugin"),
}
"""How an option begins, what names its plugin in `plugins`, and the whole name."""


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        named = document.get("plugins")
        if "plugins" in document.unknown:
            continue
        text = str(named.value).lower() if named is not None else ""
        for start, (word, plugin) in _PLUGINS.items():
            said = list(_said(document, start))
            if said and word.replace("_", "") not in text.replace("_", ""):
                yield _finding(document, said, named, plugin)


def _said(document: Document, start: str) -> Iterator[Place]:
    return (
        place
        for path, place in document.found.items()
        if path.startswith(start) and "." not in path and place.value not in (None, False)
    )


def _finding(document: Document, said: list[Place], named: Place | None, plugin: str) -> Finding:
    added = document.added("plugins", [plugin]) if named is None else None
    return Finding(
        f"{said[0].path} does nothing without the plugin {plugin}",
        (
            *(each.label("not read", primary=at == 0) for at, each in enumerate(said)),
            *([named.label("", primary=False)] if named is not None else []),
        ),
        ("the option is the plugin's own, and only those that `plugins` names are started",),
        f"write plugins: [{plugin}]",
        Fix((added,), "unsafe") if added is not None else None,
    )


RULE = Rule(
    name="option-without-its-plugin",
    severity="warning",
    consequence="silent",
    consumers=("axolotl",),
    sources=(
        (
            "axolotl 0.8.1 to 0.19.0 cli/config.py `prepare_plugins`: cfg['plugins'] alone; "
            "integrations/liger, cut_cross_entropy, spectrum and kd, args.py; run: 0.19.0 takes "
            "liger_rope and cut_cross_entropy without them, and drops them"
        ),
    ),
    check=_check,
)
