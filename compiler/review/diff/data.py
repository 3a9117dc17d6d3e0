"""A comparison as JSON."""

from typing import Any

from tunec.compiler.ir.show import plain
from tunec.compiler.review.diff.compare import Comparison, SpecChange
from tunec.compiler.review.diff.effects import Effect
from tunec.compiler.review.diff.groups import Group
from tunec.compiler.review.diff.intent import FieldChange
from tunec.compiler.review.outcome import Needs


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Everything that differs, cluster by cluster."""
    return {
        "class": comparison.kind,
        "specs": [_spec(each) for each in comparison.changed],
        "added": list(comparison.added),
        "removed": list(comparison.removed),
        "unreadable": list(comparison.unreadable),
    }


def _spec(change: SpecChange) -> dict[str, Any]:
    return {
        "spec": change.spec,
        **({"was": change.was} if change.was else {}),
        "class": change.kind if change.groups else None,
        "intent": [_field(each) for each in change.intent],
        "clusters": change.clusters,
        "untouched": change.untouched,
        "unplanned": change.unplanned,
        "groups": [_group(each) for each in change.groups],
    }


def _field(change: FieldChange) -> dict[str, Any]:
    place = {"file": change.span.file, "line": change.span.line} if change.span else {}
    return {"path": change.path, "old": change.old, "new": change.new, **place}


def _group(group: Group) -> dict[str, Any]:
    return {
        "class": group.kind,
        "where": group.where,
        "fate": group.fate,
        "effects": [_effect(each) for each in group.effects],
    }


def _effect(effect: Effect) -> dict[str, Any]:
    return {
        "cluster": effect.pair.cluster,
        "decisions": {
            each.slot: {
                "old": plain(each.old),
                "new": plain(each.new),
                "reason": each.reason,
                "class": each.meaning.kind,
                "why": each.meaning.why,
            }
            for each in effect.slots
        },
        "old": _needs(effect.old.needs),
        "new": _needs(effect.new.needs),
        "diagnostics": [each.to_json() for each in effect.new.faults],
    }


def _needs(needs: Needs | None) -> dict[str, Any] | None:
    if needs is None:
        return None
    return {
        "required_bytes": needs.required,
        "budget_bytes": needs.budget,
        "headroom_bytes": needs.headroom,
        "host_required_bytes": needs.host_required,
        "step_seconds": needs.step_seconds,
        "tokens_per_second": needs.tokens_per_second,
        "run_cost_dollars": needs.run_cost,
    }
