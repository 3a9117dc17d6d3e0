"""Rules on DeepSpeed's and accelerate's files, and the tests that prove them."""

from collections.abc import Mapping
from typing import Final

_TESTS: Final[Mapping[str, str]] = {
    "word-of-another-type": "test_a_word_that_is_no_text_has_no_letters",
    "key-of-flags-only": "test_the_launcher_asks_its_file_where_a_flag_is_none_alone",
    "accumulation-left-out": "test_accelerate_puts_an_accumulation_of_one",
    "plugin-setting-refused": "test_a_plugin_asks_for_a_truth_value",
    "compile-mode-without-backend": "test_nothing_is_compiled_without_a_backend",
    "widths-without-their-engine": "test_a_width_of_context_asks_for_fsdp_2",
    "launcher-precision-refused": "test_a_precision_of_the_launcher_is_compared_with_the_file",
    "deepspeed-loader-unread": "test_accelerate_gives_deepspeed_no_data",
    "autotuning-left-on": "test_autotuning_ends_the_process",
    "file-of-another-format": "test_yaml_is_no_json",
    "fsdp-policy-refused": "test_the_trainer_compares_a_policy_as_it_is_written",
    "fsdp-key-unread": "test_the_trainer_looks_for_its_own_keys_of_fsdp",
    "older-name-overridden": "test_the_newer_name_of_checkpointing_holds",
    "sampler-settings-missing": "test_a_sampler_is_given_what_it_goes_by",
}
FILES: Final[Mapping[str, tuple[str, str]]] = {
    rule: ("test_files_of_deepspeed_and_accelerate.py", test) for rule, test in _TESTS.items()
}
"""Rule -> the file of the test, and the test."""
