"""Entry point for questions to DeepSpeed about itself.

Runs inside an environment that holds a DeepSpeed release, never in tunec's own process.

Verbs: `schema`, `defaults`, `resolve`, `initialize`, `arguments`; see the functions of these names.
"""

from tunec.targets.deepspeed.consumer.initialize import initialize
from tunec.targets.deepspeed.consumer.launcher import arguments
from tunec.targets.deepspeed.consumer.resolve import resolve
from tunec.targets.deepspeed.consumer.schema import defaults, schema

VERBS = {
    "schema": schema,
    "defaults": defaults,
    "resolve": resolve,
    "initialize": initialize,
    "arguments": arguments,
}
