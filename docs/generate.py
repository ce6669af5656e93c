"""Writes settings.md, errors.md and metrics.md from the code: `python -m docs.generate`.

It also copies files of deploy/ to where Kustomize and Helm need them, as neither reads files
outside its own folder. Settings and metrics are those that the service declares. Error codes are
those of all subclasses of ServiceError, which have their meaning in their docstring, and ROW_CODES;
ADVICE says what a client does about each.
"""

from __future__ import annotations

import textwrap
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from annotated_types import Ge, Gt, Le, Lt
from google.rpc import code_pb2
from pydantic.fields import FieldInfo

from service.apis.grpc.status import CODES
from service.core import errors
from service.core.settings import PREFIX, Settings
from service.observability.metric_definitions import ALIASED, FAMILIES

DOCS = Path(__file__).parent
DEPLOY = DOCS.parent / "deploy"
ALERTS = DEPLOY / "alerts.yml"
MIB = 1024 * 1024
BOUNDS = {Ge: ("ge", "from"), Gt: ("gt", "above"), Le: ("le", "to"), Lt: ("lt", "below")}

SETTINGS_HEAD = """\
# Settings

This file is generated from the settings model: change the model, then run `make docs`.

Settings are environment variables that are read once at the start. A misspelt name, an empty or an
impossible value stops the start with exit code 2. The options `--host`, `--port`, `--frontends` and
`--engine` of `warptok serve` win over the variables.

| variable | default | values | meaning |
| --- | --- | --- | --- |
"""

ERRORS_HEAD = """\
# Error codes

This file is generated from the code of the service: change it there, then run `make docs`.

A refusal over HTTP is `application/problem+json` with the status and the `code` below; a refusal
over gRPC has the gRPC status and the code as the reason of `google.rpc.ErrorInfo`.
[api.md](api.md#errors) describes both. "Send it again" means: as it is, after the seconds of
`Retry-After` where the answer has that header.

## A whole request

| code | HTTP | gRPC | meaning | what to do |
| --- | --- | --- | --- | --- |
"""

ROWS_HEAD = """
## One row of a batch

These codes stand in the field `errors` of a batch, beside the row's number, and the other rows are
answered. A request of a single text is refused with the code as a whole.

| code | HTTP | gRPC | meaning | what to do |
| --- | --- | --- | --- | --- |
"""

METRICS_HEAD = """\
# Metrics

This file is generated from the code of the service: change it there, then run `make docs`.

`GET /metrics` has these beside the metrics of the process (`process_*`) and of Python (`python_*`).
A histogram has `_bucket`, `_sum` and `_count`. With front ends each metric has the label `process`.
[deploy/monitoring.md](deploy/monitoring.md) says which to look at.

| metric | type | labels | meaning |
| --- | --- | --- | --- |
"""


@dataclass(frozen=True, slots=True)
class Code:
    """One error code as the document shows it; without gRPC where only HTTP can answer it."""

    name: str
    status: int
    meaning: str
    has_grpc: bool = True


