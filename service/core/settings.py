"""The settings of the service, which are read once from environment variables.

The description of each field is its documentation. No other module of the service reads the
environment.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

PREFIX = "WARPTOK_"
# No settings: only the tests use them.
TEST_VARIABLES = {"WARPTOK_DATA", "WARPTOK_EXHAUSTIVE", "WARPTOK_TEMPLATES"}
MIB = 1024 * 1024
ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s]+/?|null", re.IGNORECASE)
GPUS = re.compile(r"all|[1-9][0-9]{0,2}|(0|[1-9][0-9]{0,2})(,(0|[1-9][0-9]{0,2}))+", re.ASCII)


class UnknownSetting(ValueError):
    """An environment variable begins with WARPTOK_ but is not a setting, or is empty."""


class Settings(BaseSettings):
    """Immutable settings; each is the environment variable WARPTOK_ and its name in capitals."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="forbid", allow_inf_nan=False
    )

    host: str = Field(
        "127.0.0.1",
        description="Address to listen on. 0.0.0.0 opens the service to every network; none: "
        "listen on the Unix sockets only.",
    )
    port: int = Field(8000, ge=0, le=65535, description="TCP port; 0 chooses a free one.")
    grpc: bool = Field(True, description="Whether the service answers gRPC as well as HTTP.")
    grpc_port: int = Field(
        8001,
        ge=0,
        le=65535,
        description="TCP port of gRPC, on the same address; 0 chooses a free one.",
    )
    unix_socket: Path | None = Field(
        None,
        validate_default=True,
        description="Path of a Unix socket on which HTTP is answered as well, without TLS.",
    )
    grpc_unix_socket: Path | None = Field(
        None,
        description="Path of a Unix socket on which gRPC is answered as well, without TLS.",
    )
    unix_socket_mode: Literal["600", "660", "666"] = Field(
        "660",
        description="Permissions of the Unix sockets; every user who may write to a socket may "
        "call the service.",
    )
    frontends: int = Field(
        0,
        ge=0,
        le=256,
        description="Number of HTTP processes in front of one engine process, each of which uses "
        "one core; 0: one process does everything.",
    )
    engine: Literal["auto", "cpu", "gpu"] = Field(
        "auto",
        description="Engine that computes the ids: cpu, gpu, or auto, which uses a GPU if there "
        "is one. With gpu, the service does not start without a GPU.",
    )
    cpu_threads: int = Field(
        0,
        ge=0,
        le=4096,
        description="Maximum number of threads with which the CPU engine encodes a batch. 0: one "
        "for each core that the process may use, by its affinity mask and the CPU quota of "
        "its container. HTTP processes (`frontends`) encode small batches with one thread "
        "each.",
    )
    gpus: str = Field(
        "all",
        description="GPUs that the service uses, of those that CUDA_VISIBLE_DEVICES shows: all, "
        "a number of GPUs (2: the first two), or their indices separated by commas (0,2). "
        "Each of several GPUs has its own process and holds all vocabularies; a batch goes "
        "to the GPU with the fewest bytes in flight.",
    )
    crossover_bytes: int | None = Field(
        None,
        ge=0,
        description="Batches of at least this many bytes go to the GPU, smaller ones to the CPU. "
        "Unset, the service measures both at the start.",
    )
    gpu_memory_share: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Share of each GPU's free memory, measured at the start, that the service "
        "may use. Too small, the service splits large batches and moves vocabularies off the "
        "GPU and back.",
    )
    pinned: str = Field(
        "none",
        description="Vocabularies that are never evicted from the GPU: none, or names separated "
        "by commas. The default vocabulary is never evicted.",
    )
    default_vocabulary: str = Field(
        "gpt2", description="Vocabulary for calls that cannot name one, and for the playground."
    )
    aliases: str = Field(
        "none",
        description="Other names of vocabularies, as NAME=VOCABULARY separated by commas, such "
        "as Qwen/Qwen3-8B=qwen3,gpt-4=cl100k_base; or none. Requests can add aliases but "
        "cannot change these.",
    )
    preload: str = Field(
        "all",
        description="Built-in vocabularies that are loaded before the service is ready: all, "
        "none, or names separated by commas. The others are loaded at their first use, which "
        "takes up to three seconds.",
    )
    api_keys_file: Path | None = Field(
        None,
        description="File of the API keys that clients need: a JSON list of objects with name, "
        "sha256, scopes and optional rates, which `warptok key` writes. The service reads it "
        "again when it changes and on SIGHUP. Unset, everybody may encode and decode, and "
        "vocabularies can be managed on a loopback address only.",
    )
    tls_certificate: Path | None = Field(
        None,
        description="PEM file with the certificate, followed by the certificates that sign it, "
        "for TLS on the ports of HTTP and gRPC. The service reads it again when it changes "
        "and on SIGHUP. Unset, the ports do not use TLS.",
    )
    tls_key: Path | None = Field(
        None,
        description="PEM file with the certificate's private key, without a password. Unset, the "
        "key is in the file of the certificate.",
    )
    tls_client_ca: Path | None = Field(
        None,
        description="PEM file with the authorities that sign the certificates of clients; only "
        "clients with such a certificate can then connect by TLS. Unset, clients need no "
        "certificate.",
    )
    allowed_hosts: str = Field(
        "auto",
        description="Names and addresses, separated by commas and without ports, that are "
        "accepted in the header Host; any accepts all. auto: on a loopback address without "
        "keys, only the loopback names, so that a web page cannot reach the service through "
        "a host name of its own; otherwise any.",
    )
    allowed_origins: str = Field(
        "none",
        description="Origins, such as https://example.org, separated by commas, whose web pages "
        "may change vocabularies and training jobs, in addition to the pages of the service "
        "itself; none, or any for all.",
    )
    cors_origins: str = Field(
        "none",
        description="Origins, such as https://example.org, separated by commas, whose web pages "
        "may call the service and read its answers (CORS); none, or any for all. An origin "
        "that changes vocabularies or training jobs must also be in allowed_origins.",
    )
    trusted_proxies: str = Field(
        "none",
        description="Addresses and networks of proxies, separated by commas, or none. The "
        "service trusts their headers X-Forwarded-For and X-Forwarded-Proto, and "
        "max_connections_per_address does not apply to them.",
    )
    store_dir: Path | None = Field(
        None,
        description="Folder in which uploaded vocabularies are stored. Unset, they are in memory "
        "only and a restart loses them.",
    )
    store_url: str | None = Field(
        None,
        description="URL of a folder in an object store, such as s3://bucket/folder, in which "
        "uploaded vocabularies are stored instead of store_dir; store_dir then contains "
        "training jobs only. Needs the extra `urls` and the package with which fsspec reads "
        "the scheme, such as s3fs.",
    )
    store_poll_s: float = Field(
        2.0,
        ge=0,
        description="Seconds after which store_dir or store_url is read again, because other "
        "services that share it may have uploaded, replaced or deleted vocabularies. 0: it "
        "is read at the start only.",
    )
    model_dir: Path | None = Field(
        None,
        description="Folder with the files of one model. Its tokenizer is then the only "
        "vocabulary and the default; store_dir and store_url are not used. `warptok render` "
        "sets this.",
    )
    model_names: str = Field(
        "none",
        description="Names, separated by commas, by which requests may call the model of "
        "model_dir, or none. The first is its main name. The name in its config.json, the "
        "name of its folder and the path of its folder are accepted as well.",
    )
    model_pretokenizer: str | None = Field(
        None,
        description="Pretokenizer of the model of model_dir; needed if its tokenizer is "
        "only a rank file.",
    )
    max_model_len: int | None = Field(
        None,
        ge=1,
        description="Context length in ids of the model of model_dir, prompt and answer "
        "together. Unset, the length that its files give.",
    )
    management: bool = Field(
        True,
        description="Whether requests may change vocabularies, aliases and training jobs and "
        "register shared memory. false: such requests are refused, whatever their key.",
    )
    max_body_bytes: int = Field(
        64 * MIB,
        ge=1024,
        description="Maximum size of a request body, or of one record batch of an Arrow stream. "
        "It does not apply to FASTA and FASTQ, where max_text_bytes limits each record. Too "
        "small refuses long texts; too large lets one client use that much memory.",
    )
    max_texts: int = Field(
        65_536, ge=1, description="Maximum number of texts, or of rows of ids, in one request."
    )
    max_text_bytes: int = Field(
        64 * MIB, ge=1, description="Maximum length of a single text, in UTF-8 bytes."
    )
    max_described_ids: int = Field(
        131_072,
        ge=1,
        description="Maximum number of ids in an answer that contains the string or the bytes of "
        "each id, on the routes of other systems (return_token_strs, with_pieces, TEI's "
        "/tokenize). Too large lets one request delay the others while its answer is written.",
    )
    max_padded_ids: int = Field(
        16_777_216,
        ge=1,
        description="Maximum number of ids in a padded answer (rows times length); it limits how "
        "large an answer a small request can cause.",
    )
    max_window_ids: int = Field(
        16_777_216,
        ge=1,
        description="Maximum total number of ids in all windows or chunks of one text.",
    )
    shared_memory: bool = Field(
        False,
        description="Whether clients of the Open Inference Protocol may pass inputs and outputs "
        "in shared memory of this machine. Every client of the port can then read and write "
        "that memory.",
    )
    max_regions: int = Field(
        64, ge=1, description="Maximum number of registered regions of shared memory."
    )
    max_streams: int = Field(
        64,
        ge=1,
        description="Maximum number of open Arrow, FASTA and gRPC streams; further ones are "
        "refused with 429.",
    )
    stream_idle_timeout_s: float = Field(
        60.0,
        gt=0,
        description="Maximum time for which a client may send nothing in the middle of a "
        "request, which is then refused with 408, or may read nothing of its answer.",
    )
    head_timeout_s: float = Field(
        20.0,
        gt=0,
        description="Maximum time from the start of a connection to its first byte, and maximum "
        "time for the whole head of a request; then the connection is closed.",
    )
    min_body_bytes_per_s: int = Field(
        100,
        ge=0,
        description="Minimum rate at which a body must arrive: a body that stays below it for "
        "stream_idle_timeout_s is refused with 408, unless its answer is already being sent. "
        "0: no minimum.",
    )
    max_connections: int = Field(
        4096,
        ge=1,
        description="Maximum number of HTTP connections, and separately of gRPC connections; "
        "lower if the process may not open enough files. Above it, a new connection closes "
        "one that has sent no request yet; if there is none, only probes and /metrics are "
        "answered, and other requests are refused with 503.",
    )
    max_connections_per_address: int = Field(
        1024,
        ge=1,
        description="Maximum number of HTTP connections from one address (IPv6: from one /64 "
        "network); above it, only probes and /metrics are answered. It does not apply to "
        "addresses in trusted_proxies. Over gRPC, it is the maximum number of concurrent "
        "calls on one connection; further calls wait in the client.",
    )
    max_unsent_bytes: int = Field(
        64 * MIB,
        ge=1,
        description="Maximum number of bytes of a stream's answer that wait to be sent; above it "
        "the service stops reading the body. A client that sends its whole body before it "
        "reads must expect a smaller answer than this.",
    )
    max_total_unsent_bytes: int = Field(
        512 * MIB,
        ge=1,
        description="The same limit for all streams together; above it, each stream stops "
        "reading its body until its own answer is sent.",
    )
    max_queue_bytes: int = Field(
        512 * MIB,
        ge=1024,
        description="Maximum number of bytes of text that wait or are being encoded; above it, "
        "requests are refused with 429. With `frontends`, each may always use its share of them. "
        "Too large makes clients wait instead of trying another replica.",
    )
    max_batch_bytes: int = Field(
        8 * MIB,
        ge=1,
        description="Maximum number of bytes of text that are joined into one batch. Too large "
        "makes small requests wait for large batches; too small leaves the engine idle.",
    )
    inline_batch_bytes: int = Field(
        32 * 1024,
        ge=0,
        description="Batches up to this size run on the event loop (with `frontends`, in the "
        "HTTP process) if they are expected to take at most 2 ms. 0: no batch does.",
    )
    long_request_bytes: int = Field(
        1 * MIB,
        ge=1,
        description="Requests above this size wait in a separate queue, so that short requests "
        "do not wait for them.",
    )
    request_timeout_ms: int = Field(
        30_000,
        ge=1,
        description="Maximum time that a request waits in the queue or for its chat template "
        "before it is refused with 504. A client limits the time of its whole request with "
        "X-Request-Timeout-Ms.",
    )
    max_vocabulary_bytes: int = Field(
        64 * MIB,
        ge=1,
        description="Maximum size of an uploaded vocabulary, all its files together.",
    )
    max_vocabularies: int = Field(
        1_024,
        ge=1,
        description="Maximum number of vocabularies, including the built-in ones, and separately "
        "of aliases.",
    )
    loaded_vocabulary_bytes: int = Field(
        4096 * MIB,
        ge=1,
        description="Approximate maximum memory of the loaded vocabularies. Above it, the least "
        "recently used are unloaded; their next use loads them again, which takes up to "
        "three seconds. The vocabularies that the HTTP processes (`frontends`) have loaded "
        "may use the same amount again, all together.",
    )
    pattern_us_per_byte: float = Field(
        10.0,
        gt=0,
        description="Maximum processor time, in microseconds for each byte of text, of a "
        "vocabulary whose tokenizer.json contains a regular expression that the service does "
        "not know. An upload is refused if it needs more on texts that are made to be slow. "
        "A request that exceeds it by a second is ended with 504.",
    )
    max_template_bytes: int = Field(
        4 * MIB,
        ge=1,
        description="Maximum size of the tokenizer_config.json or chat_template.jinja of a "
        "vocabulary.",
    )
    chat_template_timeout_ms: int = Field(
        1_000, ge=1, description="Maximum time that a chat template may take for one chat."
    )
    estimate_media: bool = Field(
        False,
        description="Whether the routes that only count the ids of a chat estimate the ids of "
        "its images and documents, and say so in the answer, instead of refusing such a chat.",
    )
    template_processes: int | None = Field(
        None,
        ge=1,
        description="Maximum number of processes that render chat templates, for each HTTP "
        "process; each renders one chat at a time and starts when it is needed. One of them "
        "renders only chats of vocabularies whose chats have been fast so far. Unset, two to "
        "four, depending on the cores.",
    )
    chat_cache_bytes: int = Field(
        64 * MIB,
        ge=0,
        description="Memory in which each HTTP process caches the ids of parts of rendered "
        "chats, so that only the new part of the next turn of a conversation is tokenized. "
        "Clients with different keys or different values of `cache_salt` share nothing. A "
        "byte of text takes about 2.5 bytes; 0 turns the cache off. In addition, each "
        "process that renders templates keeps messages, up to a quarter of this size of JSON.",
    )
    max_training_jobs: int = Field(
        8,
        ge=1,
        description="Maximum number of training jobs that wait, run or were interrupted; further "
        "ones are refused with 429. One runs at a time, and each may use max_corpus_bytes on "
        "disk.",
    )
    max_corpus_bytes: int = Field(
        1024 * MIB,
        ge=1,
        description="Maximum size of the corpus of a training job, both as uploaded and after "
        "decompression.",
    )
    training_memory_bytes: int = Field(
        8192 * MIB,
        ge=256 * MIB,
        description="Maximum address space of the training process, or its maximum private "
        "memory if it may use a GPU; a job that needs more fails.",
    )
    training_device: Literal["auto", "cpu", "cuda"] = Field(
        "cpu",
        description="Device of training jobs: cpu, cuda, or auto, which uses the GPU for large "
        "corpora. On the GPU, training and requests delay each other.",
    )
    training_gpu_memory_share: float = Field(
        0.25,
        gt=0,
        le=1,
        description="Share of the GPU's memory that is free when a training job starts, which "
        "the job may use. A job that needs more fails, or runs on the CPU if training_device "
        "is auto.",
    )
    max_samples: int = Field(
        10_000, ge=1, description="Maximum number of texts that one verify call compares."
    )
    lame_duck_s: float = Field(
        5.0,
        ge=0,
        description="Time after SIGTERM in which the service still answers all requests, while "
        "/readyz returns 503 and each answer closes its connection; then the ports close. It "
        "should be at least the time in which a load balancer notices the 503. With 0, and "
        "always on Ctrl-C, the ports close at once.",
    )
    drain_timeout_s: float = Field(
        20.0,
        ge=0,
        description="Time after the ports have closed in which accepted requests may finish; the "
        "others are then refused with 503.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Lowest level of the log messages that are written to stderr."
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="Form of log lines: text for people, or a JSON object for each line."
    )
    access_log: bool = Field(
        False,
        description="Whether each request over HTTP and gRPC writes a log line, which takes "
        "about as much time as a small request.",
    )
    client_addresses: Literal["none", "truncated", "whole"] = Field(
        "truncated",
        description="Form of a client's IP address in log lines and spans: none; truncated to "
        "its network (24 bits of IPv4, 48 bits of IPv6), which tells sites apart but hardly "
        "people; or whole.",
    )
    max_metric_names: int = Field(
        20,
        ge=0,
        le=1000,
        description="Maximum number of vocabularies, and separately of keys, that have metrics "
        "under their own name: those with the most requests. All others are counted together "
        "as other. Too large makes /metrics long.",
    )
    server_timing: bool = Field(
        False,
        description="Whether answers have the header Server-Timing, with the times in which the "
        "request was parsed, waited and was encoded.",
    )
    tracing: bool = Field(
        False,
        description="Whether spans of requests are sent to an OpenTelemetry collector. Needs the "
        "extra warptok[tracing]. The variables of OpenTelemetry, such as "
        "OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_TRACES_SAMPLER, set the address and the "
        "sampling.",
    )
    metrics_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="TCP port of /metrics, on the same address; /metrics is then not answered on "
        "the main port. 0 chooses a free one.",
    )

    @field_validator("gpus")
    @classmethod
    def _check_gpus(cls, gpus: str) -> str:
        numbers = gpus.split(",")
        if not GPUS.fullmatch(gpus) or len(set(numbers)) < len(numbers):
            raise ValueError(
                "must be all, a number of GPUs (2), or different indices of GPUs separated by "
                f"commas (0,2); {PREFIX}ENGINE=cpu uses none"
            )
        return gpus

    @field_validator("cors_origins")
    @classmethod
    def _check_origins(cls, origins: str) -> str:
        for name in origins.split(","):
            if name.strip() not in ("", "none", "any") and not ORIGIN.fullmatch(name.strip()):
                raise ValueError(f"{name.strip()} is not an origin, such as https://example.org")
        if "any" in origins.split(",") and origins != "any":
            raise ValueError("any cannot be combined with other origins")
        return origins

    @field_validator("tls_key", "tls_client_ca")
    @classmethod
    def _check_tls(cls, path: Path | None, others: ValidationInfo) -> Path | None:
        if path is not None and others.data.get("tls_certificate") is None:
            raise ValueError(f"needs {PREFIX}TLS_CERTIFICATE")
        return path

    @field_validator("unix_socket")
    @classmethod
    def _check_unix_socket(cls, path: Path | None, others: ValidationInfo) -> Path | None:
        if path is None and others.data.get("host") == "none":
            raise ValueError(f"must be set if {PREFIX}HOST is none")
        return path

    @field_validator("metrics_port")
    @classmethod
    def _check_metrics_port(cls, port: int | None, others: ValidationInfo) -> int | None:
        if port is not None and others.data.get("host") == "none":
            raise ValueError(f"needs an address in {PREFIX}HOST")
        return port

    @property
    def allows_cors(self) -> bool:
        """Whether web pages of other origins may read answers."""
        return self.cors_origins.strip() not in ("", "none")

    @property
    def has_ports(self) -> bool:
        """Whether the service listens on TCP ports."""
        return self.host != "none"

    @property
    def serves_grpc(self) -> bool:
        """Whether gRPC is answered, on a port or on a Unix socket."""
        return self.grpc and (self.has_ports or self.grpc_unix_socket is not None)

    @property
    def first_gpu(self) -> int:
        """The number of the first GPU in the setting `gpus`."""
        return int(self.gpus.partition(",")[0]) if "," in self.gpus else 0


