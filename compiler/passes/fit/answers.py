"""What the accounts need to know of answers: preference pairs, and generated answers."""

from tunec.compiler.analyses.memory.workload import Generation as Written
from tunec.compiler.analyses.memory.workload import InTurns, Preference
from tunec.compiler.ir.answers import Generation
from tunec.compiler.ir.slots import Evaluation, Objective
from tunec.schemas.objective_facts import OBJECTIVES


def preference_of(objective: Objective, generation: Generation) -> Preference | None:
    """The objective as the accounts need it; None for supervised training."""
    facts = OBJECTIVES[objective.kind]
    if not facts.generates:
        pairs = facts.sequences > 1
        return Preference(facts.sequences, objective.reference) if pairs else None
    is_apart = generation.engine not in ("none", "transformers")
    told = (1, objective.reference, generation.completion, is_apart)
    turns = (generation.engine_sleeps, generation.offload_training)
    return InTurns(*told, *turns) if any(turns) else Preference(*told)


def written_of(generation: Generation) -> Written | None:
    """What is generated on the devices; at ZeRO stage 3 TRL gathers the parameters for it.

    trl 0.15.2 to 1.16.0 trainer/grpo_config.py `ds3_gather_for_generation`.
    """
    if generation.engine in ("none", "vllm_server"):
        return None
    tokens, own = generation.prompt + generation.completion, generation.engine == "transformers"
    return Written(tokens, int(own), gathers=own, by_sample=True, steps=generation.completion)


def answers_of(evaluation: Evaluation, image_tokens: int) -> Written | None:
    """What evaluation generates for each sample, after the tokens of its images."""
    if evaluation.predictions != "answers":
        return None
    written, beams = evaluation.completion, evaluation.beams
    read = evaluation.prompt + image_tokens
    return Written(read + written, beams, by_sample=True, steps=written, beams=beams)


def kept_batches(evaluation: Evaluation) -> int:
    """Batches whose logits are on a device at the same time."""
    return (evaluation.kept_batches or 0) if evaluation.predictions == "logits" else 0
