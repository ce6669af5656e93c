"""Vocabularies put, deleted, loaded and unloaded, whatever the way the wish came.

What takes long runs in a thread. An engine drops a vocabulary only when nothing that was accepted
before can still be waiting for it.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from service.core.errors import UnknownVocabulary
from service.core.settings import PREFIX
from service.operations.context import Service
from service.registry.entries import LoadedVocabulary
from service.registry.registry import Registry
from service.registry.tokenizer_config import TokenizerConfig
from vocabularies import formats
from vocabularies.model.vocabulary import Vocabulary

logger = logging.getLogger(__name__)
MAX_FILES = 8  # Of one upload; no format has more than three.


def check_names(registry: Registry) -> None:
    """Whether the vocabularies that the settings name are known.

    Raises:
        ValueError: one that is to be loaded is not. Others may be uploaded yet: a warning.
    """
    try:
        registry.names_to_preload()
    except UnknownVocabulary as error:
        raise ValueError(f"{PREFIX}PRELOAD: {error}") from error
    settings = registry.settings
    pinned = [] if settings.pinned.strip() == "none" else settings.pinned.split(",")
    named = [("DEFAULT_VOCABULARY", settings.default_vocabulary)]
    named += [("PINNED", name.strip()) for name in pinned if name.strip()]
    for setting, name in named:
        try:
            registry.find(name)
        except UnknownVocabulary as error:
            logger.warning("%s%s: %s: %s", PREFIX, setting, name, error)


@dataclass(frozen=True, slots=True)
class Upload:
    """A vocabulary as files, and what they do not say.

    Attributes:
        files: their bytes by name; a tokenizer_config.json or chat_template.jinja among them
            brings the chat template, and must list the vocabulary's own tokens.
        format: one of `formats.FORMATS`, or auto.
        pretokenizer, special_tokens, id_offset: for formats that leave them out.
    """

    files: dict[str, bytes]
    format: str = "auto"
    pretokenizer: str | None = None
    special_tokens: dict[str, int] | None = None
    id_offset: int = 0


async def put_vocabulary(
    service: Service, name: str, upload: Upload, *, replace: bool
) -> tuple[LoadedVocabulary, bool]:
    """Give an uploaded vocabulary a name; its entry, and whether the name's meaning changed.

    Raises:
        ServiceError: the name is impossible, taken or a built-in's, or too many are known.
        VocabularyError: the files are wrong or contradict each other, or nothing here computes it.
    """
    files = dict(upload.files)
    config = TokenizerConfig.of_files(files, service.settings.max_template_bytes)
    vocabulary = await asyncio.to_thread(
        formats.read_vocabulary,
        files,
        format=upload.format,
        pretokenizer=upload.pretokenizer,
        special_tokens=upload.special_tokens,
        id_offset=upload.id_offset,
    )
    if config is not None:
        config.refuse_other_ids(vocabulary)
        if "merges.txt" in files:
            config.refuse_other_rule(has_pretokenizer=upload.pretokenizer is not None)
    return await name_vocabulary(service, name, vocabulary, replace, config)


async def name_vocabulary(
    service: Service,
    name: str,
    vocabulary: Vocabulary,
    replace: bool,
    config: TokenizerConfig | None = None,
) -> tuple[LoadedVocabulary, bool]:
    """Give a vocabulary a name; its entry, and whether the name's meaning changed.

    Raises:
        ServiceError: the name is impossible, taken or a built-in's, or too many are known.
        VocabularyError: nothing here computes it.
    """
    before = service.registry.entries.get(name)
    put = service.get_host().registry.put
    entry, created = await asyncio.to_thread(put, name, vocabulary, replace, config)
    if before is not None and created:
        _forget_later(service, before.vocabulary.digest)
    if created:
        old = f", and was {before.vocabulary.digest}" if before is not None else ""
        logger.info("vocabulary %s is %s%s", name, vocabulary.digest, old)
    await _spread(service)
    return entry, created


async def delete_vocabulary(service: Service, name: str) -> None:
    """Forget an uploaded vocabulary.

    Raises:
        ServiceError: there is none of this name, or it is built in.
    """
    before = service.registry.entries.get(name)
    await asyncio.to_thread(service.get_host().registry.delete, name)
    logger.info("vocabulary %s is deleted", name)
    service.oip_statistics.forget(name)
    if before is not None:
        _forget_later(service, before.vocabulary.digest)
    await _spread(service)


async def load_vocabulary(service: Service, name: str) -> None:
    """Make a vocabulary ready, and bring it to the GPU if it left that.

    Raises:
        ServiceError: there is none of this name, or it cannot be loaded.
    """
    entry = await service.registry.loaded(name)
    await asyncio.to_thread(service.get_host().engine.load, entry.vocabulary)
    await _spread(service)


async def unload_vocabulary(service: Service, name: str) -> None:
    """Take a vocabulary off the engine; its next use loads it again.

    Raises:
        ServiceError: there is none of this name.
    """
    before = service.registry.entries.get(name)
    service.get_host().registry.unload(name)
    if before is not None:
        _forget_later(service, before.vocabulary.digest)
    await _spread(service)


async def _spread(service: Service) -> None:
    """Whoever was answered finds the change in every process."""
    if service.processes is not None:
        await service.processes.spread()


def _forget_later(service: Service, digest: str) -> None:
    """Once nothing accepted before now can be waiting, the engine may drop the old vocabulary."""
    delay_s = service.settings.request_timeout_ms / 1000 + 1
    loop = asyncio.get_running_loop()
    loop.call_later(delay_s, service.get_host().registry.forget_unused, digest)
