"""The example scripts of transformers, which do what `--do_train` and its like ask for."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.run import Run

_EXAMPLES: Final = re.compile(
    r"(?:\A|/)run_(?:clm|mlm|plm|fim|glue|xnli|classification|ner|qa|qa_beam_search|seq2seq_qa|swag|"
    r"summarization|translation|speech_recognition_(?:ctc|seq2seq)|audio_classification|"
    r"image_classification|semantic_segmentation|mae|mim)\.py\Z"
)
"""transformers 4.40.2 to 5.23.0 examples/pytorch: their `main` asks for training_args.do_train."""


def example_of(run: Run, document: Document) -> Place | None:
    """Where the script of the flags' own file starts an example, if it starts no other script."""
    scripts = list(_scripts(run, document))
    found = [place for place in scripts if _EXAMPLES.search(_name(place))]
    return found[0] if found and len(found) == len(scripts) else None


def starts_an_example(run: Run, document: Document) -> bool:
    """Whether flags are those of an example of transformers."""
    return document.format == "shell" and example_of(run, document) is not None


def _scripts(run: Run, document: Document) -> Iterator[Place]:
    for each in run.of("launch"):
        place = each.get("script")
        if each.name == document.name and place is not None:
            yield place


def _name(place: Place) -> str:
    words = place.value if isinstance(place.value, list) else [place.value]
    return str(words[0]) if words else ""
