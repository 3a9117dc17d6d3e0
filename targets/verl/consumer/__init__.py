"""verl asked about itself.

Runs inside an environment that holds one release of it, never in tunec's own process. Verbs:
`schema`, `resolve` and `rewarded`; see the functions.
"""

from tunec.targets.verl.consumer.classes import check
from tunec.targets.verl.consumer.resolve import resolve
from tunec.targets.verl.consumer.rewards import resolve_rewarded
from tunec.targets.verl.consumer.schema import schema

VERBS = {"check": check, "schema": schema, "resolve": resolve, "rewarded": resolve_rewarded}
