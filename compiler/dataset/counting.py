"""Counts tokens of samples: with a tokenizer as trainers call it, or estimated from characters."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from tunec.compiler.dataset.files import EXTRA, Unread
from tunec.compiler.dataset.forms import Chat, Plain, RecordNotOfForm, Sample, Sequence_
from tunec.compiler.dataset.templates import ChatTemplate
from tunec.compiler.dataset.tokenizers import TokenizerFiles

_CHARACTERS: Final = 4
"""Characters of a token in English: a judgement, only used for estimates that are requested."""
_AROUND: Final = 5
"""Tokens that a chat template adds to a message: a judgement, as above."""


class TokenCount(NamedTuple):
    """The number of tokens of one sample."""

    tokens: int
    before: int
    """The number of tokens before the first that is trained if only answers are."""


class Counter(Protocol):
    """Counts the tokens of samples."""

    def count(self, samples: Sequence[Sample]) -> list[TokenCount | RecordNotOfForm]:
        """Tokens of each sample, or why they cannot be counted."""
        ...


class Characters:
    """Estimates tokens from characters."""

    def count(self, samples: Sequence[Sample]) -> list[TokenCount | RecordNotOfForm]:
        """The estimated tokens of each sample."""
        return [_longest([_reckoned(each) for each in sample]) for sample in samples]


def _reckoned(sequence: Sequence_) -> TokenCount:
    if isinstance(sequence, Plain):
        before = -(-len(sequence.prompt) // _CHARACTERS)
        return TokenCount(before + -(-len(sequence.completion) // _CHARACTERS) + 1, before)
    sizes = [_AROUND + len(str(each["content"])) // _CHARACTERS for each in sequence.messages]
    return TokenCount(sum(sizes), sum(sizes[: sequence.asked]))


class Tokenizer:
    """Counts tokens with a model's own tokenizer."""

    def __init__(self, files: TokenizerFiles, template: ChatTemplate | None) -> None:
        """Load it. Raises Unread if it cannot be loaded, or `tokenizers` is not installed."""
        try:
            from tokenizers import Tokenizer as Loaded
        except ImportError:
            raise Unread(
                "tokens are counted by tokenizers, which is not installed", EXTRA
            ) from None
        try:
            self._tokenizer = Loaded.from_file(str(files.file))
        except Exception as fault:  # noqa: BLE001  its own errors are plain Exceptions
            raise Unread(f"`{files.file}` is no tokenizer: {fault}") from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._end = files.special.get("eos_token", "")
        self._template = template

    def count(self, samples: Sequence[Sample]) -> list[TokenCount | RecordNotOfForm]:
        """Tokens of each sample; for a pair, of the longer sequence."""
        flat = [each for sample in samples for each in sample]
        found = iter(self._counted(flat))
        return [_longest([next(found) for _ in sample]) for sample in samples]

    def _counted(self, sequences: Sequence[Sequence_]) -> list[TokenCount | RecordNotOfForm]:
        chats = [each for each in sequences if isinstance(each, Chat)]
        plain = [each for each in sequences if isinstance(each, Plain)]
        of_chats, of_plain = iter(self._chats(chats)), iter(self._plain(plain))
        return [next(of_chats if isinstance(each, Chat) else of_plain) for each in sequences]

    def _chats(self, chats: Sequence[Chat]) -> list[TokenCount | RecordNotOfForm]:
        """Count chats; a rendered template holds all special tokens: trl 1.16.0 `_tokenize`."""
        texts = [self._rendered(each) for each in chats]
        fit = [each for each in texts if not isinstance(each, RecordNotOfForm)]
        whole = iter(self._lengths((text for text, _ in fit), special=False))
        asked = iter(self._lengths((before for _, before in fit), special=False))
        return [
            each if isinstance(each, RecordNotOfForm) else _bounded(next(whole), next(asked))
            for each in texts
        ]

    def _rendered(self, chat: Chat) -> tuple[str, str] | RecordNotOfForm:
        if self._template is None:
            raise Unread(
                "the tokenizer has no chat template, and the records are conversations",
                "name the template's file with --template FILE",
            )
        try:
            whole = self._template.render(chat)
            if chat.asked == len(chat.messages):
                return whole, whole
            return whole, self._template.render_asked(chat) if chat.asked else ""
        except RecordNotOfForm as fault:
            return fault

    def _plain(self, texts: Sequence[Plain]) -> list[TokenCount | RecordNotOfForm]:
        """Count texts as trl 1.16.0 trainer/sft_trainer.py `add_eos` and `tokenize_fn` do."""
        whole = self._lengths((self._ended(each) for each in texts), special=True)
        asked = self._lengths((each.prompt for each in texts), special=True)
        return [
            _bounded(length, 0 if each.is_text else before)
            for each, length, before in zip(texts, whole, asked, strict=True)
        ]

    def _ended(self, each: Plain) -> str:
        text = each.prompt + each.completion
        return text if not self._end or text.endswith(self._end) else text + self._end

    def _lengths(self, texts: Iterable[str], *, special: bool) -> list[int]:
        encode: Any = self._tokenizer.encode_batch_fast
        try:
            found = encode(list(texts), add_special_tokens=special)
        except Exception as fault:  # noqa: BLE001  tokenizers 0.23 raises nothing narrower
            raise Unread(
                f"the tokenizer cannot turn a sample into tokens: {fault}",
                "give a tokenizer.json that knows every text, as the model's own does",
            ) from None
        return [len(each) for each in found]


def _bounded(tokens: int, before: int) -> TokenCount:
    return TokenCount(tokens, min(before, tokens))


def _longest(found: Sequence[TokenCount | RecordNotOfForm]) -> TokenCount | RecordNotOfForm:
    """The longer length of a pair, and the earlier start of an answer, as in a batch of pairs."""
    counted = [each for each in found if not isinstance(each, RecordNotOfForm)]
    if len(counted) < len(found):
        return next(each for each in found if isinstance(each, RecordNotOfForm))
    return TokenCount(max(each.tokens for each in counted), min(each.before for each in counted))
