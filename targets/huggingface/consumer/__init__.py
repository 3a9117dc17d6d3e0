"""Entry point for questions to transformers, peft, trl and accelerate about themselves.

Runs inside an environment that holds one release of each, never in tunec's own process. Verbs:
`schema`, `defaults`, `automatic`, `resolve`, `adapt`, `quantize`, `rates`, `saved`, `script`,
`model`, `card`; see the functions.
"""

from tunec.targets.huggingface.consumer.adapter_config import saved
from tunec.targets.huggingface.consumer.adapters import adapt, quantize
from tunec.targets.huggingface.consumer.arguments import automatic, resolve
from tunec.targets.huggingface.consumer.cards import card
from tunec.targets.huggingface.consumer.rates import rates
from tunec.targets.huggingface.consumer.schema import defaults, schema
from tunec.targets.huggingface.consumer.trl_files import model, script

VERBS = {
    "schema": schema,
    "defaults": defaults,
    "automatic": automatic,
    "resolve": resolve,
    "adapt": adapt,
    "quantize": quantize,
    "rates": rates,
    "saved": saved,
    "script": script,
    "model": model,
    "card": card,
}