AGAIN = "Send it again."
FIX_REQUEST = "Mend the request at `where`."
ADVICE = {
    "alias_given": "Use the own name that `detail` has, or `/v1/aliases/{alias}`.",
    "alias_protected": "Choose another name, or ask the operator to change `WARPTOK_ALIASES`.",
    "bad_head": "Send one valid `Host` and HTTP/1.1; `detail` says what is wrong.",
    "bad_body": "Send what `Content-Type` and `Content-Encoding` say.",
    "lone_surrogate": 'Do not cut a text inside a character, or send `"surrogates": "replace"`.',
    "bad_json": "Send JSON; `where` has the line and column.",
    "body_timeout": "Send the body without pauses, on a new connection.",
    "builtin_protected": "Choose another name.",
    "deadline_passed": "Send it again, with a longer deadline, or send less.",
    "digest_differs": "Use the vocabulary with that digest, or leave out `if_digest`.",
    "draining": "Send it to another replica, or again.",
    "engine_failed": "Send it again once; if it fails again, report it with the request id.",
    "engine_lost": AGAIN,
    "forbidden": "Use a key that has the scope; see [deploy/security.md](deploy/security.md).",
    "internal": "Report it with the request id; the log has the cause.",
    "invalid_request": FIX_REQUEST,
    "method_not_allowed": "Use a method that the header `Allow` names.",
    "name_taken": "Choose another name, or send `replace=true`.",
    "no_space": "Send it again when the operator has made room on the disk.",
    "not_found": "Use a path of [api.md](api.md).",
    "not_installed": "Ask the operator for the image `cpu`, or to install the extra.",
    "not_ready": AGAIN,
    "queue_full": AGAIN,
    "rate_limited": AGAIN,
    "shared_memory_off": "Ask the operator for `WARPTOK_SHARED_MEMORY=true`, or send tensors.",
    "store_failed": "Ask the operator to look at `WARPTOK_STORE_DIR` or `WARPTOK_STORE_URL`.",
    "template_failed": "Shorten the chat, or upload a template that works.",
    "too_large": "Send less, or ask the operator to raise the limit that `detail` names.",
    "too_many_jobs": "Send it again when a job has ended, or cancel one.",
    "too_many_streams": AGAIN,
    "unauthorized": "Send a key; see [deploy/security.md](deploy/security.md).",
    "unknown_job": "Use an id that `GET /v1/training-jobs` lists.",
    "unknown_region": "Register the region first.",
    "unknown_vocabulary": "Use a name that `GET /v1/vocabularies` lists; near names are suggested.",
    "unsupported_format": "Use a format that `detail` names.",
    "vocabulary_invalid": "Mend the file at the places that `findings` lists.",
    "wrong_state": "Look at the job's state with `GET /v1/training-jobs/{id}`.",
    "circular_not_possible": "Leave out `circular`, or send a sequence that can wrap.",
    "host_not_allowed": "Use a name of the service, or ask the operator to list this one in "
    "`WARPTOK_ALLOWED_HOSTS`.",
    "origin_not_allowed": "Call from a page of the service, or ask the operator to list the origin "
    "in `WARPTOK_ALLOWED_ORIGINS`.",
    "too_many_connections": "Send it again, and use fewer connections.",
    "unsupported_transfer_coding": "Send the body with `Content-Length` or as chunks; compress it "
    "with `Content-Encoding`.",
    "id_out_of_range": "Send ids of this vocabulary only.",
    "library_failed": "Send another text or other ids; this one cannot be computed.",
    "max_length_too_small": "Raise `max_length`, or set `add_special_tokens` to false.",
    "no_offsets": "Leave out `return_offsets`.",
    "no_other_strand": "Leave out `reverse_complement`.",
    "no_unknown_token": "Leave the character out, or use a vocabulary with an unknown token.",
    "not_a_kmer": "Send words of k letters, or the sequence without blanks.",
    "not_a_sequence": "Send ASCII letters, or leave out `reverse_complement`.",
    "not_utf8": "Send UTF-8; `where` has the byte.",
    "special_token_refused": 'Take the token out, or use `special` "match" or "plain".',
    "too_short_for_circular": "Send at least k letters.",
}

HTTP_CODES = {
    "bad_head",
    "host_not_allowed",
    "origin_not_allowed",
    "too_many_connections",
    "unsupported_transfer_coding",
}
"""Codes of refusals that only a connection over HTTP makes."""
FRAMEWORK_CODES = (
    Code("internal", 500, "An error that nobody foresaw; the log has it under the request id."),
    Code("not_found", 404, "No such path.", has_grpc=False),
    Code("method_not_allowed", 405, "The path has no such method.", has_grpc=False),
)
ROW_CODES = (
    Code("circular_not_possible", 422, "The vocabulary or the sequence cannot wrap."),
    Code("engine_failed", 500, "The engine failed on this row; the log has the reason."),
    Code("id_out_of_range", 422, "An id is none of the vocabulary."),
    Code("library_failed", 422, "The library that defines this vocabulary fails on the row."),
    Code("max_length_too_small", 422, "The begin and end tokens alone have more ids."),
    Code("no_offsets", 422, "The library that defines this vocabulary gives wrong offsets here."),
    Code("no_other_strand", 422, "The vocabulary is of text, which has no other strand."),
    Code("no_unknown_token", 422, "A character has no token, and the vocabulary none for that."),
    Code("not_a_kmer", 422, "A word between blanks has another number of letters than k."),
    Code("not_a_sequence", 422, "A character beyond ASCII has no complement."),
    Code("not_utf8", 422, "The bytes are not UTF-8."),
    Code("special_token_refused", 422, 'The text holds a special token; `special` is "refuse".'),
    Code("too_short_for_circular", 422, "A circular sequence has fewer than k letters."),
)

