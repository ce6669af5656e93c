"""The routes for vocabularies: list, show, download, upload, delete, verify, load and unload."""

from __future__ import annotations

import asyncio
import io
import zipfile
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from starlette.datastructures import UploadFile
from starlette.types import Message

from service.core.errors import InvalidRequest, TooLarge, UnsupportedFormat
from service.core.problem_details import invalid_body
from service.engines.cpu.verification import sample_texts, verify
from service.http.dependencies import ServiceDep, read_whole_body
from service.http.names_in_paths import NAME_PATH
from service.http.openapi import refusals
from service.http.query_options import DECLARED_ONLY
from service.operations.operation import parse
from service.registry.management import MAX_FILES, Upload
from service.registry.names import split_aliases
from service.registry.reports import (
    VerifyRequest,
    VerifyResponse,
    VocabularyList,
    VocabularyReport,
    report,
    report_put,
)
from vocabularies import formats
from vocabularies.errors import VocabularyError
from vocabularies.formats.parsing import parse_json

router = APIRouter(
    prefix="/v1/vocabularies",
    tags=["vocabularies"],
    responses=refusals(404, 422),
    dependencies=[DECLARED_ONLY],
)
NAME = "/name"  # The place of a name in a path.
SPECIAL_TOKENS = TypeAdapter(dict[str, int])


class UploadOptions(BaseModel):
    """The options of an upload, which the query string and the form may contain."""

    model_config = ConfigDict(extra="forbid")

    format: str
    replace: bool
    pretokenizer: str | None
    special_tokens: str | None
    id_offset: Annotated[int, Field(ge=0)]
    aliases: str | None
    decoder: Literal["file", "inverse"]


@dataclass(frozen=True, slots=True)
class UploadBody:
    """The files of an upload by name, and the form fields if the body is a form."""

    files: dict[str, bytes] = field(default_factory=dict)
    fields: dict[str, str] = field(default_factory=dict)


@router.get("")
async def list_vocabularies(service: ServiceDep) -> VocabularyList:
    """List all vocabularies, loaded or not."""
    vocabularies = list(service.registry.known.values())
    return VocabularyList(vocabularies=[report(service.registry, each) for each in vocabularies])


@router.get(f"/{NAME_PATH}", response_model=VocabularyReport, responses=refusals(415))
async def get_vocabulary(
    service: ServiceDep,
    name: str,
    format: Annotated[
        str | None,
        Query(
            description="Download the vocabulary in this format: "
            + ", ".join(formats.WRITABLE_FORMATS)
        ),
    ] = None,
) -> VocabularyReport | Response:
    """Describe a vocabulary, or download it in a format."""
    if format is None:
        return report(service.registry, service.registry.find(name, NAME))
    if format not in formats.FORMATS:
        known = ", ".join(formats.WRITABLE_FORMATS)
        raise UnsupportedFormat(
            f"is not a format that can be written; possible are {known}", "format"
        )
    entry = await service.registry.get_loaded(name, NAME)
    files = await asyncio.to_thread(formats.write_vocabulary, entry.vocabulary, format)
    if len(files) > 1:
        files = {f"{entry.name.rpartition('/')[2]}.zip": _zip(files)}
    [(file_name, content)] = files.items()
    headers = {"content-disposition": f'attachment; filename="{file_name}"'}
    return Response(content, media_type="application/octet-stream", headers=headers)


