"""How a plan's processes lie on its nodes."""

from tunec.compiler.ir.plan import Plan


def processes(plan: Plan) -> tuple[int, int] | None:
    """Nodes and processes on each; None where they do not come out even.

    Nodes are filled one after the other, so that a plan with idle devices leaves whole nodes idle.
    """
    world, per_node = plan.parallel.world, plan.devices.per_node
    if world <= per_node:
        return 1, world
    nodes, rest = divmod(world, per_node)
    return None if rest else (nodes, per_node)


def uses_every_device(plan: Plan) -> bool:
    """Whether there is a process for each device."""
    return plan.parallel.world == plan.devices.nodes * plan.devices.per_node


def leaves_devices_idle(plan: Plan) -> bool:
    """Whether there are more devices than processes."""
    return not uses_every_device(plan)


def counted(plan: Plan) -> tuple[int, int]:
    """Nodes, and processes on each; where they do not come out even the row of the world says."""
    return processes(plan) or (plan.devices.nodes, plan.devices.per_node)