PROMETHEUS_RULE_HEAD = """\
# This file is generated from deploy/alerts.yml: change that, then run `make docs`.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: warptok
  labels:
    app.kubernetes.io/name: warptok
spec:
"""


def settings_document() -> str:
    """The text of docs/settings.md."""
    rows = [
        f"| `{PREFIX}{name.upper()}` | {_default(name, field)} | {_values(field)} "
        f"| {field.description} |"
        for name, field in Settings.model_fields.items()
    ]
    return SETTINGS_HEAD + "\n".join(rows) + "\n"


def errors_document() -> str:
    """The text of docs/errors.md."""
    codes = sorted(request_codes(), key=lambda code: (code.status, code.name))
    return ERRORS_HEAD + _rows(codes) + ROWS_HEAD + _rows(ROW_CODES)


def metrics_document() -> str:
    """The text of docs/metrics.md."""
    rows = []
    for name, family in (FAMILIES | ALIASED).items():
        kind = "counter" if name.endswith("_total") else "gauge"
        kind = "histogram" if family.bounds else kind
        labels = ", ".join(f"`{label}`" for label in family.labels)
        rows.append(f"| `{name}` | {kind} | {labels} | {family.documentation} |\n")
    return METRICS_HEAD + "".join(rows)


def prometheus_rule() -> str:
    """The alert rules as a resource of the Prometheus operator."""
    rules = ALERTS.read_text(encoding="utf-8")
    return PROMETHEUS_RULE_HEAD + textwrap.indent(rules[rules.index("groups:") :], "  ")


def alert_rules() -> str:
    """The alert rules as they are."""
    return ALERTS.read_text(encoding="utf-8")


def request_codes() -> Iterator[Code]:
    """Every code that refuses a whole request."""
    yield from FRAMEWORK_CODES
    for kind in errors.ServiceError.__subclasses__():
        if kind is not errors.RowRefused:
            meaning = (kind.__doc__ or "").partition("\n")[0]
            yield Code(kind.code, kind.status, meaning, kind.code not in HTTP_CODES)


def _rows(codes: typing.Iterable[Code]) -> str:
    return "".join(
        f"| `{code.name}` | {code.status} | {_grpc_status(code)} | {code.meaning} "
        f"| {ADVICE[code.name]} |\n"
        for code in codes
    )


def _grpc_status(code: Code) -> str:
    if not code.has_grpc:
        return "–"
    name: str = code_pb2.Code.Name(CODES.get(code.status, code_pb2.INTERNAL))
    return name


def _default(name: str, field: FieldInfo) -> str:
    if field.default is None:
        return "unset"
    value = f"`{str(field.default).lower()}`"
    if name.endswith("_bytes") and field.default >= MIB:
        return f"{value} ({field.default // MIB:,} MiB)"
    return value


def _values(field: FieldInfo) -> str:
    kind = _without_none(field.annotation)
    if typing.get_origin(kind) is Literal:
        return ", ".join(f"`{choice}`" for choice in typing.get_args(kind))
    if kind is bool:
        return "`true`, `false`"
    names = {int: "whole number", float: "number", str: "text", Path: "path"}
    return " ".join([names[kind], *_bounds(field)])


def _without_none(annotation: Any) -> Any:
    """The type of a setting that may be unset."""
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return annotation
    [kind] = [each for each in typing.get_args(annotation) if each is not types.NoneType]
    return kind


def _bounds(field: FieldInfo) -> Iterator[str]:
    for bound in field.metadata:
        attribute, word = BOUNDS[type(bound)]
        yield f"{word} {getattr(bound, attribute)}"


DOCUMENTS = {
    "settings.md": settings_document,
    "errors.md": errors_document,
    "metrics.md": metrics_document,
    "../deploy/kubernetes/components/monitoring/prometheusrule.yaml": prometheus_rule,
    "../deploy/helm/warptok/alerts.yml": alert_rules,
}


def main() -> None:
    """Write the documents."""
    for name, document in DOCUMENTS.items():
        (DOCS / name).write_text(document(), encoding="utf-8")


if __name__ == "__main__":
    main()
