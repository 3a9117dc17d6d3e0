"""Numbers of prompts and samples that verl compares."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place, also
from tunec.compiler.lints.facts.training_loop import is_number
from tunec.compiler.lints.rule import Finding, keys, rule

_ACTOR: Final = "actor_rollout_ref.actor"
_MINI: Final = f"{_ACTOR}.ppo_mini_batch_size"
_WHOLE: Final = "data.train_batch_size"
_DEFAULT: Final = 256
"""verl 0.8.0 to 0.9.1 trainer/config/actor/actor.yaml; workers/config/actor.py
`ActorConfig.validate` compares the two unless `use_dynamic_bsz` is on."""


@rule("error", "init", consumers=("verl",), reads=keys("verl", _WHOLE, _MINI))
def update_larger_than_its_batch(run: LintContext) -> Iterator[Finding]:
    """An update takes more prompts than a step has."""
    whole, mini = run.said("verl", _WHOLE), run.said("verl", _MINI)
    by_tokens = run.said("verl", f"{_ACTOR}.use_dynamic_bsz")
    if whole is None or not is_number(whole.value):
        return
    if run.hides("verl", _MINI, f"{_ACTOR}.use_dynamic_bsz"):
        return
    if by_tokens is not None and by_tokens.value is not False:
        return
    if mini is not None and is_number(mini.value) and whole.value < mini.value:
        yield _larger(whole, mini, mini.value)
    elif mini is None and whole.value < _DEFAULT and run.said("verl", _WORKERS) is not None:
        yield _larger(whole, None, _DEFAULT)


_WORKERS: Final = "actor_rollout_ref.model.path"


def _larger(whole: Place, mini: Place | None, size: float) -> Finding:
    return Finding(
        f"verl refuses updates of {size} prompts: a step has {whole.value}",
        (whole.label("refused"), *also(mini, "more than there are")),
        () if mini else (f"ppo_mini_batch_size is {_DEFAULT} by default",),
        f"write {_MINI}: {whole.value}, or less",
        severity=None if mini else "warning",
    )


_NODES: Final = ("trainer.n_gpus_per_node", "trainer.nnodes")
_COPIES: Final = "actor_rollout_ref.rollout.n"
_TOKENS: Final = f"{_ACTOR}.ppo_max_token_len_per_gpu"
_BY_TOKENS: Final = f"{_ACTOR}.use_dynamic_bsz"
_SPREAD: Final = f"{_ACTOR}.ulysses_sequence_parallel_size"
_LENGTHS: Final = ("data.max_prompt_length", "data.max_response_length")


@rule("error", "init", consumers=("verl",), reads=keys("verl", _WHOLE))
def samples_not_even_over_processes(run: LintContext) -> Iterator[Finding]:
    """A step's samples are no multiple of the processes that share them."""
    whole, devices = run.said("verl", _WHOLE), run.said("verl", _NODES[0])
    if whole is None or devices is None or run.said("verl", _WORKERS) is None:
        return
    if run.hides("verl", _BY_TOKENS, _COPIES, _NODES[1], f"{_ACTOR}.strategy"):
        return
    by_tokens, strategy = run.said("verl", _BY_TOKENS), run.said("verl", f"{_ACTOR}.strategy")
    if by_tokens is not None and by_tokens.value is not False:
        return
    if strategy is not None and strategy.value not in ("fsdp", "fsdp2"):
        return
    copies, nodes = (_number(run.said("verl", key)) for key in (_COPIES, _NODES[1]))
    processes = _number(devices) * nodes
    samples = _number(whole) * copies
    if processes > 1 and samples % processes:
        yield Finding(
            f"the {samples} samples of a step cannot be shared evenly by {processes} processes",
            (whole.label("refused"), devices.label("", primary=False)),
            (f"{_number(whole)} prompts x {copies}: verl asserts a multiple of {processes}",),
            f"write a multiple of {processes} as {_WHOLE}",
        )


def _number(place: Place | None) -> int:
    value = 1 if place is None else place.value
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


@rule("error", "step", consumers=("verl",), reads=keys("verl", _TOKENS))
def sample_above_the_tokens_of_a_device(run: LintContext) -> Iterator[Finding]:
    """The longest sample has more tokens than a device processes at a time."""
    most, by_tokens = run.said("verl", _TOKENS), run.said("verl", _BY_TOKENS)
    prompt, response = (run.said("verl", key) for key in _LENGTHS)
    if most is None or by_tokens is None or by_tokens.value is not True:
        return
    if prompt is None or response is None or run.hides("verl", _SPREAD):
        return
    longest = _number(prompt) + _number(response)
    held = _number(most) * _number(run.said("verl", _SPREAD))
    if min(_number(prompt), _number(response), held) > 0 and longest > held:
        yield Finding(
            f"a sample has up to {longest} tokens, and a device takes {held}",
            (most.label("too few"), *also(prompt), *also(response)),
            (
                f"{_number(prompt)} of the prompt + {_number(response)} of the response",
                "a sample is not split: the first that is longer fails an assertion",
            ),
            f"write {_TOKENS}={longest} or more",
        )
