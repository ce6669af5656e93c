"""Opens the witness of a vocabulary, in a separate process if it has unknown patterns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from service.engines.cpu.patterns.isolated_encoder import IsolatedEncoder
from service.engines.cpu.patterns.messages import Message
from service.engines.cpu.witness import Witness, describe_witness
from vocabularies.model.tables import token_table
from vocabularies.model.vocabulary import Vocabulary


class IsolatedWitness:
    """A `Witness` in another process.

    Args:
        vocabulary: the vocabulary.
        encoder: the encoder whose processes compute the ids.
    """

    def __init__(self, vocabulary: Vocabulary, encoder: IsolatedEncoder) -> None:
        self.encoder = encoder
        self.name = describe_witness(vocabulary)

    def ids(self, text: str) -> list[int] | None:
        """Return the ids of a text; None if it is refused.

        Raises:
            AssertionError: the reference and the library disagree; one of them is wrong.
            DeadlinePassed: the call took too long.
        """
        message = Message({"call": "witness", "text": text})
        ids: list[int] | None = self.encoder.call(message, len(text.encode())).values["ids"]
        return ids


@contextmanager
def open_witness(vocabulary: Vocabulary) -> Iterator[Witness | IsolatedWitness]:
    """Make the witness of a vocabulary, which encodes texts one by one."""
    if not vocabulary.may_take_long:
        yield Witness(vocabulary)
        return
    with closing(IsolatedEncoder(vocabulary, token_table(vocabulary))) as encoder:
        yield IsolatedWitness(vocabulary, encoder)