def read_settings(**overrides: object) -> Settings:
    """Read the settings from the environment; `overrides` take precedence.

    Raises:
        UnknownSetting: a variable with the prefix WARPTOK_ is not a setting, or is empty.
        pydantic.ValidationError: a value is invalid.
    """
    if unknown := describe_unknown():
        raise UnknownSetting(next(iter(unknown.values())))
    return Settings(**overrides)  # type: ignore[arg-type]


def with_defaults(settings: Settings, defaults: Mapping[str, object]) -> Settings:
    """Return the settings with other defaults for those that were not set explicitly."""
    unset = {
        name: value for name, value in defaults.items() if name not in settings.model_fields_set
    }
    return settings.model_copy(update=unset)


def describe_unknown() -> dict[str, str]:
    """Return a message for each variable with the prefix WARPTOK_ that is not a setting or empty.

    As an address, "" would be every network, and as a folder the current one.
    """
    names = [PREFIX + name.upper() for name in Settings.model_fields]
    unknown = {}
    for name in sorted(os.environ.keys() - TEST_VARIABLES):
        if name.upper().startswith(PREFIX) and name.upper() not in names:
            near = difflib.get_close_matches(name.upper(), names, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            unknown[name] = f"{name} is not a setting{hint}"
        elif name.upper() in names and not os.environ[name].strip():
            unknown[name] = f"{name} is empty; unset it, or give it a value"
    return unknown
