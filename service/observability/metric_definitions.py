"""Declares the metrics of the service: names, help texts, labels and buckets."""

from __future__ import annotations

from typing import NamedTuple

SECONDS = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
TRAINING_SECONDS = (1, 10, 60, 600, 3600, 36_000)
OUTCOMES = ("finished", "failed", "cancelled")  # Of training jobs.
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384, 65536)
BYTES = tuple(256 * 4**i for i in range(10))
STAGE_SECONDS = (
    5e-6,
    1e-5,
    2e-5,
    5e-5,
    1e-4,
    2e-4,
    5e-4,
    1e-3,
    2e-3,
    5e-3,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1,
    2,
    5,
    10,
    30,
)
"""The bounds of the histograms of stages, in seconds."""
SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.9, 1)


class Family(NamedTuple):
    """A metric: its help text, its labels, and the bounds of a histogram."""

    documentation: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()


COUNTED: dict[str, Family] = {
    "warptok_requests_total": Family("Answered requests.", ("route", "status")),
    "warptok_requests_received_total": Family(
        "Requests whose head was read: answered, cancelled or in progress."
    ),
    "warptok_request_duration_seconds": Family(
        "Time from the head of a request to the end of its answer.", ("route",), SECONDS
    ),
    "warptok_vocabulary_request_duration_seconds": Family(
        "The same by vocabulary: of the most used ones (max_metric_names), and of the others "
        "together as other.",
        ("vocabulary",),
        SECONDS,
    ),
    "warptok_vocabulary_bytes_total": Family(
        "Size of the requests of a vocabulary: bytes of texts, 4 for an id, 16 for a row.",
        ("vocabulary",),
    ),
    "warptok_key_requests_total": Family(
        "Requests by the key of the client: of the most used ones (max_metric_names), and of the "
        "others together as other; with the status 499 where the client left.",
        ("key", "status"),
    ),
    "warptok_key_bytes_total": Family(
        "Size of the requests of a key, as bytes_per_s limits it.", ("key",)
    ),
    "warptok_stage_duration_seconds": Family(
        "Time in each stage: parse, queue and serialize of a request, encode of a batch; the "
        "other stages of sampled batches on the GPU.",
        ("stage",),
        STAGE_SECONDS,
    ),
    "warptok_batches_total": Family("Batches run.", ("engine", "operation")),
    "warptok_batch_rows": Family("Texts or rows of ids in a batch.", (), ROWS),
    "warptok_batch_bytes": Family("Bytes in a batch.", (), BYTES),
    "warptok_batch_fill_ratio": Family("Bytes in a batch over max_batch_bytes.", (), SHARES),
    "warptok_bytes_total": Family("Bytes given to an engine.", ("engine", "operation")),
    "warptok_tokens_total": Family("Ids made or read by an engine.", ("engine", "operation")),
    "warptok_rows_refused_total": Family(
        "Rows that were refused while the rest of their batch was answered.", ("reason",)
    ),
    "warptok_requests_rejected_total": Family("Requests that were refused.", ("reason",)),
    "warptok_work_accepted_total": Family("Requests and parts of streams that the queue accepted."),
    "warptok_work_finished_total": Family(
        "Accepted work that ended: answered, cancelled, failed, or the code of a refusal.",
        ("outcome",),
    ),
    "warptok_requests_cancelled_total": Family("Requests whose client left before the answer."),
    "warptok_fallbacks_total": Family(
        "Batches with rows that a slower engine or encoder computed than was meant.", ("reason",)
    ),
    "warptok_device_batches_total": Family(
        "Batches that ended on each of several GPUs, failed ones included.", ("device",)
    ),
    "warptok_device_bytes_total": Family(
        "Bytes of the batches that ended on each of several GPUs.", ("device",)
    ),
    "warptok_device_failures_total": Family(
        "Calls that failed or hung on each of several GPUs; others computed their batches.",
        ("device",),
    ),
    "warptok_training_duration_seconds": Family(
        "Time in training of jobs that ended: finished, failed or cancelled.",
        ("outcome",),
        TRAINING_SECONDS,
    ),
    "warptok_connections_closed_total": Family(
        "HTTP connections closed before their client did: silent, slow_head, slow_body, slow_read, "
        "bad_handshake, bad_head; make_room and no_room for want of connections.",
        ("reason",),
    ),
    "warptok_template_wait_seconds": Family(
        "Time in which a chat waited for a process of chat templates.", (), SECONDS
    ),
    "warptok_chat_sections_total": Family(
        "Parts of rendered chats: known ones, whose ids the cache had, and new ones.", ("result",)
    ),
    "warptok_chat_section_bytes_total": Family("Bytes of the texts of these parts.", ("result",)),
    "warptok_event_loop_lag_seconds": Family(
        "Delay of the event loop's timer, measured four times a second; of one that stands still, "
        "whenever metrics_port is read.",
        (),
        SECONDS,
    ),
}
"""Counters and histograms by name."""