def _zip(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file_name, content in files.items():
            archive.writestr(file_name, content)
    return packed.getvalue()


@router.put(
    f"/{NAME_PATH}",
    status_code=201,
    responses={200: {"model": VocabularyReport}, **refusals(403, 409, 413, 507)},
)
async def put_vocabulary(
    service: ServiceDep,
    request: Request,
    response: Response,
    name: str,
    format: str = "auto",
    replace: bool = False,
    pretokenizer: str | None = None,
    special_tokens: Annotated[
        str | None,
        Query(
            description='Special tokens and their ids as a JSON object, such as {"<|end|>": 50256}'
        ),
    ] = None,
    id_offset: Annotated[int, Query(ge=0)] = 0,
    aliases: Annotated[
        str | None, Query(description="Other names of the vocabulary, separated by commas.")
    ] = None,
    decoder: Annotated[
        Literal["file", "inverse"],
        Query(
            description="'file': decode ids as the file says; 'inverse': decode them to "
            "exactly the text that was encoded."
        ),
    ] = "file",
) -> VocabularyReport:
    """Upload a vocabulary: one file as the body, or several as multipart/form-data.

    The options may be in the query string or in form fields.

    201: the name is new; 200: the name already belongs to this vocabulary; 409: the name belongs
    to another vocabulary (`replace=true` replaces it; running requests finish with the old one).
    """
    body = await _read_body(request, name, service.settings.max_vocabulary_bytes)
    values = {
        "format": format,
        "replace": replace,
        "pretokenizer": pretokenizer,
        "special_tokens": special_tokens,
        "id_offset": id_offset,
        "aliases": aliases,
        "decoder": decoder,
    }
    options = _merge_options(request, values, body.fields)
    specials = None if options.special_tokens is None else _special_tokens(options.special_tokens)
    upload = Upload(
        body.files,
        options.format,
        options.pretokenizer,
        specials,
        options.id_offset,
        split_aliases(options.aliases),
        options.decoder,
    )
    manager = service.get_engine_parts().vocabularies
    entry, created = await manager.put(name, upload, replace=options.replace)
    response.status_code = 201 if created else 200
    return report_put(service.registry, entry)


def _merge_options(
    request: Request, values: dict[str, Any], fields: dict[str, str]
) -> UploadOptions:
    """Merge the options of the query string with the form fields.

    Raises:
        InvalidRequest: a field is unknown, invalid, or in the query string as well.
    """
    for name in fields:
        if name not in values:
            message = (
                f"is neither an option of this call nor a file; the options are {', '.join(values)}"
            )
            raise InvalidRequest(message, f"/{name}")
        if name in request.query_params:
            raise InvalidRequest("occurs twice", f"/{name}")
    try:
        return UploadOptions.model_validate(values | fields)
    except ValidationError as error:
        raise invalid_body(error) from error


def _special_tokens(text: str) -> dict[str, int]:
    try:
        return SPECIAL_TOKENS.validate_python(parse_json(text.encode()), strict=True)
    except ValidationError as error:
        raise InvalidRequest("must be a JSON object of tokens and ids", "special_tokens") from error
    except VocabularyError as error:
        raise InvalidRequest(str(error), "special_tokens") from error


async def _read_body(request: Request, name: str, max_bytes: int) -> UploadBody:
    """Read the uploaded files and the form fields; `max_bytes` limits their total size.

    Raises:
        TooLarge: they have more than `max_bytes` bytes.
        InvalidRequest: the upload contains no file, or a file or field is repeated.
    """
    body = await read_whole_body(request, max_bytes, "max_vocabulary_bytes")
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        return UploadBody({name: body})

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    upload = UploadBody()
    whole = Request(request.scope, receive)
    async with whole.form(max_files=MAX_FILES, max_fields=MAX_FILES) as form:
        for part, value in form.multi_items():
            key = value.filename or part if isinstance(value, UploadFile) else part
            if key in upload.files or key in upload.fields:
                raise InvalidRequest("occurs twice", f"/{part}")
            if isinstance(value, UploadFile):
                upload.files[key] = await value.read()
            else:
                upload.fields[key] = value
    if not upload.files:
        raise InvalidRequest("the upload has no file")
    return upload


@router.delete(f"/{NAME_PATH}", status_code=204)
async def delete_vocabulary(service: ServiceDep, name: str) -> None:
    """Delete an uploaded vocabulary. 403: the vocabulary is built in."""
    await service.get_engine_parts().vocabularies.delete(name)


@router.post(f"/{NAME_PATH}/verify", response_model=VerifyResponse)
async def verify_vocabulary(service: ServiceDep, request: Request, name: str) -> dict[str, Any]:
    """Compare the engine's ids with those of the reference, for given or generated texts."""
    body = await read_whole_body(request)
    options = parse(VerifyRequest, body or b"{}")
    entry = await service.registry.get_loaded(name, NAME)
    limit = service.settings.max_samples
    num_texts = options.samples if options.texts is None else len(options.texts)
    if num_texts > limit:
        raise TooLarge(f"{num_texts} texts; max_samples is {limit}", "/samples")
    texts = options.texts
    if texts is None:
        texts = sample_texts(entry.vocabulary, options.samples)
    found = await asyncio.to_thread(verify, service.engine, entry.vocabulary, texts)
    return {
        "vocabulary": entry.name,
        "digest": entry.vocabulary.digest,
        "witness": found.witness,
        "num_texts": found.num_texts,
        "num_different": found.num_different,
        "num_ids": found.num_ids,
        "num_equal_ids": found.num_equal_ids,
        "engines": list(found.engines),
        "first_difference": found.first_difference,
    }


@router.post(f"/{NAME_PATH}/load")
async def load_vocabulary(service: ServiceDep, name: str) -> VocabularyReport:
    """Load a vocabulary before its first use, or move it back to the GPU if it was evicted."""
    await service.get_engine_parts().vocabularies.load(name, NAME)
    return report(service.registry, service.registry.find(name, NAME))


@router.post(f"/{NAME_PATH}/unload")
async def unload_vocabulary(service: ServiceDep, name: str) -> VocabularyReport:
    """Unload a vocabulary from the engine; its next use loads it again."""
    await service.get_engine_parts().vocabularies.unload(name, NAME)
    return report(service.registry, service.registry.find(name, NAME))
