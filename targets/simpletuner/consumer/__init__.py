"""Runs the real SimpleTuner in an environment of its own (`compiler/consumers/queries.py`).

Each verb is a function of one question. A question may have `files` (text by relative path, written
to an empty working directory), `folders` (created in it), `environment` (variables) and
`capability` (the compute capability that torch then reports; without it torch reports the real
one). A refusal by SimpleTuner comes back as `error: {stage, type, message}`. The entry points are
those of simpletuner 3.1.6 and 4.10.1.
"""

from collections.abc import Callable, Mapping
from typing import Final

from tunec.targets.simpletuner.consumer.counting import count
from tunec.targets.simpletuner.consumer.flags import defaults, families, schema
from tunec.targets.simpletuner.consumer.resolve import resolve
from tunec.targets.simpletuner.consumer.surroundings import Answer, Question
from tunec.targets.simpletuner.consumer.training_run import launch, schedule, step

VERBS: Final[Mapping[str, Callable[[Question], Answer]]] = {
    "schema": schema,
    "defaults": defaults,
    "families": families,
    "resolve": resolve,
    "launch": launch,
    "step": step,
    "schedule": schedule,
    "count": count,
}
