"""The routes for training jobs: create, list, show, resume, cancel and delete."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import ValidationError

from service.apis.native.training_upload import FILES, max_upload_bytes, receive_upload
from service.core.errors import InvalidRequest, NameTaken, ServiceError, TooLarge
from service.core.extras import check_installed
from service.core.problem_details import invalid_body
from service.http.body.request_body import body_pieces
from service.http.dependencies import ServiceDep
from service.http.openapi import refusals
from service.http.query_options import DECLARED_ONLY
from service.operations.context import Service
from service.security.scopes import find_key
from service.training.jobs import TrainingJobs
from service.training.schemas import ENDED, TrainingJob, TrainingJobList, TrainingParameters
from vocabularies.errors import Finding, VocabularyError
from vocabularies.formats.parsing import parse_json

router = APIRouter(
    prefix="/v1/training-jobs",
    tags=["training"],
    responses=refusals(403, 422),
    dependencies=[DECLARED_ONLY],
)
OBJECT = "parameters"  # The form field that may contain the other fields as one JSON object.


async def get_training(request: Request) -> TrainingJobs:
    """Return the training jobs of the application that received a request."""
    training: TrainingJobs = request.app.state.training
    return training


TrainingDep = Annotated[TrainingJobs, Depends(get_training)]


def _form_schema() -> dict[str, Any]:
    """Describe the parts of an upload for openapi.json."""
    schema = TrainingParameters.model_json_schema()
    binary = {"type": "string", "format": "binary"}
    files = {
        "corpus": "FASTA, FASTQ or text, gzip or not; there may be several.",
        "motifs": "FASTA, TSV, JSON, or one on a line: sequence, name, weight.",
        "confidence": "From 0 to 1 for each base: a line >name, then numbers.",
    }
    schema["properties"] = {
        **{name: binary | {"description": files[name]} for name in FILES},
        OBJECT: {"type": "string", "description": "The fields below as one JSON object."},
        **schema["properties"],
    }
    schema["required"] = ["corpus", "vocabulary"]
    return {"required": True, "content": {"multipart/form-data": {"schema": schema}}}


@router.post(
    "",
    status_code=202,
    responses=refusals(400, 409, 413, 415, 429, 503, 507),
    openapi_extra={"requestBody": _form_schema()},
)
async def create_training_job(
    service: ServiceDep, training: TrainingDep, request: Request, response: Response
) -> TrainingJob:
    """Queue a job that trains a vocabulary on an uploaded corpus.

    It trains BPE, or GeneticBPE if there are motifs or a seed region. `vocabulary` is the name for
    the trained vocabulary.
    """
    check_installed("training jobs", "dna")
    settings, headers = service.settings, request.headers
    max_bytes = max_upload_bytes(settings)
    length = headers.get("content-length", "")
    if length.isdigit() and int(length) > max_bytes:
        raise TooLarge(
            f"the body has {length} bytes; with max_corpus_bytes at most {max_bytes} are possible"
        )
    with training.new_folder() as folder:
        pieces = body_pieces(
            request.receive,
            headers.get("content-encoding"),
            max_bytes,
            "max_corpus_bytes",
            settings.stream_idle_timeout_s,
        )
        content_type = headers.get("content-type", "")
        uploaded = await receive_upload(pieces, content_type, folder.path, settings)
        parameters = _parameters(uploaded.fields)
        _check_options(parameters, bool(uploaded.num_files["motifs"]))
        _check_name(service, training, request, parameters.vocabulary, parameters.replace)
        job = await training.submit(folder, parameters, uploaded.corpus_bytes)
    response.headers["location"] = f"{router.prefix}/{job.id}"
    return job


def _parameters(fields: dict[str, str]) -> TrainingParameters:
    """Parse the form fields: those in the object `parameters`, and all others.

    Raises:
        InvalidRequest: the object is invalid, or a field is invalid or repeated.
    """
    values: dict[str, Any] = dict(fields)
    try:
        given = parse_json(values.pop(OBJECT, "{}").encode())
    except VocabularyError as error:
        raise InvalidRequest(str(error), f"/{OBJECT}") from error
    if not isinstance(given, dict):
        raise InvalidRequest("must be an object", f"/{OBJECT}")
    if repeated := sorted(given.keys() & values.keys()):
        raise InvalidRequest("occurs twice", f"/{repeated[0]}")
    try:
        return TrainingParameters.model_validate(given | values)
    except ValidationError as error:
        raise invalid_body(error) from error


def _check_options(parameters: TrainingParameters, has_motifs: bool) -> None:
    """Raise InvalidRequest with all invalid options of the training, if there are any."""
    try:
        parameters.options()
    except VocabularyError as error:
        findings = [Finding(f"/{each.where}", each.message) for each in error.findings]
        raise InvalidRequest(findings[0].message, findings[0].where, findings) from error
    if parameters.merge_rule == "span_preserving" and not has_motifs:
        raise InvalidRequest("'span_preserving' needs motifs", "/motifs")


def _check_name(
    service: Service,
    training: TrainingJobs,
    request: Request,
    name: str,
    replace: bool,
    own_id: str = "",
) -> None:
    """Check that a job may register its vocabulary under a name.

    Args:
        service: the service.
        training: the training jobs.
        request: the request, whose key needs the scope `manage` if `replace` is set.
        name: the name.
        replace: whether the job may replace a vocabulary of this name.
        own_id: the id of a job that is resumed; "" for a new one.

    Raises:
        ServiceError: the key may not replace vocabularies, or the name is in use or reserved for
            another job.
    """
    if replace:
        service.guard.check(find_key(request.scope["headers"]), "manage")
    try:
        service.get_engine_parts().registry.check_free(name, None, replace)
    except ServiceError as error:
        error.where = "/vocabulary"
        raise
    for job in training.store.jobs():
        if job.vocabulary == name and job.state not in ENDED and job.id != own_id and not replace:
            raise NameTaken(f"training job {job.id} has reserved this name", "/vocabulary")


@router.get("")
async def list_training_jobs(training: TrainingDep) -> TrainingJobList:
    """List all training jobs, the oldest first."""
    return TrainingJobList(jobs=training.store.jobs())


@router.get("/{id}", responses=refusals(404))
async def get_training_job(training: TrainingDep, id: str) -> TrainingJob:
    """Describe one training job: its state, its progress, and its vocabulary."""
    return training.store.find(id)


@router.post("/{id}/resume", status_code=202, responses=refusals(404, 409))
async def resume_training_job(
    service: ServiceDep,
    training: TrainingDep,
    request: Request,
    id: str,
    vocabulary: Annotated[
        str | None, Query(description="Another name for the vocabulary that the job trains.")
    ] = None,
    replace: Annotated[
        bool | None,
        Query(
            description="Whether the vocabulary may replace "
            "another one of the same name; null: as in the first request."
        ),
    ] = None,
) -> TrainingJob:
    """Queue an interrupted job again; it continues from the last state that it saved."""
    job = training.store.find(id)
    training.check_resumable(job)
    name = job.vocabulary if vocabulary is None else vocabulary
    replaces = job.parameters.replace if replace is None else replace
    _check_name(service, training, request, name, replaces, job.id)
    training.resume(job, name, replaces)
    return job


@router.delete("/{id}", status_code=204, responses=refusals(404, 409))
async def delete_training_job(training: TrainingDep, id: str) -> None:
    """Cancel a job, which stays in the list as cancelled; delete a job that has ended."""
    training.cancel(training.store.find(id))