LIBRARIES = ("tokenizers", "numpy")
VOCABULARY = ("name", "digest", "kind", "state", "engine", "encoder")
READ: dict[str, Family] = {
    "warptok_queue_bytes": Family("Bytes waiting or being encoded."),
    "warptok_queue_limit_bytes": Family("The setting max_queue_bytes."),
    "warptok_queue_rows": Family("Rows waiting or being encoded."),
    "warptok_template_queue_chats": Family("Chats that wait for a process of chat templates."),
    "warptok_chat_cache_bytes": Family("Memory that the ids of parts of rendered chats take."),
    "warptok_streams": Family("Streams that are being answered."),
    "warptok_ready": Family("1 while /readyz says ready."),
    "warptok_connections": Family("Open HTTP connections."),
    "warptok_connections_limit": Family(
        "Most open HTTP connections: max_connections, or fewer if the process may not open enough "
        "files."
    ),
    "warptok_grpc_connections": Family("Open connections to the port of gRPC."),
    "warptok_grpc_connections_limit": Family(
        "Most open gRPC connections: max_connections, or fewer if the process may not open enough "
        "files."
    ),
    "warptok_store_free_bytes": Family("Free bytes of the disk that store_dir is on."),
    "warptok_store_size_bytes": Family("All bytes of that disk."),
    "warptok_file_stale": Family(
        "1 while a changed file (keys, certificate) cannot be read, and what was read before is "
        "used.",
        ("file",),
    ),
    "warptok_certificate_remaining_seconds": Family(
        "Time until the certificate of TLS expires; negative afterwards."
    ),
    "warptok_crossover_bytes": Family("Smallest size of a batch that is meant for the GPU."),
    "warptok_device_memory_bytes": Family(
        "Memory of the GPU: all, free, and what batches and vocabularies hold.", ("device", "part")
    ),
    "warptok_device_up": Family(
        "1 while the GPU gets batches, 0 while it rests after failures, hangs, or is lost.",
        ("device",),
    ),
    "warptok_device_bytes_in_flight": Family(
        "Bytes that each of several GPUs computes now.", ("device",)
    ),
    "warptok_page_locked_bytes": Family(
        "Page-locked memory of this machine that the GPU reads and writes directly.", ("device",)
    ),
    "warptok_vocabulary_info": Family(
        "A vocabulary that is one of the most used, or failed, or differed in its self-test; "
        "always 1.",
        VOCABULARY,
    ),
    "warptok_vocabularies": Family("Vocabularies that have a name, by state.", ("state",)),
    "warptok_vocabulary_device_bytes": Family("Bytes of a vocabulary on the GPU.", ("name",)),
    "warptok_self_test_texts": Family(
        "Texts of a vocabulary's self-test, compared with the reference.", ("name",)
    ),
    "warptok_self_test_different": Family("Texts of the self-test whose ids differed.", ("name",)),
    "warptok_training_jobs": Family(
        "Training jobs that have not ended: queued, running, interrupted.", ("state",)
    ),
    "warptok_build_info": Family(
        "Versions of the service, of Python and of libraries; always 1.",
        ("version", "python", *LIBRARIES),
    ),
}
"""Gauges by name; their values are read when /metrics is requested."""

HTTP_DURATION = "http_request_duration_seconds"
"""The name of the request duration metric in vLLM and other FastAPI servers."""
ALIASED: dict[str, Family] = {
    HTTP_DURATION: Family(
        "warptok_request_duration_seconds by the name that vLLM has for it; handler is the route.",
        ("handler",),
        SECONDS,
    ),
}
"""Copies of metrics under the names of other systems, for existing dashboards and autoscalers."""

FAMILIES = COUNTED | READ
ALWAYS: dict[str, list[tuple[str, ...]]] = {
    "warptok_requests_received_total": [()],
    "warptok_requests_cancelled_total": [()],
    "warptok_work_accepted_total": [()],
    "warptok_requests_rejected_total": [
        ("engine_lost",),
        ("no_space",),
        ("store_failed",),
        ("too_many_connections",),
    ],
    "warptok_fallbacks_total": [("device_error",), ("resting",), ("lost",)],
    "warptok_connections_closed_total": [("make_room",), ("no_room",)],
    "warptok_chat_sections_total": [("known",), ("new",)],
    "warptok_chat_section_bytes_total": [("known",), ("new",)],
}
"""Counters, with their labels, that are 0 from the start, as `rate` in alerts needs a value before
the first event."""
