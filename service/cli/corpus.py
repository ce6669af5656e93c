"""Runs the command `corpus`, which turns files of documents into shards of ids."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from pathlib import Path
from time import process_time
from typing import Any

import orjson

from gpu.errors import DeviceUnavailable
from gpu.host.cores import limit_threads
from service.cli.vocabulary_files import open_vocabulary
from service.core.errors import NotInstalled
from service.corpus.encoding.engines import open_engine
from service.corpus.inputs import SCHEME, Input, UnreadableInput, expand, find_inputs
from service.corpus.job import SHARD_TOKENS, Job
from service.corpus.own_files import OwnFiles
from service.corpus.parts.progress import Progress, peak_memory
from service.corpus.run import PartRunner, run_job
from service.corpus.runners.fork_server import choose_num_processes
from service.corpus.runners.threads import ThreadRunner
from service.corpus.writing.formats import FORMATS
from service.runtime.malloc import keep_large_blocks
from vocabularies.model.vocabulary import Vocabulary

MEGA = 1e6
GPU_BYTES = 1 << 30  # Fewer bytes of files are encoded before a GPU is open.
CHAT_FORMATS = ("jsonl", "lines")
NO_END = "the vocabulary does not say which token is its end-of-text token; name it with --eod"


def run(arguments: argparse.Namespace) -> int:
    """Make the shards; return 1 if a record was rejected.

    Raises:
        VocabularyError, NoSuchVocabulary, UnreadableInput, OtherJob, OSError, ValueError: a
            vocabulary or a file cannot be read, the folder contains another job, the disk is full,
            or options contradict each other.
    """
    special_tokens = None if arguments.special_tokens is None else dict(arguments.special_tokens)
    vocabulary = open_vocabulary(
        arguments.vocabulary, pretokenizer=arguments.pretokenizer, special_tokens=special_tokens
    )
    job = _make_job(arguments, vocabulary)
    progress = Progress(
        sum(file.size for file in job.inputs), None if arguments.quiet else sys.stderr
    )
    running = _make_runner(arguments, vocabulary, progress)
    try:
        manifest = run_job(job, vocabulary, arguments.out, running, is_fresh=arguments.fresh)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            message = f"{error.strerror}; run the same command again to continue"
            raise OSError(error.errno, message, str(arguments.out)) from error
        raise
    except DeviceUnavailable as error:
        message = f"{error}; run the same command with --engine cpu to continue without GPUs"
        raise ValueError(message) from error
    except KeyboardInterrupt:
        print("warptok: stopped; run the same command again to continue", file=sys.stderr)
        raise
    finally:
        progress.close()
    _report(arguments, manifest, progress)
    return 1 if manifest["rejects"] else 0


def _make_runner(
    arguments: argparse.Namespace, vocabulary: Vocabulary, progress: Progress
) -> PartRunner:
    """Choose the runner of the parts: this process, several processes, or a Ray cluster.

    Raises:
        NotInstalled: Ray is needed, and is not installed.
        ValueError: a GPU was requested, and there is none.
        VocabularyError: no encoder can compute the vocabulary.
    """
    engine_name = arguments.engine
    if engine_name == "auto" and progress.total_bytes < GPU_BYTES:
        engine_name = "cpu"
    if arguments.ray is not None:
        return _make_ray_runner(arguments, engine_name, progress)
    num_threads = limit_threads(arguments.threads or 0)
    num_processes = arguments.processes or choose_num_processes(
        arguments.parts, num_threads, progress.total_bytes
    )
    if num_processes > 1:
        from service.corpus.runners.processes import ProcessRunner

        return ProcessRunner(num_processes, engine_name, num_threads, progress, arguments.verify)
    keep_large_blocks()  # Each block takes memory of the same sizes again.
    engine = open_engine(engine_name, vocabulary)
    return ThreadRunner(engine, num_threads, progress, arguments.verify)


def _make_ray_runner(
    arguments: argparse.Namespace, engine_name: str, progress: Progress
) -> PartRunner:
    if arguments.processes is not None:
        raise ValueError("--processes does not go with --ray; --threads is for a part there")
    if arguments.parts == 1 and not arguments.quiet:
        print("warptok: one node has all work; --parts N gives it to several", file=sys.stderr)
    try:
        from service.corpus.runners.ray_cluster import RayRunner
    except ImportError as error:
        raise NotInstalled("--ray needs Ray: pip install 'warptok[ray]'") from error
    return RayRunner(arguments.ray, engine_name, arguments.threads, progress, arguments.verify)


def _make_job(arguments: argparse.Namespace, vocabulary: Vocabulary) -> Job:
    _check_rows(arguments)
    template, tokens = _read_template(arguments)
    most = FORMATS[arguments.format].max_shard_tokens
    shard_tokens = arguments.shard_tokens or min(SHARD_TOKENS, most)
    if shard_tokens > most:
        raise ValueError(
            f"--shard-tokens: --format {arguments.format} allows at most {most} ids in a shard"
        )
    end_id = None
    if arguments.append_eod:
        end_id = _find_end(vocabulary, arguments.eod)
    elif arguments.eod is not None:
        raise ValueError("--eod is only allowed together with --append-eod")
    inputs = _find_inputs(arguments)
    if arguments.chats and any(file.format not in CHAT_FORMATS for file in inputs):
        raise ValueError("--chats needs JSONL files; --read-as jsonl reads all files as JSONL")
    return Job(
        inputs=inputs,
        vocabulary=vocabulary.digest,
        format=arguments.format,
        prefix=arguments.prefix,
        shard_tokens=shard_tokens,
        num_parts=arguments.parts,
        key=arguments.key or ("messages" if arguments.chats else "text"),
        begin_id=None if arguments.begin is None else _find_token(vocabulary, arguments.begin),
        end_id=end_id,
        add_special_tokens=arguments.add_special_tokens,
        special=arguments.special,
        pack=arguments.pack,
        shuffle=arguments.shuffle,
        window=arguments.window,
        stride=arguments.stride,
        reverse_complement=arguments.reverse_complement,
        uppercase=arguments.uppercase,
        chat_template=template,
        chat_tokens=tokens,
        has_mask=arguments.loss_mask,
        max_document_bytes=arguments.max_document_bytes,
        is_digested=not arguments.no_digests,
        skips_unreadable=arguments.skip_unreadable,
    )


def _check_rows(arguments: argparse.Namespace) -> None:
    """Check the options that depend on each other.

    Raises:
        ValueError: they contradict each other.
    """
    if arguments.window is not None and (arguments.pack is not None or arguments.verify):
        raise ValueError("--window cannot be combined with --pack or --verify")
    if arguments.stride is not None and arguments.window is None:
        raise ValueError("--stride is only allowed together with --window")
    if arguments.loss_mask:
        if not arguments.chats or arguments.window is not None:
            raise ValueError(
                "--loss-mask is only allowed together with --chats and without --window"
            )
        if not FORMATS[arguments.format].has_mask:
            with_mask = ", ".join(name for name, format in FORMATS.items() if format.has_mask)
            raise ValueError(
                f"--loss-mask: --format {arguments.format} has no mask; these have one: {with_mask}"
            )
    if arguments.chat_template is not None and not arguments.chats:
        raise ValueError("--chat-template is only allowed together with --chats")


def _read_template(arguments: argparse.Namespace) -> tuple[str, dict[str, str]]:
    """Read the chat template and the named tokens of a vocabulary's folder; "" without --chats.

    Raises:
        ValueError: there is no template, or it is invalid.
        OSError: a file cannot be read.
    """
    if not arguments.chats:
        return "", {}
    # They import jinja2 and pydantic, which take longer than all that other jobs need.
    from service.corpus.reading.chats import ChatRenderer
    from service.registry.model_folder import MAX_TEMPLATE_BYTES
    from service.registry.tokenizer_config import CONFIG_FILES, TokenizerConfig

    folder = Path(arguments.vocabulary)
    found = [folder / name for name in CONFIG_FILES if (folder / name).is_file()]
    files = {path.name: path.read_bytes() for path in found}
    config = TokenizerConfig.of_files(files, MAX_TEMPLATE_BYTES) or TokenizerConfig({})
    template = config.template(has_tools=False)
    if arguments.chat_template is not None:
        try:
            template = arguments.chat_template.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            message = f"byte {error.start} is not UTF-8: {error.reason}"
            raise ValueError(f"{arguments.chat_template}: {message}") from error
    if not template:
        raise ValueError(
            f"{arguments.vocabulary} has no chat template; name one with --chat-template"
        )
    ChatRenderer(template, {}, arguments.loss_mask)
    return template, config.special_tokens()


def _find_inputs(arguments: argparse.Namespace) -> tuple[Input, ...]:
    """Look up the files of all paths.

    A folder may contain the output folders of this or other jobs: files that jobs wrote are
    skipped, unless they are named explicitly.

    Raises:
        UnreadableInput: some files cannot be read, and are not skipped; the message lists all of
            them.
        ValueError: a file is named twice, or there are no files.
    """
    read_as = arguments.read_as
    own = OwnFiles(arguments.out, arguments.prefix, arguments.format)
    expanded: list[str] = []
    for path in arguments.inputs:
        found = expand([path], read_as)
        if not SCHEME.match(path) and os.path.isdir(path):
            found = [each for each in found if not own.has(each)]
        expanded += found
    if not expanded:
        raise ValueError(f"there are no files of documents in {', '.join(arguments.inputs)}")
    seen: dict[str, str] = {}
    for path in expanded:
        real = path if SCHEME.match(path) else os.path.realpath(path)
        if real in seen:
            raise ValueError(f"{path} is named twice (as {seen[real]})")
        seen[real] = path
    inputs, faults = find_inputs(expanded, read_as)
    if faults and not arguments.skip_unreadable:
        hint = "; use --skip-unreadable to leave such files out"
        raise UnreadableInput("\nwarptok: ".join(faults) + hint)
    return tuple(inputs)


def _find_end(vocabulary: Vocabulary, token: str | None) -> int:
    if token is not None:
        return _find_token(vocabulary, token)
    for role in ("eos", "sep"):
        if role in vocabulary.roles:
            return vocabulary.roles[role]
    for name in ("<|endoftext|>", "<|end_of_text|>", "</s>"):
        for token_id, content in vocabulary.contents.items():
            if content == name:
                return token_id
    raise ValueError(NO_END)


def _find_token(vocabulary: Vocabulary, token: str) -> int:
    """Return the id of a special token, or of a token, by its text."""
    for token_id, content in vocabulary.contents.items():
        if content == token:
            return token_id
    data = token.encode()
    for token_id, content_bytes in enumerate(vocabulary.tokens):
        if content_bytes == data:
            return token_id
    raise ValueError(f"the vocabulary has no token {token!r}")


def _report(arguments: argparse.Namespace, manifest: dict[str, Any], progress: Progress) -> None:
    """Print the results of the job."""
    seconds = progress.seconds
    figures = {
        "out": str(arguments.out),
        **{
            name: manifest[name]
            for name in ("format", "documents", "rows", "tokens", "rejects", "dropped_tokens")
        },
        "verified": progress.num_verified,
        "shards": len(manifest["shards"]),
        "id_type": manifest["id_type"],
        "seconds": seconds,
        "cpu_seconds": process_time() + progress.remote_cpu_seconds,
        "remote_cpu_seconds": progress.remote_cpu_seconds,
        "input_bytes": progress.num_bytes,
        "text_bytes": progress.text_bytes,
        "text_mb_per_s": progress.text_bytes / MEGA / seconds,
        "tokens_per_s": progress.num_tokens / seconds,
        "peak_memory_bytes": _sum_peaks(progress),
    }
    if arguments.json:
        sys.stdout.buffer.write(orjson.dumps(figures, option=orjson.OPT_APPEND_NEWLINE))
        return
    print(
        f"{manifest['documents']:,} documents, {manifest['tokens']:,} tokens of "
        f"{manifest['id_type']} in {len(manifest['shards'])} shards of {arguments.out}; "
        f"{seconds:,.1f} s, {figures['text_mb_per_s']:,.0f} MB/s of text"
    )
    if arguments.verify:
        print(f"{progress.num_verified:,} documents compared with the reference: equal")
    if manifest["rejects"]:
        print(f"{manifest['rejects']:,} records rejected: {arguments.out}/rejects_*.jsonl")


def _sum_peaks(progress: Progress) -> int | None:
    """Return the most resident memory of this process and of those that it started."""
    own = peak_memory()
    return None if own is None else own + progress.remote_peak_bytes
