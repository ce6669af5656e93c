"""The routes for aliases, which are further names of vocabularies: list, add, delete."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from service.http.dependencies import ServiceDep, read_whole_body
from service.http.names_in_paths import ALIAS_PATH
from service.http.openapi import refusals
from service.http.query_options import DECLARED_ONLY
from service.operations import schemas
from service.operations.operation import parse
from service.operations.schemas import Strict

router = APIRouter(
    prefix="/v1/aliases",
    tags=["vocabularies"],
    responses=refusals(404, 422),
    dependencies=[DECLARED_ONLY],
)


class AliasRequest(Strict):
    """The vocabulary that an alias is to refer to."""

    vocabulary: str = Field(description=schemas.VOCABULARY)
    replace: bool = Field(False, description="Redirect the alias if it already exists.")


SCHEMA = {"schema": AliasRequest.model_json_schema()}


class AliasReport(BaseModel):
    """One alias and its vocabulary."""

    alias: str
    vocabulary: str = Field(description="Name of the vocabulary to which the alias refers.")


class AliasList(BaseModel):
    """All aliases."""

    aliases: list[AliasReport]


@router.get("")
async def list_aliases(service: ServiceDep) -> AliasList:
    """List the aliases of all vocabularies."""
    pairs = list(service.registry.aliases.items())
    return AliasList(aliases=[AliasReport(alias=alias, vocabulary=own) for alias, own in pairs])


@router.put(
    f"/{ALIAS_PATH}",
    status_code=201,
    responses={200: {"model": AliasReport}, **refusals(400, 403, 409, 413, 415, 507)},
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": SCHEMA}}},
)
async def put_alias(
    service: ServiceDep, request: Request, response: Response, alias: str
) -> AliasReport:
    """Add an alias, a further name of a vocabulary that every call accepts.

    201: the alias is new; 200: the vocabulary already had it; 409: the alias belongs to another
    vocabulary (`replace` changes that), or is the own name of a vocabulary.
    """
    body = parse(AliasRequest, await read_whole_body(request))
    manager = service.get_engine_parts().vocabularies
    created = await manager.put_alias(alias, body.vocabulary, replace=body.replace)
    response.status_code = 201 if created else 200
    return AliasReport(alias=alias, vocabulary=service.registry.find(alias).name)


@router.delete(f"/{ALIAS_PATH}", status_code=204, responses=refusals(403))
async def delete_alias(service: ServiceDep, alias: str) -> None:
    """Delete an alias; the vocabulary stays. 403: the setting `aliases` defines the alias."""
    await service.get_engine_parts().vocabularies.delete_alias(alias)
