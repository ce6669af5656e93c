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
TEST_VARIABLES = {"WARPTOK_DATA", "WARPTOK_EXHAUSTIVE"}  # Not settings: only the tests use them.
MIB = 1024 * 1024
ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s]+/?|null", re.IGNORECASE)
GPUS = re.compile(r"all|[1-9][0-9]{0,2}|(0|[1-9][0-9]{0,2})(,(0|[1-9][0-9]{0,2}))+", re.ASCII)


class UnknownSetting(ValueError):
    """An environment variable begins with WARPTOK_ but is not a setting."""


class Settings(BaseSettings):
    """Immutable settings; each is the environment variable WARPTOK_ and its name in capitals."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid")

    host: str = Field(
        "127.0.0.1",
        description="Address to listen on; 0.0.0.0 opens the service to every network. "
        "none: it listens on its Unix sockets only.",
    )
    port: int = Field(8000, ge=0, le=65535, description="TCP port; 0 takes a free one.")
    grpc: bool = Field(True, description="Whether gRPC is answered beside HTTP.")
    grpc_port: int = Field(
        8001,
        ge=0,
        le=65535,
        description="TCP port of gRPC, on the same address; 0 takes a free one.",
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
        description="Permissions of the Unix sockets: who may write to one may call the service.",
    )
    frontends: int = Field(
        0,
        ge=0,
        le=256,
        description="HTTP processes in front of one engine process, a core each; 0 does everything "
        "in one process.",
    )
    engine: Literal["auto", "cpu", "gpu"] = Field(
        "auto",
        description="Engine that computes the ids: cpu, gpu, or auto, the GPU where there is one; "
        "gpu stops the start where there is none.",
    )
    cpu_threads: int = Field(
        0,
        ge=0,
        le=4096,
        description="Most threads with which the CPU engine encodes a batch. 0: one for each core "
        "that the process may use, by its affinity mask and the CPU quota of its container. Front "
        "ends encode small batches with one thread each.",
    )
    gpus: str = Field(
        "all",
        description="GPUs that one service uses, of those that CUDA_VISIBLE_DEVICES shows it: "
        "all, how many (2: the first two), or their numbers with commas (0,2). Each of several has "
        "a process and all vocabularies, and a batch goes to the GPU that will be done first.",
    )
    crossover_bytes: int | None = Field(
        None,
        ge=0,
        description="Size in bytes from which on a batch goes to the GPU; smaller ones go to the "
        "CPU. Unset, both are timed at the start.",
    )
    gpu_memory_share: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Share of each GPU's free memory at the start that the service may use; too "
        "small halves large batches and moves vocabularies off the GPU and back.",
    )
    pinned: str = Field(
        "none",
        description="Vocabularies that are never evicted from the GPU: none, or names with commas; "
        "the default vocabulary is never evicted.",
    )
    default_vocabulary: str = Field(
        "gpt2", description="The vocabulary of calls that cannot name one, and of the playground."
    )
    aliases: str = Field(
        "none",
        description="Other names of vocabularies, as NAME=VOCABULARY with commas: "
        "Qwen/Qwen3-8B=qwen3,gpt-4=cl100k_base; none. Requests may give more, and change none of "
        "these.",
    )
    preload: str = Field(
        "all",
        description="Built-in vocabularies loaded before the service is ready: all, none, or names "
        "with commas; the others are loaded on first use, which then takes up to three seconds.",
    )
    api_keys_file: Path | None = Field(
        None,
        description="File of the keys that clients need: a JSON list of name, sha256, scopes and "
        "perhaps rates (`warptok key` writes it); read again when it changes. Unset, everybody may "
        "encode and decode, and vocabularies can be managed on a loopback address only.",
    )
    tls_certificate: Path | None = Field(
        None,
        description="File (PEM) of the certificate, and those that sign it, with which the ports "
        "of HTTP and gRPC speak TLS; read again when it changes, and on SIGHUP. Unset, they speak "
        "no TLS.",
    )
    tls_key: Path | None = Field(
        None,
        description="File (PEM) of the certificate's private key, without a password; unset, it "
        "is in the file of the certificate.",
    )
    tls_client_ca: Path | None = Field(
        None,
        description="File (PEM) of the authorities that sign the certificates of clients; then "
        "only clients with such a certificate can connect by TLS. Unset, clients need none.",
    )
    allowed_hosts: str = Field(
        "auto",
        description="Names and addresses, with commas and without ports, that the header Host may "
        "have; any: all. auto: on a loopback address without keys only those of loopback, so that "
        "no web page reaches the service by a name of its own; otherwise any.",
    )
    allowed_origins: str = Field(
        "none",
        description="Origins, such as https://example.org, with commas, whose web pages may change "
        "vocabularies and training jobs beside pages of the service itself; none, or any: all.",
    )
    cors_origins: str = Field(
        "none",
        description="Origins, such as https://example.org, with commas, whose web pages may call "
        "the service and read its answers (CORS); none, or any: all. To change vocabularies and "
        "training jobs an origin must be in allowed_origins as well.",
    )
    trusted_proxies: str = Field(
        "none",
        description="Addresses and networks, with commas, of proxies whose X-Forwarded-For and "
        "X-Forwarded-Proto are believed, and which max_connections_per_address does not limit; "
        "none.",
    )
    store_dir: Path | None = Field(
        None,
        description="Folder where uploaded vocabularies are kept; unset, they live in memory and a "
        "restart forgets them.",
    )
    store_url: str | None = Field(
        None,
        description="Place of uploaded vocabularies in an object store that fsspec knows, such as "
        "s3://bucket/folder, instead of store_dir, which then has training jobs alone. Needs the "
        "extra `urls` and fsspec's package for the scheme, such as s3fs.",
    )
    store_poll_s: float = Field(
        2.0,
        ge=0,
        description="Seconds between readings of store_dir or store_url, in which other services "
        "that share it may have uploaded, replaced or deleted vocabularies; 0: it is read at the "
        "start only.",
    )
    model_dir: Path | None = Field(
        None,
        description="Folder of one model with its files, whose tokenizer is then the only "
        "vocabulary, and the default one; store_dir and store_url are not used. `warptok render` "
        "sets it.",
    )
    model_names: str = Field(
        "none",
        description="Names, with commas, by which requests call the model of model_dir beside the "
        "name in its config.json, its folder's name and its path; the first is its own name; none.",
    )
    model_pretokenizer: str | None = Field(
        None, description="Pretokenizer of the model of model_dir, if it has a rank file only."
    )
    max_model_len: int | None = Field(
        None,
        ge=1,
        description="Length in ids of the model of model_dir, prompt and answer together; unset, "
        "the length in its files.",
    )
    management: bool = Field(
        True,
        description="Whether requests may change vocabularies, aliases and training jobs and "
        "register shared memory; false: such requests are refused, whatever their key.",
    )
    max_body_bytes: int = Field(
        64 * MIB,
        ge=1024,
        description="Largest request body, and of an Arrow stream the largest record batch; "
        "max_text_bytes bounds each record of FASTA and FASTQ instead. Too small refuses long "
        "texts, too large lets one client hold that much memory.",
    )
    max_texts: int = Field(65_536, ge=1, description="Most texts or rows of ids in one request.")
    max_text_bytes: int = Field(64 * MIB, ge=1, description="Longest single text, in UTF-8 bytes.")
    max_described_ids: int = Field(
        131_072,
        ge=1,
        description="Most ids of an answer that describes each by its string or its bytes, on "
        "other systems' routes (return_token_strs, with_pieces, TEI's /tokenize); too large lets "
        "one request hold up the others while it is written.",
    )
    max_padded_ids: int = Field(
        16_777_216,
        ge=1,
        description="Most ids of a padded answer, rows times length; bounds the answer to a "
        "small request.",
    )
    max_window_ids: int = Field(
        16_777_216,
        ge=1,
        description="Most ids that the windows or the chunks of one text may add up to.",
    )
    shared_memory: bool = Field(
        False,
        description="Whether clients of the Open Inference Protocol may name shared memory of this "
        "machine for inputs and outputs; every client of the port can then read and write it.",
    )
    max_regions: int = Field(64, ge=1, description="Most regions of shared memory at once.")
    max_streams: int = Field(
        64,
        ge=1,
        description="Most Arrow, FASTA and gRPC streams at once; more are refused with 429.",
    )
    stream_idle_timeout_s: float = Field(
        60.0,
        gt=0,
        description="Longest time for which a client may be silent in the middle of a request, "
        "which is then refused with 408, or may read nothing of its answer.",
    )
    head_timeout_s: float = Field(
        20.0,
        gt=0,
        description="Longest time for the whole head of a request, and from the begin of a "
        "connection to its first byte; then the connection is closed.",
    )
    min_body_bytes_per_s: int = Field(
        100,
        ge=0,
        description="Bytes of a body that are worth a second of stream_idle_timeout_s; a body "
        "that comes more slowly for so long is refused with 408, unless it is being answered "
        "meanwhile. 0: no least rate.",
    )
    max_connections: int = Field(
        4096,
        ge=1,
        description="Most connections over HTTP, and as many over gRPC; fewer if the process may "
        "not open enough files. Above it a new one closes one that has sent no request yet; if "
        "there is none, only probes and /metrics are answered, and others refused with 503.",
    )
    max_connections_per_address: int = Field(
        1024,
        ge=1,
        description="Most connections over HTTP of one address, for IPv6 of one /64 network; above "
        "it only probes and /metrics are answered. Addresses of trusted_proxies have no such "
        "limit. Over gRPC, most calls at once on one connection; more wait in the client.",
    )
    max_unsent_bytes: int = Field(
        64 * MIB,
        ge=1,
        description="Most bytes of a stream's answer that wait to be sent; above it the service "
        "stops reading the body. A client that sends everything before it reads must stay below.",
    )
    max_total_unsent_bytes: int = Field(
        512 * MIB,
        ge=1,
        description="The same for all streams together; above it each stream waits until its own "
        "answer is sent.",
    )
    max_queue_bytes: int = Field(
        512 * MIB,
        ge=1024,
        description="Most bytes of text that wait or are being encoded; above it requests are "
        "refused with 429. Too large makes clients wait instead of going elsewhere.",
    )
    max_batch_bytes: int = Field(
        8 * MIB,
        ge=1,
        description="Most bytes of text that are joined into one batch; too large makes small "
        "requests wait for big batches, too small leaves the engine idle.",
    )
    inline_batch_bytes: int = Field(
        32 * 1024,
        ge=0,
        description="Batches up to this size run on the event loop, or with `frontends` in the "
        "front end, when they are expected to take at most 2 ms; 0 means none do.",
    )
    long_request_bytes: int = Field(
        1 * MIB,
        ge=1,
        description="Requests above this size have a queue of their own, so that short ones do "
        "not wait for them.",
    )
    request_timeout_ms: int = Field(
        30_000,
        ge=1,
        description="Longest time in the queue, or for a chat's template, before a request is "
        "refused with 504; a client limits its whole request with X-Request-Timeout-Ms.",
    )
    max_vocabulary_bytes: int = Field(
        64 * MIB, ge=1, description="Largest uploaded vocabulary, all its files together."
    )
    max_vocabularies: int = Field(
        1_024,
        ge=1,
        description="Most vocabularies known at once, built-in ones included; and as many aliases.",
    )
    loaded_vocabulary_bytes: int = Field(
        4096 * MIB,
        ge=1,
        description="About the most memory of the vocabularies that are ready; the longest unused "
        "are unloaded, and their next use, which takes up to three seconds, loads them again. "
        "The vocabularies that `frontends` have loaded may together take as much again.",
    )
    pattern_us_per_byte: float = Field(
        10.0,
        gt=0,
        description="Most microseconds of processor time for a byte of text that a vocabulary may "
        "take whose tokenizer.json has a regular expression that the service does not know. An "
        "upload that takes more on texts made to be slow is refused, and a request that takes "
        "more, and a second beyond it, is ended with 504.",
    )
    max_template_bytes: int = Field(
        4 * MIB,
        ge=1,
        description="Largest tokenizer_config.json or chat_template.jinja that comes with a "
        "vocabulary.",
    )
    chat_template_timeout_ms: int = Field(
        1_000, ge=1, description="Longest time that a chat template may take for one chat."
    )
    estimate_media: bool = Field(
        False,
        description="Whether the routes that only count the ids of a chat estimate its images and "
        "documents, and say so in the answer, instead of refusing them.",
    )
    template_processes: int | None = Field(
        None,
        ge=1,
        description="Most processes in which chat templates run, of each front end, a chat in "
        "each; they are started when they are needed. One takes only chats of vocabularies whose "
        "chats have been quick. Unset, two to four, by the cores.",
    )
    chat_cache_bytes: int = Field(
        64 * MIB,
        ge=0,
        description="Memory for the ids of parts of rendered chats, of each front end: the next "
        "turn of a conversation is tokenized only where it is new. Keys do not share it, nor do "
        "values of `cache_salt`. About 2.5 bytes for a byte of text; 0 keeps nothing. Each process "
        "of templates keeps messages beside it, up to a quarter of as much JSON.",
    )
    max_training_jobs: int = Field(
        8,
        ge=1,
        description="Most training jobs that wait, run or were interrupted; more are refused with "
        "429. One runs at a time, and each may hold max_corpus_bytes on disk.",
    )
    max_corpus_bytes: int = Field(
        1024 * MIB,
        ge=1,
        description="Largest corpus of a training job; it holds for the upload and for its "
        "unpacked content.",
    )
    training_memory_bytes: int = Field(
        8192 * MIB,
        ge=256 * MIB,
        description="Most address space of the process that trains, or most private memory where "
        "it may use a GPU; a job that needs more fails.",
    )
    training_device: Literal["auto", "cpu", "cuda"] = Field(
        "cpu",
        description="Device of training jobs: cpu, cuda, or auto, the GPU for large corpora. "
        "On the GPU, kernels of jobs and of requests wait for each other.",
    )
    training_gpu_memory_share: float = Field(
        0.25,
        gt=0,
        le=1,
        description="Share of the GPU's free memory at its begin that a training job may "
        "take; a job that needs more fails, or with auto runs on the CPU.",
    )
    max_samples: int = Field(10_000, ge=1, description="Most texts that one verify call compares.")
    lame_duck_s: float = Field(
        5.0,
        ge=0,
        description="Time after SIGTERM in which everything is still answered, while /readyz says "
        "503 and answers close their connections; then the ports close. At least as long as a "
        "balancer needs to notice. 0, and Ctrl-C always: the ports close at once.",
    )
    drain_timeout_s: float = Field(
        20.0,
        ge=0,
        description="Time after the ports have closed to finish accepted requests; the rest is "
        "refused with 503.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe log messages that are written, to stderr."
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="Log lines for people, or a JSON object each."
    )
    access_log: bool = Field(
        False,
        description="A log line for each request over HTTP and gRPC; costs about as much time as a "
        "small request.",
    )
    client_addresses: Literal["none", "truncated", "whole"] = Field(
        "truncated",
        description="Form of a client's IP address in log lines and spans: none; truncated: its "
        "network, 24 bits of IPv4 or 48 of IPv6, which tells sites apart and hardly people; whole.",
    )
    max_metric_names: int = Field(
        20,
        ge=0,
        le=1000,
        description="Most vocabularies, and most keys, that metrics count by name, those with the "
        "most requests; the rest counts together as other. Too large makes /metrics long.",
    )
    server_timing: bool = Field(
        False,
        description="Whether answers say with the header Server-Timing how long the request was "
        "parsed, waited and was encoded.",
    )
    tracing: bool = Field(
        False,
        description="Whether spans of requests go to an OpenTelemetry collector; needs the extra "
        "warptok[tracing]. OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_SAMPLER and others of its "
        "variables set its address and the sampling.",
    )
    metrics_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="TCP port of /metrics, on the same address; the other port then no longer has "
        "it. 0 takes a free one.",
    )

    @field_validator("gpus")
    @classmethod
    def _check_gpus(cls, gpus: str) -> str:
        numbers = gpus.split(",")
        if not GPUS.fullmatch(gpus) or len(set(numbers)) < len(numbers):
            raise ValueError(
                "should be all, how many GPUs (2), or different numbers of GPUs with commas (0,2); "
                f"{PREFIX}ENGINE=cpu uses none"
            )
        return gpus

    @field_validator("cors_origins")
    @classmethod
    def _check_origins(cls, origins: str) -> str:
        for name in origins.split(","):
            if name.strip() not in ("", "none", "any") and not ORIGIN.fullmatch(name.strip()):
                raise ValueError(f"{name.strip()} is no origin, such as https://example.org")
        if "any" in origins.split(",") and origins != "any":
            raise ValueError("any stands alone")
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
        UnknownSetting: a variable with the prefix WARPTOK_ is not a setting.
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
    """Return a message for each variable with the prefix WARPTOK_ that is not a setting."""
    names = [PREFIX + name.upper() for name in Settings.model_fields]
    unknown = {}
    for name in sorted(os.environ.keys() - TEST_VARIABLES):
        if name.upper().startswith(PREFIX) and name.upper() not in names:
            near = difflib.get_close_matches(name.upper(), names, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            unknown[name] = f"{name} is no setting{hint}"
    return unknown
