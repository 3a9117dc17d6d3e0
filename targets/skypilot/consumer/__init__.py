"""SkyPilot's reading of a task file; no cloud is contacted and nothing is started.

Runs inside an environment with the package. Verb: `task`.
"""

from tunec.targets.skypilot.consumer.tasks import task

VERBS = {"task": task}
