"""SkyPilot asked what task a file is; no cloud is reached and nothing is started.

Runs inside an environment with the package. Verb: `task`.
"""

from tunec.targets.skypilot.consumer.tasks import task

VERBS = {"task": task}
