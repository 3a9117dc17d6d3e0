"""ms-swift's own programs.

Runs inside an environment that holds one release of it, never in tunec's own process. Verbs:
`schema`, `models`, `resolve`; see the functions.
"""

from tunec.targets.ms_swift.consumer.models import models
from tunec.targets.ms_swift.consumer.resolve import resolve
from tunec.targets.ms_swift.consumer.schema import schema

VERBS = {"schema": schema, "models": models, "resolve": resolve}
