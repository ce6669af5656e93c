"""Looks up the tokens of a vocabulary, with the same names of attributes as Hugging Face."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, NoReturn, overload

from vocabularies.model.byte_alphabet import to_alphabet
from vocabularies.model.types import ROLES, Bpe
from warptok.errors import InvalidRequest
from warptok.options import OTHER_METHODS

if TYPE_CHECKING:
    from vocabularies.model.vocabulary import Vocabulary


def _token_of(role: str) -> property:
    """Make the property of a role's token."""

    def spell(names: TokenNames) -> str | None:
        token_id = names._roles.get(role)
        return None if token_id is None else names._spell(token_id)

    return property(spell, doc=f"The token of `{role}_token_id`; None if the vocabulary has none.")


class TokenNames:
    """The tokens of a vocabulary.

    Tokens are spelled as in the vocabulary's file: GPT-2's " world" is "Ġworld".

    Args:
        vocabulary: the vocabulary.
        roles: ids by role, such as {"pad": 0}, in addition to those of the vocabulary.
    """

    def __init__(self, vocabulary: Vocabulary, roles: Mapping[str, int]) -> None:
        self._vocabulary = vocabulary
        self._roles = {**vocabulary.roles, **roles}

    def __len__(self) -> int:
        return len(self._vocabulary)

    def __getattr__(self, name: str) -> NoReturn:
        """Raise AttributeError, which names the call to use instead of another library's method."""
        hint = f"; call {OTHER_METHODS[name]}" if name in OTHER_METHODS else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")

    @property
    def vocab_size(self) -> int:
        """The number of ids, including added tokens; an embedding needs this many rows."""
        return len(self)

    @property
    def pad_token_id(self) -> int | None:
        """The id to pad with; None if the vocabulary has none. It may be set."""
        return self._roles.get("pad")

    @pad_token_id.setter
    def pad_token_id(self, token_id: int | None) -> None:
        if token_id is None:
            self._roles.pop("pad", None)
            return
        self._check_id(token_id)
        self._roles["pad"] = token_id

    @property
    def pad_token(self) -> str | None:
        """The token of `pad_token_id`; None if the vocabulary has none. It may be set."""
        token_id = self.pad_token_id
        return None if token_id is None else self._spell(token_id)

    @pad_token.setter
    def pad_token(self, token: str | None) -> None:
        if token is not None and token not in self._ids:
            raise InvalidRequest(f"{token!r} is not a token of the vocabulary", where="pad_token")
        self.pad_token_id = None if token is None else self._ids[token]

    unk_token = _token_of("unk")
    bos_token = _token_of("bos")
    eos_token = _token_of("eos")
    cls_token = _token_of("cls")
    sep_token = _token_of("sep")
    mask_token = _token_of("mask")

    @property
    def unk_token_id(self) -> int | None:
        """The id of the unknown token, for text without a token; None if there is none."""
        return self._roles.get("unk")

    @property
    def bos_token_id(self) -> int | None:
        """The id of the token that begins a text; None if the vocabulary has none."""
        return self._roles.get("bos")

    @property
    def eos_token_id(self) -> int | None:
        """The id of the token that ends a text; None if the vocabulary has none."""
        return self._roles.get("eos")

    @property
    def cls_token_id(self) -> int | None:
        """The id of [CLS]; None if the vocabulary has none."""
        return self._roles.get("cls")

    @property
    def sep_token_id(self) -> int | None:
        """The id of [SEP]; None if the vocabulary has none."""
        return self._roles.get("sep")

    @property
    def mask_token_id(self) -> int | None:
        """The id of [MASK]; None if the vocabulary has none."""
        return self._roles.get("mask")

    @property
    def special_tokens(self) -> dict[str, int]:
        """The id of each special and added token by its text."""
        return {token.content: token.id for token in self._vocabulary.special_tokens}

    @property
    def special_tokens_map(self) -> dict[str, str]:
        """The special tokens by role, such as {"pad_token": "[PAD]"}."""
        ids = {role: self._roles[role] for role in ROLES if role in self._roles}
        return {f"{role}_token": self.convert_ids_to_tokens(ids[role]) for role in ids}

    def get_vocab(self) -> dict[str, int]:
        """Return the id of each token by its spelling."""
        return dict(self._ids)

    @overload
    def convert_tokens_to_ids(self, tokens: str) -> int | None: ...

    @overload
    def convert_tokens_to_ids(self, tokens: list[str]) -> list[int | None]: ...

    def convert_tokens_to_ids(self, tokens: str | list[str]) -> int | list[int | None] | None:
        """Return the id of a token, or of each token of a list; `unk_token_id` if unknown."""
        if isinstance(tokens, str):
            return self._ids.get(tokens, self.unk_token_id)
        return [self._ids.get(token, self.unk_token_id) for token in tokens]

    @overload
    def convert_ids_to_tokens(self, ids: int) -> str: ...
    @overload
    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]: ...

    def convert_ids_to_tokens(self, ids: int | Iterable[int]) -> str | list[str]:
        """Return the token of an id, or the tokens of a list of ids, as the vocabulary spells them.

        Raises:
            InvalidRequest: an id is not in the vocabulary.
        """
        if hasattr(ids, "__iter__"):
            return [self._spell(int(token_id)) for token_id in ids]
        return self._spell(int(ids))

    def _check_id(self, token_id: int) -> None:
        tokens = self._vocabulary.tokens
        if not 0 <= token_id < len(tokens) or tokens[token_id] is None:
            message = f"{token_id} is not an id of the vocabulary"
            raise InvalidRequest(message, code="id_out_of_range")

    def _spell(self, token_id: int) -> str:
        self._check_id(token_id)
        vocabulary = self._vocabulary
        if (content := vocabulary.contents.get(token_id)) is not None:
            return content
        token = vocabulary.tokens[token_id]
        assert token is not None, "_check_id has seen it"
        if isinstance(vocabulary.model, Bpe) and vocabulary.model.byte_level:
            return to_alphabet(token)
        return token.decode(errors="backslashreplace")

    @cached_property
    def _ids(self) -> dict[str, int]:
        tokens = self._vocabulary.tokens
        return {self._spell(i): i for i, token in enumerate(tokens) if token is not None}
