"""Units are named by class and by size."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.fsdp.asked import Asked, asked
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for each in asked(run):
        yield from _size_alone(run, each)
        size, layer = each.get("min_num_params"), each.get("transformer_layer_cls_to_wrap")
        policy = each.get("auto_wrap_policy")
        if size is None or layer is None or not isinstance(size.value, int) or size.value <= 0:
            continue
        is_old = run.runs("transformers<=5.6.2")
        if each.who == "trainer" and is_old is not False:
            yield Finding(
                "min_num_params and transformer_layer_cls_to_wrap exclude each other",
                (size.label("refused"), layer.label("", primary=False)),
                () if is_old else ("nobody names the version; it holds for transformers<=5.6.2",),
                "keep transformer_layer_cls_to_wrap",
                Fix((size.removed(),), "unsafe"),
                severity=None if is_old else "warning",
            )
        elif each.who == "accelerate" and policy is not None:
            by_class = str(policy.value).upper() == "TRANSFORMER_BASED_WRAP"
            unread = size if by_class else layer
            yield Finding(
                f"{unread.path.rpartition('.')[2]} is not read with {policy.value}",
                (unread.label("not read"), policy.label("", primary=False)),
                (),
                "remove it",
                Fix((unread.removed(),), "safe"),
                consequence="silent",
                severity="note",
            )


def _size_alone(run: Run, each: Asked) -> Iterator[Finding]:
    """The size of a unit without the policy that goes by it, which is not the default any more."""
    size, policy = each.get("min_num_params"), each.get("auto_wrap_policy")
    if each.who != "trainer" or size is None or run.runs("transformers>=5.15") is not True:
        return
    by_size = policy is not None and str(policy.value).upper() == "SIZE_BASED_WRAP"
    if isinstance(size.value, int) and size.value > 0 and not by_size:
        yield Finding(
            "min_num_params is not read: units are wrapped by class",
            (
                size.label("not read"),
                *([policy.label("", primary=False)] if policy is not None else []),
            ),
            ("auto_wrap_policy is TRANSFORMER_BASED_WRAP where it is left out",),
            "write auto_wrap_policy: SIZE_BASED_WRAP, or remove min_num_params",
            severity="warning",
            consequence="silent",
        )


RULE = Rule(
    name="fsdp-two-wrap-policies",
    severity="error",
    consequence="parse",
    consumers=(
        "transformers",
        "accelerate",
    ),
    sources=(
        (
            "transformers 4.40.2 to 5.6.2 training_args.py: ValueError, `min_num_params` and "
            "`transformer_layer_cls_to_wrap` are mutually exclusive"
        ),
        (
            "accelerate 0.30.1 to 1.15.0 utils/dataclasses.py "
            "`FullyShardedDataParallelPlugin.__post_init__`: one of the two is read, by the policy"
        ),
    ),
    check=_check,
)
