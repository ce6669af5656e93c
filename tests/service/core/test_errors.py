"""One shape for every refusal."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from service.core import errors
from service.core.errors import ServiceError
from service.core.problem_details import invalid_body, problem
from service.core.settings import Settings
from service.operations.schemas import EncodeBatchRequest
from service.server.app import create_app
from tests.support.fake_engine import FakeEngine
from vocabularies.batch.batch import RowError
from vocabularies.errors import VocabularyError
from vocabularies.model.types import Bpe
from vocabularies.model.vocabulary import Vocabulary

KINDS = [kind for kind in ServiceError.__subclasses__() if kind is not errors.RowRefused]
assert errors.BodyTimeout in KINDS
EXPECTED = {
    "bad_head": 400,
    "unsupported_transfer_coding": 501,
    "not_installed": 501,
    "host_not_allowed": 403,
    "origin_not_allowed": 403,
    "too_many_connections": 503,
    "bad_body": 400,
    "bad_json": 400,
    "body_timeout": 408,
    "builtin_protected": 403,
    "unknown_vocabulary": 404,
    "name_taken": 409,
    "digest_differs": 412,
    "too_large": 413,
    "alias_given": 409,
    "alias_protected": 403,
    "too_many_streams": 429,
    "shared_memory_off": 403,
    "unknown_region": 404,
    "unauthorized": 401,
    "forbidden": 403,
    "template_failed": 422,
    "unsupported_format": 415,
    "invalid_request": 422,
    "lone_surrogate": 400,
    "vocabulary_invalid": 422,
    "queue_full": 429,
    "rate_limited": 429,
    "engine_failed": 500,
    "engine_lost": 503,
    "draining": 503,
    "not_ready": 503,
    "deadline_passed": 504,
    "unknown_job": 404,
    "wrong_state": 409,
    "too_many_jobs": 429,
    "no_space": 507,
    "store_failed": 500,
}


def document(error: Exception) -> dict:
    status, headers, body = problem(error)
    assert dict(headers)[b"content-type"] == b"application/problem+json"
    assert dict(headers)[b"content-length"] == str(len(body)).encode()
    parsed = json.loads(body)
    assert set(parsed) - {"findings"} == {"type", "title", "status", "detail", "code", "where"}
    assert parsed["status"] == status
    assert parsed["type"] == "/problems/" + parsed["code"]
    return parsed


def test_every_code_has_its_status_and_the_one_shape():
    got = {}
    for kind in KINDS:
        parsed = document(kind("what is wrong", "/texts/3"))
        assert (parsed["detail"], parsed["where"]) == ("what is wrong", "/texts/3")
        got[parsed["code"]] = parsed["status"]
    assert got == EXPECTED


@pytest.mark.parametrize(
    "kind",
    [
        errors.QueueFull,
        errors.RateLimited,
        errors.Draining,
        errors.NotReady,
        errors.TooManyJobs,
        errors.NoSpace,
    ],
)
def test_what_will_pass_says_when_to_try_again(kind):
    _, headers, _ = problem(kind("later"))
    assert int(dict(headers)[b"retry-after"]) >= 1


def test_a_refused_row_keeps_its_own_code_and_place():
    error = errors.RowRefused(RowError("not_utf8", "no UTF-8", "byte 17"), "/text")
    parsed = document(error)
    assert (parsed["status"], parsed["code"], parsed["where"]) == (
        422,
        "not_utf8",
        "/text: byte 17",
    )
    failed = errors.RowRefused(RowError("engine_failed", "failed"), "/text")
    assert document(failed)["status"] == 500


def test_a_wrong_vocabulary_lists_all_its_findings():
    with pytest.raises(VocabularyError) as caught:
        Vocabulary((b"a", b"b"), Bpe(((0, 9), (0, 1))), prefix=(7,))
    parsed = document(caught.value)
    assert (parsed["status"], parsed["code"]) == (422, "vocabulary_invalid")
    assert [finding["where"] for finding in parsed["findings"]] == [
        "prefix[0]",
        "merges[0]",
        "merges[1]",
    ]


def body_error(body: bytes) -> ServiceError:
    with pytest.raises(ValidationError) as caught:
        EncodeBatchRequest.model_validate_json(body)
    return invalid_body(caught.value)


def test_a_wrong_field_is_named_by_its_json_pointer():
    error = body_error(b'{"vocabulary": "gpt2", "texts": ["a", 5], "special": "maybe"}')
    places = [finding.where for finding in error.findings]
    assert error.status == 422
    assert "/texts/1" in places
    assert all(place.startswith(("/texts/1", "/special")) for place in places)


def test_the_input_is_never_echoed():
    parsed = document(body_error(b'{"vocabulary": "gpt2", "texts": {"secret": "hunter2"}}'))
    assert "hunter2" not in json.dumps(parsed)


@pytest.mark.parametrize("body", [b"", b"{", b'{"texts": ["\xff"]}', b'{"texts": ["\\ud800"]}'])
def test_what_is_not_json_is_bad_json_with_its_place(body):
    error = body_error(body)
    assert (error.status, error.code) == (400, "bad_json")
    assert "line 1" in error.where


def test_an_http_exception_keeps_its_status_and_headers():
    status, headers, body = problem(HTTPException(405, headers={"Allow": "POST"}))
    assert (status, json.loads(body)["code"]) == (405, "method_not_allowed")
    assert (b"allow", b"POST") in headers


def test_an_unexpected_error_is_500_with_a_number_that_is_in_the_log(caplog):
    parsed = document(ZeroDivisionError("secret"))
    assert (parsed["status"], parsed["code"]) == (500, "internal")
    number = parsed["detail"].rsplit(" ", 1)[1]
    assert number in caplog.text
    assert "This is a bug" in caplog.text
    assert "secret" not in parsed["detail"]


def test_an_unexpected_error_is_answered_and_logged_once(caplog, monkeypatch):
    """The server, which logs what an application raises, hears nothing of it."""

    async def scenario():
        app = create_app(Settings(preload="none"), FakeEngine())
        async with app.running():
            monkeypatch.setattr(app.service.registry, "find", lambda _: 1 // 0)
            transport = httpx.ASGITransport(app)  # It raises what the application raises.
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                answer = await client.get("/v1/vocabularies/gpn")
                assert (answer.status_code, answer.json()["code"]) == (500, "internal")

    asyncio.run(scenario())
    assert caplog.text.count("Traceback") == 1
    assert caplog.text.count("This is a bug") == 1
