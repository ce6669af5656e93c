"""Parses the options of bulk calls from the query string, as their bodies contain only the data."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import QueryParams

from service.core.errors import InvalidRequest
from service.core.problem_details import invalid_body
from service.operations import schemas
from service.operations.schemas import MAX_CROP, MAX_ROW, MAX_SEED
from vocabularies.batch.batch import DEFAULT_OPTIONS, EncodeOptions
from vocabularies.model.vocabulary import TokenForm
from vocabularies.sequences.augmentation import Augmentation

DTYPES: dict[str, type[np.integer[Any]]] = {
    "int32": np.int32,
    "uint16": np.uint16,
    "uint8": np.uint8,
}
Query = TypeVar("Query", bound="BatchQuery")


class BatchQuery(BaseModel):
    """The options that every bulk call accepts, named as in the JSON calls."""

    model_config = ConfigDict(extra="forbid")

    vocabulary: str = Field(description=schemas.VOCABULARY)
    add_special_tokens: bool = Field(True, description=schemas.ADD_SPECIAL)
    special: schemas.Special = Field("match", description=schemas.SPECIAL)
    max_length: schemas.Length | None = Field(None, description=schemas.MAX_LENGTH)
    truncation_side: schemas.Side = Field("right", description=schemas.TRUNCATION)
    reverse_complement: bool = Field(False, description=schemas.REVERSE)
    circular: bool | None = Field(None, description=schemas.CIRCULAR)
    uppercase: bool = Field(False, description=schemas.UPPERCASE)
    invalid_utf8: Literal["refuse", "bytes"] = Field("refuse", description=schemas.INVALID_UTF8)
    dtype: Literal["int32", "uint16", "uint8"] = Field("int32", description=schemas.DTYPE)
    if_digest: str | None = Field(None, description=schemas.IF_DIGEST)

    def options(self) -> EncodeOptions:
        """Return the encode options, which are the same for each text of the body."""
        options = EncodeOptions(
            self.add_special_tokens,
            self.special,
            self.max_length,
            self.truncation_side,
            self.reverse_complement,
            self.circular,
            invalid_utf8=self.invalid_utf8,
            uppercase=self.uppercase,
        )
        # The batcher recognizes the default options by identity.
        return DEFAULT_OPTIONS if options == DEFAULT_OPTIONS else options


class StreamQuery(BatchQuery):
    """The options for a body of many texts, whose answer is an Arrow stream."""

    seed: int | None = Field(
        None, ge=0, le=MAX_SEED, description=f"{schemas.AUGMENTATION} {schemas.SEED}"
    )
    crop_letters: int | None = Field(None, ge=1, le=MAX_CROP, description=schemas.CROP)
    substitution_rate: float = Field(0.0, ge=0, le=1, description=schemas.SUBSTITUTION)
    first_row: int = Field(0, ge=0, le=MAX_ROW, description=schemas.FIRST_ROW)
    return_kernel_time: bool = Field(
        False,
        description="Add warptok.kernel_time to the metadata of each record batch: the seconds "
        "in which the engine computed the batch.",
    )

    def augmentation(self) -> Augmentation | None:
        """Return the random changes to each text; None if there are none.

        Raises:
            InvalidRequest: changes are requested without a seed.
        """
        if self.seed is None:
            for name in ("crop_letters", "substitution_rate", "first_row"):
                if name in self.model_fields_set:
                    raise InvalidRequest("is only allowed together with seed", f"/{name}")
            return None
        return Augmentation(self.seed, self.crop_letters, self.substitution_rate, self.first_row)


class TextQuery(BatchQuery):
    """The options for a body that is one text; offsets and tokens require a JSON answer."""

    return_offsets: schemas.Unit | None = Field(None, description=schemas.OFFSETS)
    return_tokens: bool = Field(False, description=schemas.TOKENS)
    token_form: TokenForm = Field("text", description=schemas.TOKEN_FORM)


def parse_query(model: type[Query], parameters: QueryParams) -> Query:
    """Parse the options of a call from its query string.

    Raises:
        InvalidRequest: an option is unknown, invalid, missing or repeated.
    """
    names = [name for name, _ in parameters.multi_items()]
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise InvalidRequest("occurs twice", f"/{repeated}")
    try:
        return model.model_validate(dict(parameters))
    except ValidationError as error:
        raise invalid_body(error) from error
