"""Two registries that share a folder or an object store: what one changes the other follows."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.core.errors import NameTaken, StoreFailed, UnknownVocabulary
from service.core.settings import Settings
from service.registry.management import Upload, VocabularyManager
from service.registry.registry import Registry
from service.registry.store_following import StoreFollower
from service.registry.tokenizer_config import TokenizerConfig
from service.registry.vocabulary_store import SUFFIXES
from tests.support.fake_engine import FakeEngine, byte_vocabulary
from tests.support.waiting import run
from vocabularies import builtin
from vocabularies.model import canonical

FIRST, SECOND = byte_vocabulary(), byte_vocabulary(300)
CONFIG = TokenizerConfig({"chat_template": "{{ messages }}"})


@pytest.fixture(params=["folder", "objects"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Settings]:
    """Give the settings of services that share a folder, or a bucket in memory."""
    if request.param == "folder":
        yield Settings(store_dir=tmp_path / "store")
        return
    memory = pytest.importorskip("fsspec").filesystem("memory")
    yield Settings(store_url="memory://bucket/store")
    if memory.exists("/bucket"):
        memory.rm("/bucket", recursive=True)


@pytest.fixture
def two(settings: Settings) -> tuple[Registry, Registry]:
    return Registry(FakeEngine(), settings), Registry(FakeEngine(), settings)


@pytest.fixture
def two_of_a_folder(tmp_path: Path) -> tuple[Registry, Registry]:
    settings = Settings(store_dir=tmp_path)
    return Registry(FakeEngine(), settings), Registry(FakeEngine(), settings)


def load(registry: Registry, name: str) -> str:
    async def scenario() -> str:
        return (await registry.get_loaded(name)).vocabulary.digest

    return asyncio.run(scenario())


def test_an_upload_is_known_and_loaded_at_its_first_use(two):
    ours, theirs = two
    theirs.put("mine/a", FIRST, False, CONFIG, ("a note",))
    with pytest.raises(UnknownVocabulary):
        ours.find("mine/a")
    followed = StoreFollower(ours).follow()
    assert (followed.names, followed.deleted, followed.old_digests) == ({"mine/a"}, [], [])
    assert "mine/a" not in ours.entries
    assert ours.find("mine/a").notes == ("a note",)
    assert ours.configs.get("mine/a").values == CONFIG.values
    assert load(ours, "mine/a") == FIRST.digest


def test_a_loaded_vocabulary_is_swapped_when_the_new_one_is_ready(two):
    ours, theirs = two
    ours.put("mine", FIRST, False)
    StoreFollower(theirs).follow()
    theirs.put("mine", SECOND, True)
    seen = []
    load_on_engine = ours.engine.load

    def watch(vocabulary, pinned):
        seen.append(ours.entries["mine"].vocabulary.digest)
        return load_on_engine(vocabulary, pinned)

    ours.engine.load = watch
    followed = StoreFollower(ours).follow()
    assert seen == [FIRST.digest]
    assert followed.old_digests == [FIRST.digest]
    assert ours.entries["mine"].vocabulary.digest == SECOND.digest
    assert ours.changes.names_since(0)[-1] == "mine"


def test_a_name_that_was_not_loaded_has_the_new_vocabulary_at_its_next_use(two):
    ours, theirs = two
    theirs.put("mine", FIRST, False)
    follower = StoreFollower(ours)
    follower.follow()
    theirs.put("mine", SECOND, True)
    assert follower.follow().old_digests == []
    assert load(ours, "mine") == SECOND.digest


def test_a_deleted_name_is_forgotten_with_its_aliases(two):
    ours, theirs = two
    ours.put("mine", FIRST, False, CONFIG)
    ours.put_alias("other", "mine", False)
    StoreFollower(theirs).follow()
    theirs.delete("mine")
    followed = StoreFollower(ours).follow()
    assert (followed.names, followed.deleted) == ({"mine", "other"}, ["mine"])
    assert followed.old_digests == [FIRST.digest]
    assert "mine" not in ours.known and "mine" not in ours.entries
    assert ours.configs.get("mine") is None and "other" not in ours.aliases


def test_aliases_are_followed_and_those_of_the_setting_stay(settings):
    fixed = settings.model_copy(update={"aliases": "fixed=gpt2"})
    ours, theirs = Registry(FakeEngine(), fixed), Registry(FakeEngine(), settings)
    follower = StoreFollower(ours)
    theirs.put_alias("a", "gpt2", False)
    theirs.put_alias("fixed", "hyenadna", False)
    assert follower.follow().names == {"a"}
    assert ours.aliases == {"fixed": "gpt2", "a": "gpt2"}
    theirs.put_alias("a", "hyenadna", True)
    follower.follow()
    assert ours.aliases["a"] == "hyenadna"
    theirs.delete_alias("a")
    assert follower.follow().names == {"a"}
    assert ours.aliases == {"fixed": "gpt2"}


def test_own_changes_are_not_followed(two):
    ours, theirs = two
    ours.put("mine", FIRST, False, CONFIG, ("a note",))
    ours.put("mine", SECOND, True, CONFIG)
    ours.put_alias("other", "mine", False)
    ours.put("gone", FIRST, False)
    ours.delete("gone")
    assert ours.store.find_changed() == set()
    assert theirs.store.find_changed() >= {"mine.vocabulary", "mine.config.json", "aliases.json"}


def test_a_settled_folder_is_not_listed(two_of_a_folder, monkeypatch):
    ours, theirs = two_of_a_folder
    listed = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda folder: (listed.append(1), scandir(folder))[1])
    monkeypatch.setattr("service.registry.vocabulary_store.SETTLED_S", 0.0)
    ours.store.find_changed()
    before = len(listed)
    assert ours.store.find_changed() == set()
    assert len(listed) == before
    theirs.put("mine", FIRST, False)
    assert ours.store.find_changed() == {"mine.vocabulary"}
    assert len(listed) == before + 1


def test_a_damaged_file_leaves_a_loaded_vocabulary_and_is_logged_once(two, caplog):
    ours, theirs = two
    ours.put("mine", FIRST, False)
    theirs.store.write("mine.vocabulary", b"damaged")
    follower = StoreFollower(ours)
    with caplog.at_level(logging.ERROR):
        assert follower.follow().names == set()
        follower.follow()
    assert ours.entries["mine"].vocabulary.digest == FIRST.digest
    assert len(caplog.records) == 1 and "mine.vocabulary" in caplog.text
    theirs.put("mine", SECOND, True)
    follower.follow()
    assert ours.entries["mine"].vocabulary.digest == SECOND.digest


def test_builtin_names_and_other_files_are_left_alone(two_of_a_folder, tmp_path: Path):
    ours, _ = two_of_a_folder
    follower = StoreFollower(ours)
    for name in ("gpt2.vocabulary", ".hidden.vocabulary", "tmpabc", "notes.txt"):
        (tmp_path / name).write_bytes(canonical.to_bytes(SECOND))
    assert follower.follow().names == set()
    assert set(ours.known) == set(builtin.BUILTINS)


def test_folders_and_pipes_are_no_files_of_the_store(tmp_path: Path, caplog):
    names = [f"mine{suffix}" for suffix in SUFFIXES] + ["aliases.json"]
    for name in names:
        (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / "pipe.vocabulary")
    (tmp_path / "loop.vocabulary").symlink_to("loop.vocabulary")
    settings = Settings(store_dir=tmp_path)
    registry = Registry(FakeEngine(), settings)
    assert set(registry.known) == set(builtin.BUILTINS)
    for name in (*names, "pipe.vocabulary", "loop.vocabulary"):
        assert f"store: {name} is not used" in caplog.text
    with pytest.raises(UnknownVocabulary):
        registry.delete("mine")
    with pytest.raises(StoreFailed):
        registry.put("mine", FIRST, False)
    with pytest.raises(StoreFailed):
        registry.put_alias("a", "gpt2", False)
    registry.put("pipe", FIRST, False)
    assert load(Registry(FakeEngine(), settings), "pipe") == FIRST.digest
    follower = StoreFollower(registry)
    follower.follow()
    assert follower.follow().names == set()
    assert set(registry.known) == {*builtin.BUILTINS, "pipe"}


def test_an_alias_of_a_vocabulary_that_is_not_known_yet_stays_in_the_store(two):
    ours, theirs = two
    theirs.put("mine", FIRST, False)
    theirs.put_alias("a", "mine", False)
    ours.follow_aliases()  # For example, because the listing of a bucket lags behind.
    assert "a" not in ours.aliases
    ours.put_alias("b", "gpt2", False)
    StoreFollower(theirs).follow()
    assert theirs.aliases == {"a": "mine", "b": "gpt2"}
    StoreFollower(ours).follow()
    assert ours.aliases == {"a": "mine", "b": "gpt2"}
    ours.delete("mine")
    StoreFollower(theirs).follow()
    assert ours.aliases == theirs.aliases == {"b": "gpt2"}


def test_an_alias_whose_vocabulary_is_gone_can_be_removed_and_comes_back_with_it(two):
    ours, _ = two
    ours.put("mine", FIRST, False)
    for alias in ("a", "b"):
        ours.put_alias(alias, "mine", False)
    ours.store.remove("mine.vocabulary")
    again = Registry(FakeEngine(), ours.settings)
    assert again.aliases == {}
    again.delete_alias("b")
    with pytest.raises(UnknownVocabulary):
        again.delete_alias("b")
    again.put("mine", SECOND, False)
    assert again.aliases == {"a": "mine"}


def test_a_request_that_changes_the_name_meanwhile_wins_and_the_next_look_finds_the_file(two):
    ours, theirs = two
    ours.put("mine", FIRST, False)
    theirs.put("mine", SECOND, True)
    load_on_engine = ours.engine.load

    def unload_meanwhile(vocabulary, pinned):
        ours.engine.load = load_on_engine
        ours.unload("mine")
        return load_on_engine(vocabulary, pinned)

    ours.engine.load = unload_meanwhile
    follower = StoreFollower(ours)
    assert follower.follow().names == set()
    assert follower.follow().names == {"mine"}
    assert load(ours, "mine") == SECOND.digest


def test_an_upload_is_refused_if_another_service_has_just_given_the_name(two):
    ours, theirs = two
    theirs.put("mine", FIRST, False)

    async def scenario() -> None:
        manager = VocabularyManager(ours, ours.engine, ours.settings)
        with pytest.raises(NameTaken, match=FIRST.digest):
            await manager.register("mine", SECOND, replace=False)
        theirs.put_alias("other", "mine", False)
        upload = Upload({"mine": canonical.to_bytes(SECOND)}, aliases=("other",))
        with pytest.raises(NameTaken, match="other is already an alias of mine"):
            await manager.put("new", upload, replace=False)

    run(scenario)


def test_the_task_follows_tells_processes_and_survives_a_lost_folder(
    two_of_a_folder, tmp_path: Path, caplog
):
    ours, theirs = two_of_a_folder
    ours.settings = Settings(store_dir=tmp_path, store_poll_s=0.01)

    async def scenario() -> None:
        manager = VocabularyManager(ours, ours.engine, ours.settings)
        told, deleted = asyncio.Event(), []

        async def tell() -> None:
            told.set()

        manager.after_change, manager.after_delete = tell, [deleted.append]
        task = asyncio.create_task(manager.keep_following())
        await asyncio.to_thread(theirs.put, "mine", FIRST, False)
        await asyncio.wait_for(told.wait(), 10)
        assert (await ours.get_loaded("mine")).vocabulary.digest == FIRST.digest
        hidden = tmp_path.with_name(f"{tmp_path.name}-hidden")
        tmp_path.rename(hidden)
        while "cannot be read" not in caplog.text:
            await asyncio.sleep(0.01)
        hidden.rename(tmp_path)
        told.clear()
        await asyncio.to_thread(theirs.delete, "mine")
        await asyncio.wait_for(told.wait(), 10)
        assert deleted == ["mine"] and "mine" not in ours.known
        task.cancel()

    run(scenario)
    assert sum("cannot be read" in record.message for record in caplog.records) == 1


def test_a_restart_reads_the_store_again(settings):
    registry = Registry(FakeEngine(), settings)
    registry.put("Qwen/Qwen3", FIRST, False, CONFIG, ("a note",))
    registry.put_alias("other", "Qwen/Qwen3", False)
    again = Registry(FakeEngine(), settings)
    assert again.find("other").notes == ("a note",)
    assert again.configs.get("Qwen/Qwen3").values == CONFIG.values
    assert load(again, "other") == FIRST.digest


def test_a_scheme_that_is_not_known_is_refused_by_the_name_of_the_setting():
    pytest.importorskip("fsspec")
    with pytest.raises(ValueError, match="WARPTOK_STORE_URL: nowhere://a"):
        Registry(FakeEngine(), Settings(store_url="nowhere://a"))


def test_errors_of_an_object_store_refuse_the_upload_and_keep_the_old_one(two, monkeypatch):
    ours, _ = two
    ours.put("mine", FIRST, False)

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "the bucket is gone")

    monkeypatch.setattr(type(ours.store._files), "write", fail)
    with pytest.raises(StoreFailed, match="the bucket is gone"):
        ours.put("mine", SECOND, True)
    assert ours.entries["mine"].vocabulary.digest == FIRST.digest


def test_a_change_in_the_same_tick_of_a_slow_clock_is_seen_however_rarely_the_store_is_read(
    two_of_a_folder, tmp_path: Path, monkeypatch
):
    ours, theirs = two_of_a_folder
    now = [0.0]
    monkeypatch.setattr("service.registry.vocabulary_store.monotonic", lambda: now[0])
    theirs.put("first", FIRST, False)
    time = os.stat(tmp_path).st_mtime_ns
    assert ours.store.find_changed() == {"first.vocabulary"}
    theirs.put("second", FIRST, False)
    os.utime(tmp_path, ns=(time, time))
    now[0] += 60
    assert ours.store.find_changed() == {"second.vocabulary"}


def test_content_that_comes_back_from_another_service_is_followed(two):
    ours, theirs = two
    follower, other = StoreFollower(ours), StoreFollower(theirs)
    ours.put("mine", FIRST, False)
    follower.follow()
    other.follow()
    theirs.put("mine", SECOND, True)
    follower.follow()
    theirs.put("mine", FIRST, True)
    assert follower.follow().names == {"mine"}
    assert ours.entries["mine"].vocabulary.digest == FIRST.digest
    theirs.delete("mine")
    assert follower.follow().deleted == ["mine"]
    theirs.put("mine", FIRST, False)
    assert follower.follow().names == {"mine"}


def test_an_upload_while_the_store_is_listed_stays(two, monkeypatch):
    ours, _ = two
    files = ours.store._files
    list_versions = type(files).list_versions

    def put_meanwhile(self, suffixes):
        monkeypatch.setattr(type(files), "list_versions", list_versions)
        found = list_versions(self, suffixes)
        ours.put("mine", FIRST, False)
        return found

    monkeypatch.setattr(type(files), "list_versions", put_meanwhile)
    follower = StoreFollower(ours)
    for _ in range(2):
        assert follower.follow().names == set()
        assert "mine" in ours.known


def test_an_upload_before_a_deleted_name_is_forgotten_stays(two, monkeypatch):
    ours, theirs = two
    ours.put("mine", FIRST, False)
    StoreFollower(theirs).follow()
    theirs.delete("mine")
    forget = StoreFollower._forget

    def put_before(self, name, followed):
        ours.put("mine", SECOND, True)
        forget(self, name, followed)

    monkeypatch.setattr(StoreFollower, "_forget", put_before)
    follower = StoreFollower(ours)
    assert follower.follow().deleted == []
    assert ours.entries["mine"].vocabulary.digest == SECOND.digest
    assert load(Registry(FakeEngine(), ours.settings), "mine") == SECOND.digest


def test_a_file_that_cannot_be_read_is_tried_again(two, monkeypatch):
    ours, theirs = two
    ours.put("mine", FIRST, False)
    StoreFollower(theirs).follow()
    theirs.put("mine", SECOND, True)
    theirs.put_alias("other", "mine", False)
    follower = StoreFollower(ours)

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "the network is down")

    with monkeypatch.context() as broken:
        broken.setattr(type(ours.store._files), "read", fail)
        with contextlib.suppress(OSError):
            follower.follow()
    assert ours.entries["mine"].vocabulary.digest == FIRST.digest
    assert follower.follow().names == {"mine", "other"}
    assert ours.entries["mine"].vocabulary.digest == SECOND.digest


def test_a_file_that_is_to_be_found_again_may_be_deleted_meanwhile(two):
    ours, theirs = two
    theirs.put("mine", FIRST, False)
    follower = StoreFollower(ours)
    follower.follow()
    ours.store.forget_version("mine.vocabulary")
    theirs.delete("mine")
    assert follower.follow().deleted == ["mine"]


def test_partial_files_of_killed_processes_are_removed_after_a_day(tmp_path: Path):
    old, new = tmp_path / ".old.partial", tmp_path / ".new.partial"
    for path in (old, new):
        path.write_bytes(b"part")
    os.utime(old, (0, 0))
    Registry(FakeEngine(), Settings(store_dir=tmp_path))
    assert not old.exists() and new.exists()
