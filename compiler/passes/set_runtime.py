"""set_runtime: settings around the training loop."""

from tunec.compiler.analyses.time.machine import MOST_LOADERS
from tunec.compiler.facts import Facts
from tunec.compiler.ir.extra import written
from tunec.compiler.ir.plan import Draft
from tunec.compiler.passes.contract import Outcome, Scribe, as_given, slot, spec


def set_runtime(facts: Facts, draft: Draft) -> Outcome:
    """Set seed, output folder, trackers, data loading and the keys that are passed through."""
    scribe = Scribe(facts)
    train = facts.spec.train
    for name in ("seed", "output", "report_to"):
        why = as_given(train, name)
        scribe.say(f"runtime.{name}", getattr(train, name), why, spec(f"train.{name}"))
    noise = train.neftune_alpha
    why = as_given(train, "neftune_alpha", "not given: no noise")
    scribe.say("runtime.neftune_alpha", noise, why, spec("train.neftune_alpha"))
    why = "as the spec has it" if facts.spec.extra else "none are given"
    scribe.say("runtime.extra", written(facts.spec.extra), why, spec("extra"))
    cores = facts.selection.node.host.cores
    workers = max(1, min(MOST_LOADERS, cores // max(1, draft.devices.per_node) - 1))
    why = f"{cores} cores shared by {draft.devices.per_node} ranks, less one for each rank"
    scribe.say("runtime.dataloader_workers", workers, why, slot("devices.per_node"))
    pin = draft.precision.compute != "fp32" or draft.devices.capability is not None
    scribe.say("runtime.dataloader_pin_memory", pin, "page-locked batches copy in the background")
    return scribe.outcome()
