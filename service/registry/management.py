"""Uploads, deletes, loads and unloads vocabularies for the routes of all protocols.

Slow steps run in a thread. The engine drops a vocabulary only when no earlier request can still be
waiting for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from service.core.errors import UnknownVocabulary
from service.core.settings import PREFIX, Settings
from service.engines.base import Engine
from service.registry.entries import LoadedVocabulary
from service.registry.registry import Registry
from service.registry.store_following import StoreFollower
from service.registry.tokenizer_config import TokenizerConfig
from service.registry.vocabulary_view import VOCABULARY
from vocabularies import formats
from vocabularies.model.vocabulary import Vocabulary

logger = logging.getLogger(__name__)
MAX_FILES = 8  # The maximum number of files of an upload; no format has more than three.


def check_names(registry: Registry) -> None:
    """Check the names of vocabularies in the settings.

    An unknown default or pinned name only logs a warning, as it may be uploaded later.

    Raises:
        ValueError: the setting `preload` contains an unknown name.
    """
    try:
        registry.names_to_preload()
    except UnknownVocabulary as error:
        raise ValueError(f"{PREFIX}PRELOAD: {error}") from error
    settings = registry.settings
    pinned = [] if settings.pinned.strip() == "none" else settings.pinned.split(",")
    named = [("ALIASES", alias) for alias in registry.aliases]
    named.append(("DEFAULT_VOCABULARY", settings.default_vocabulary))
    named += [("PINNED", name.strip()) for name in pinned if name.strip()]
    for setting, name in named:
        try:
            registry.find(name)
        except UnknownVocabulary as error:
            logger.warning("%s%s: %s: %s", PREFIX, setting, name, error)


BLANKS = (
    "ids are decoded with a blank between two tokens, as by the library tokenizers, because the "
    "file has no decoder; with decoder=inverse they are decoded to what was encoded"
)


@dataclass(frozen=True, slots=True)
class Upload:
    """A vocabulary as files, with options for what the files do not contain.

    Attributes:
        files: the bytes of the files, by name. A tokenizer_config.json or chat_template.jinja
            contains the chat template; the tokens that it lists must be the vocabulary's own.
        format: one of `formats.FORMATS`, or auto.
        pretokenizer, special_tokens, id_offset: options for formats that do not contain them.
        aliases: further names of the vocabulary.
        decoder: how ids become text: "file" or "inverse".
    """

    files: dict[str, bytes]
    format: str = "auto"
    pretokenizer: str | None = None
    special_tokens: dict[str, int] | None = None
    id_offset: int = 0
    aliases: tuple[str, ...] = ()
    decoder: str = "file"


class VocabularyManager:
    """Changes the vocabularies of one service.

    Attributes:
        after_change: an async function that is called after each change, before the request is
            answered, so that every process applies the change; None if there is one process.
        after_delete: functions that are called with the name of each deleted vocabulary.
    """

    def __init__(self, registry: Registry, engine: Engine, settings: Settings) -> None:
        self.registry = registry
        self.engine = engine
        self.settings = settings
        self.after_change: Callable[[], Awaitable[None]] | None = None
        self.after_delete: list[Callable[[str], None]] = []
        self._follower = StoreFollower(registry)
        self._following = asyncio.Lock()
        self._cannot_follow = False

    async def keep_following(self) -> None:
        """Apply other services' changes of the store every `store_poll_s` seconds."""
        period_s = self.settings.store_poll_s
        while period_s and self.registry.store.is_kept:
            await asyncio.sleep(period_s)
            try:
                await self._follow()
            except Exception:
                logger.exception("store: a change of another service cannot be followed")

    async def _follow_now(self) -> None:
        """Apply other services' changes of the store before this service makes a change."""
        if self.settings.store_poll_s:
            await self._follow()

    async def _follow(self) -> None:
        if not self.registry.store.is_kept:
            return
        async with self._following:
            try:
                followed = await asyncio.to_thread(self._follower.follow)
            except OSError as error:
                if not self._cannot_follow:
                    logger.error("store: cannot be read: %s", error)
                self._cannot_follow = True
                return
        if self._cannot_follow:
            logger.info("store: can be read again")
        self._cannot_follow = False
        for name in followed.deleted:
            for notify in self.after_delete:
                notify(name)
        for digest in followed.old_digests:
            self._forget_later(digest)
        if followed.names:
            await self._notify_processes()

    async def put(
        self, name: str, upload: Upload, *, replace: bool
    ) -> tuple[LoadedVocabulary, bool]:
        """Register an uploaded vocabulary under a name.

        Returns:
            The vocabulary, and whether anything changed (False: the name referred to it before).

        Raises:
            ServiceError: the name is invalid, in use or built in, or there are too many names.
            VocabularyError: the files are invalid or contradict each other, or no encoder
                supports the vocabulary.
        """
        await self._follow_now()
        for alias in upload.aliases:
            self.registry.check_alias(alias, name, replace, "/aliases")
        files = dict(upload.files)
        config = TokenizerConfig.of_files(files, self.settings.max_template_bytes)
        files = formats.with_configuration(files, upload.files)
        vocabulary, notes = await asyncio.to_thread(
            formats.read_with_notes,
            files,
            format=upload.format,
            pretokenizer=upload.pretokenizer,
            special_tokens=upload.special_tokens,
            id_offset=upload.id_offset,
            decoder=upload.decoder,
        )
        if config is not None:
            config.refuse_other_ids(vocabulary)
            notes += config.describe_unfollowed(vocabulary)
            if "merges.txt" in files:
                config.refuse_other_rule(has_pretokenizer=upload.pretokenizer is not None)
        if vocabulary.decoder == "blanks":
            notes += (BLANKS,)
        entry, created = await self.register(name, vocabulary, replace, config, notes)
        for alias in upload.aliases:
            await self.put_alias(alias, entry.name, replace=replace)
        return entry, created

    async def register(
        self,
        name: str,
        vocabulary: Vocabulary,
        replace: bool,
        config: TokenizerConfig | None = None,
        notes: tuple[str, ...] = (),
    ) -> tuple[LoadedVocabulary, bool]:
        """Register a vocabulary under a name.

        Returns:
            The vocabulary, and whether anything changed (False: the name referred to it before).

        Raises:
            ServiceError: the name is invalid, in use or built in, or there are too many names.
            VocabularyError: no encoder supports the vocabulary.
        """
        await self._follow_now()
        before = self.registry.entries.get(name)
        put = self.registry.put
        entry, created = await asyncio.to_thread(put, name, vocabulary, replace, config, notes)
        if before is not None and created:
            self._forget_later(before.vocabulary.digest)
        if created:
            old = f", and was {before.vocabulary.digest}" if before is not None else ""
            logger.info("vocabulary %s is %s%s", name, vocabulary.digest, old)
        await self._notify_processes()
        return entry, created

    async def delete(self, name: str) -> None:
        """Delete an uploaded vocabulary.

        Raises:
            ServiceError: no vocabulary has this name, or it is built in.
        """
        await self._follow_now()
        before = self.registry.entries.get(name)
        await asyncio.to_thread(self.registry.delete, name)
        logger.info("vocabulary %s is deleted", name)
        for notify in self.after_delete:
            notify(name)
        if before is not None:
            self._forget_later(before.vocabulary.digest)
        await self._notify_processes()

    async def put_alias(self, alias: str, name: str, *, replace: bool) -> bool:
        """Add an alias of a vocabulary; return whether anything changed.

        Raises:
            ServiceError: no vocabulary has this name, the alias is invalid or in use, or there are
                too many aliases.
        """
        await self._follow_now()
        own, created = await asyncio.to_thread(self.registry.put_alias, alias, name, replace)
        if created:
            logger.info("vocabulary %s has the alias %s", own, alias)
            await self._notify_processes()
        return created

    async def delete_alias(self, alias: str) -> None:
        """Delete an alias.

        Raises:
            ServiceError: there is no such alias, or the setting `aliases` defines it.
        """
        await self._follow_now()
        await asyncio.to_thread(self.registry.delete_alias, alias)
        logger.info("the alias %s is deleted", alias)
        await self._notify_processes()

    async def load(self, name: str, where: str = VOCABULARY) -> None:
        """Load a vocabulary, and move it back to the GPU if it was evicted.

        Args:
            name: its own name or an alias.
            where: the place of the name in the request.

        Raises:
            ServiceError: no vocabulary has this name, or it cannot be loaded.
        """
        entry = await self.registry.get_loaded(name, where)
        await asyncio.to_thread(self.engine.load, entry.vocabulary)
        await self._notify_processes()

    async def unload(self, name: str, where: str = VOCABULARY) -> None:
        """Unload a vocabulary from the engine; its next use loads it again.

        Args:
            name: its own name or an alias.
            where: the place of the name in the request.

        Raises:
            ServiceError: no vocabulary has this name.
        """
        own = self.registry.find(name, where).name
        before = self.registry.entries.get(own)
        await asyncio.to_thread(self.registry.unload, own)
        if before is not None:
            self._forget_later(before.vocabulary.digest)
        await self._notify_processes()

    async def _notify_processes(self) -> None:
        if self.after_change is not None:
            await self.after_change()

    def _forget_later(self, digest: str) -> None:
        """Drop a vocabulary from the engine once no earlier request can be waiting for it.

        A thread does it, as another change may write to a slow store, and a GPU may hang.
        """
        delay_s = self.settings.request_timeout_ms / 1000 + 1
        loop = asyncio.get_running_loop()
        loop.call_later(delay_s, loop.run_in_executor, None, self.registry.forget_unused, digest)
