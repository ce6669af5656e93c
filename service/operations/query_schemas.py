"""Options of the bulk calls, which stand in the query string because the body is the text."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import QueryParams

from service.core.errors import InvalidRequest
from service.core.problem_details import invalid_body
from service.operations import schemas
from vocabularies.batch.batch import DEFAULT_OPTIONS, EncodeOptions

DTYPES: dict[str, type[np.integer[Any]]] = {
    "int32": np.int32,
    "uint16": np.uint16,
    "uint8": np.uint8,
}
Query = TypeVar("Query", bound="BatchQuery")


class BatchQuery(BaseModel):
    """What every bulk call may ask for; the same words as in the JSON calls."""

    model_config = ConfigDict(extra="forbid")

    vocabulary: str = Field(description=schemas.VOCABULARY)
    add_special_tokens: bool = Field(True, description=schemas.ADD_SPECIAL)
    special: schemas.Special = Field("match", description=schemas.SPECIAL)
    max_length: schemas.Length | None = Field(None, description=schemas.MAX_LENGTH)
    truncation_side: schemas.Side = Field("right", description=schemas.TRUNCATION)
    reverse_complement: bool = Field(False, description=schemas.REVERSE)
    circular: bool | None = Field(None, description=schemas.CIRCULAR)
    dtype: Literal["int32", "uint16", "uint8"] = Field("int32", description=schemas.DTYPE)
    if_digest: str | None = Field(None, description=schemas.IF_DIGEST)

    def options(self) -> EncodeOptions:
        """What each row of the body asks for."""
        options = EncodeOptions(
            self.add_special_tokens,
            self.special,
            self.max_length,
            self.truncation_side,
            self.reverse_complement,
            self.circular,
        )
        # The batcher knows the default by identity: such works share one value.
        return DEFAULT_OPTIONS if options == DEFAULT_OPTIONS else options


class TextQuery(BatchQuery):
    """One text; offsets and tokens only where the answer is JSON."""

    return_offsets: schemas.Unit | None = Field(None, description=schemas.OFFSETS)
    return_tokens: bool = Field(False, description=schemas.TOKENS)


def parse_query(model: type[Query], parameters: QueryParams) -> Query:
    """The options of a call.

    Raises:
        InvalidRequest: one is unknown, wrong, missing or there twice.
    """
    names = [name for name, _ in parameters.multi_items()]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidRequest("is there twice", f"/{twice}")
    try:
        return model.model_validate(dict(parameters))
    except ValidationError as error:
        raise invalid_body(error) from error
