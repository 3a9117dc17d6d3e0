"""The names of LLaMA-Factory's templates, by the release that brought each.

data/template.py `register_template` of v0.8.3 to v0.9.5; a name that no release has may be one that
people registered themselves.
"""

from functools import cache
from typing import Final

from packaging.version import Version

_FIRST: Final = """
    alpaca aquila atom baichuan baichuan2 belle bluelm breeze chatglm2 chatglm3 chatml
    chatml_de codegeex2 codegeex4 cohere cpm dbrx deepseek deepseekcoder default empty
    falcon fewshot gemma glm4 intern intern2 llama2 llama2_zh llama3 mistral olmo openchat
    openchat-3.6 orion phi qwen solar starchat telechat vicuna xuanyuan xverse yayi yi yi_vl
    yuan zephyr ziya
"""
_ADDED: Final = {
    "0.9.0": """
        cpm3 llava paligemma qwen2_vl sailor
    """,
    "0.9.1": """
        exaone index llava_next llava_next_llama3 llava_next_mistral llava_next_qwen
        llava_next_video llava_next_video_mistral llava_next_video_yi llava_next_yi
        mllama opencoder phi_small pixtral video_llava
    """,
    "0.9.2": """
        bailing deepseek3 granite3 marco minicpm_o minicpm_v ministral mistral_small
        moonlight paligemma_chat phi4 qwen2_audio skywork_o1 telechat2
    """,
    "0.9.3": """
        cpm4 deepseekr1 gemma3 glmz1 granite3_vision hunyuan intern_vl kimi_vl llama4
        mimo mimo_vl qwen2_omni qwen3 seed_coder smollm smollm2
    """,
    "0.9.4": """
        bailing_v2 dots_ocr ernie ernie_nothink ernie_vl falcon_h1 gemma2 gemma3n
        glm4_5v glm4_moe glm4v gpt_oss granite4 intern_s1 keye_vl mimo_v2 minimax1
        minimax2 ministral3 qwen3_nothink qwen3_omni qwen3_omni_nothink qwen3_vl
        qwen3_vl_nothink seed_oss
    """,
    "0.9.5": """
        aeva gemma4 gemma4n glm4_7 glm_ocr hunyuan_small hy3 lfm2 lfm2_vl minicpm_v_4_6
        phi4_mini qwen3_5 qwen3_5_nothink qwen3_6 youtu youtu_vl
    """,
}
_GONE: Final = {
    "0.9.5": """
        aquila atom baichuan baichuan2 belle bluelm chatglm2 codegeex2 codegeex4 cpm
        cpm3 intern marco orion skywork_o1 telechat xverse yayi ziya
    """
}
"""Those whose models went with them."""
LAST: Final = "0.9.5"


@cache
def template_names(release: str) -> frozenset[str]:
    """The templates of a release, as of the newest that is known before it."""
    asked = Version(release)
    names = set(_FIRST.split())
    for each, added in _ADDED.items():
        if Version(each) <= asked:
            names |= set(added.split())
            names -= set(_GONE.get(each, "").split())
    return frozenset(names)


@cache
def since(name: str) -> str | None:
    """The release that brought a template; empty: it was always there; None: no release has it."""
    if name in _FIRST.split():
        return ""
    return next((each for each, added in _ADDED.items() if name in added.split()), None)
