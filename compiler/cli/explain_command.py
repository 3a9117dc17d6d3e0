"""`tunec explain`: the reason for a value, or the meaning of a code."""

import difflib
from argparse import Namespace
from pathlib import Path

from tunec.compiler.cli.inputs import asked_targets, load
from tunec.compiler.cli.session import INPUT, OK, Misuse, Session
from tunec.compiler.diagnostics.codes import is_code, known_ids, page
from tunec.compiler.driver import plan
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.lints.index import is_rule, rule_names, rule_page
from tunec.compiler.review.explain import explain_json, explain_text


def run(options: Namespace, session: Session) -> int:
    """Explain a code, or a slot of a spec."""
    if options.slot is None:
        return _code(options.what, session)
    if options.slot not in SLOTS:
        raise Misuse(f"there is no slot {options.slot!r}{_slots_near(options.slot)}")
    loaded = load(options.what, options, session)
    result = plan(loaded, asked_targets(options.targets, loaded, session))
    session.diagnose(result.diagnostics, loaded.sources)
    if result.ledger.winner(options.slot) is None:
        if session.format == "json":
            told = [each.to_json() for each in result.diagnostics]
            session.json({"slot": options.slot, "value": None, "diagnostics": told})
        return INPUT
    if session.format == "json":
        told = [each.to_json() for each in result.diagnostics]
        session.json({**explain_json(result, options.slot), "diagnostics": told})
    else:
        session.tell(explain_text(result, options.slot))
    return OK if result.ok else INPUT


def _code(code: str, session: Session) -> int:
    code = code.upper() if is_code(code.upper()) else code
    if is_rule(code):
        return _page(code, rule_page(code), session)
    if code in SLOTS:
        raise Misuse(f"{code} is a slot of a spec's plan: tunec explain SPEC {code}")
    if code not in known_ids():
        what = "to explain a value, name a slot too: tunec explain SPEC SLOT"
        if Path(code).exists():
            raise Misuse(f"{code} is a file, not a code; {what}")
        hint = _near(code, sorted((*known_ids(), *rule_names())))
        raise Misuse(f"there is no code {code!r}{hint}{' ' if hint else '; '}{what}")
    return _page(code, page(code), session)


def _page(code: str, text: str, session: Session) -> int:
    if session.format == "json":
        session.json({"id": code, "page": text})
    else:
        session.result(text)
    return OK


def _slots_near(name: str) -> str:
    """The slots of a group, or slots with a similar name."""
    group = [each for each in SLOTS if each.startswith(f"{name}.")]
    if group:
        return f"; {name} has {', '.join(group)}"
    return _near(name, list(SLOTS)) or "; `tunec catalog slots` lists them"


def _near(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name.lower(), known, 3)
    near = near or difflib.get_close_matches(name.upper(), known, 3)
    return f"; did you mean {' or '.join(near)}?" if near else ""
