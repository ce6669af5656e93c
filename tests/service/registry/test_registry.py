"""Names and what they mean: built-in, uploaded, stored, replaced, forgotten."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import os
import threading
from pathlib import Path

import pytest

from service.core.errors import (
    BuiltinProtected,
    InvalidRequest,
    NameTaken,
    NoSpace,
    StoreFailed,
    TooLarge,
    UnknownVocabulary,
)
from service.core.settings import Settings
from service.engines.base import SelfTest
from service.registry.management import VocabularyManager, check_names
from service.registry.registry import Registry
from service.registry.reports import count_states, samples
from service.registry.tokenizer_config import TokenizerConfig
from tests.support.fake_engine import FakeEngine, byte_vocabulary
from tests.support.waiting import run, until
from vocabularies import builtin
from vocabularies.errors import VocabularyError
from vocabularies.model import canonical

FIRST, SECOND = byte_vocabulary(), byte_vocabulary(300)


def make(**settings) -> Registry:
    return Registry(FakeEngine(), Settings(**settings))


def test_every_built_in_is_known_and_loaded_on_first_use_once():
    async def scenario():
        registry = make()
        loads = []
        load = registry.engine.load
        registry.engine.load = lambda v, pinned: (loads.append(v), load(v, pinned))[1]
        entries = await asyncio.gather(*(registry.get_loaded("hyenadna") for _ in range(20)))
        assert len(loads) == 1
        assert all(entry is entries[0] for entry in entries)
        assert registry.entries["hyenadna"].vocabulary.digest == builtin.load("hyenadna").digest
        with pytest.raises(UnknownVocabulary, match="hyenadna"):
            await registry.get_loaded("hyenadnb")
        with pytest.raises(UnknownVocabulary, match="near names are gpt2"):
            await registry.get_loaded("GPT2")

    run(scenario)
    assert set(make().known) == set(builtin.BUILTINS)


def test_a_name_means_one_vocabulary_until_it_is_replaced():
    registry = make()
    assert registry.put("mine", FIRST, replace=False)[1]
    assert not registry.put("mine", FIRST, replace=False)[1]
    with pytest.raises(NameTaken, match=FIRST.digest):
        registry.put("mine", SECOND, replace=False)
    entry, changed = registry.put("mine", SECOND, replace=True)
    assert changed
    assert registry.entries["mine"] is entry
    assert entry.vocabulary.digest == SECOND.digest


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".x",
        "-x",
        "../x",
        "a/..",
        "a/../b",
        "a/./b",
        "a/.b",
        "a//b",
        "/a",
        "a/",
        "/",
        "a\\b",
        "a%2Fb",
        "a%2e%2e",
        "a b",
        "é",
        "a" * 101,
        "a\n",
        "a/b\n",
        "a\0",
        "a,b",
        "a=b",
        "a/verify",
        "a/versions/1",
    ],
)
def test_a_name_that_could_leave_the_folder_is_refused(name):
    with pytest.raises(InvalidRequest):
        make().put(name, FIRST, replace=False)


def test_a_name_and_a_decoder_never_share_the_name_of_a_model(tmp_path, caplog):
    registry = make(store_dir=tmp_path)
    with pytest.raises(InvalidRequest, match="under /v2 this name means the decoder of gpt2"):
        registry.put("gpt2.decode", FIRST, replace=True)
    with pytest.raises(InvalidRequest, match=r"must not end in \.decode"):
        registry.check_free("new.decode", None, replace=False)
    registry.put("old", FIRST, replace=False)
    (tmp_path / "old.vocabulary").rename(tmp_path / "old.decode.vocabulary")
    registry = make(store_dir=tmp_path)
    assert "old.decode.vocabulary cannot be used under /v2" in caplog.text
    with pytest.raises(
        NameTaken,
        match=r"old\.decode would be the decoder of old and an existing vocabulary; delete it",
    ):
        registry.put("old", FIRST, replace=False)
    registry.delete("old.decode")
    registry.put("old", FIRST, replace=False)


def test_built_in_names_are_protected():
    registry = make()
    with pytest.raises(BuiltinProtected):
        registry.put("gpt2", FIRST, replace=True)
    with pytest.raises(BuiltinProtected):
        registry.delete("gpt2")


def test_a_setting_that_names_no_vocabulary_is_said_at_the_start(caplog):
    check_names(make(default_vocabulary="gpt3", pinned="gpt2, mine", preload="none"))
    assert "WARPTOK_DEFAULT_VOCABULARY: gpt3: no vocabulary has this name" in caplog.text
    assert "WARPTOK_PINNED: mine: " in caplog.text and "gpt2: " not in caplog.text
    with pytest.raises(ValueError, match="WARPTOK_PRELOAD: no vocabulary has this name"):
        check_names(make(preload="gpt2, gpt3"))
    caplog.clear()
    check_names(make())
    assert caplog.text == ""


def test_the_number_of_vocabularies_is_limited():
    registry = make(max_vocabularies=len(builtin.BUILTINS) + 1)
    registry.put("one", FIRST, replace=False)
    with pytest.raises(TooLarge, match="max_vocabularies"):
        registry.put("two", FIRST, replace=False)
    registry.put("one", SECOND, replace=True)
    registry.delete("one")
    registry.put("two", FIRST, replace=False)


def test_uploads_survive_a_restart_and_a_deletion_too(tmp_path):
    registry = make(store_dir=tmp_path)
    registry.put("kept", FIRST, replace=False)
    registry.put("kept", SECOND, replace=True)
    registry.put("gone", FIRST, replace=False)
    registry.delete("gone")
    again = make(store_dir=tmp_path)
    assert "gone" not in again.known
    assert asyncio.run(again.get_loaded("kept")).vocabulary.digest == SECOND.digest
    assert [path.name for path in tmp_path.iterdir()] == ["kept.vocabulary"]


def test_metrics_describe_vocabularies_that_are_used_or_that_an_alert_is_about():
    registry = make()
    for name in ("used", "unused", "differs", "bad-1", "bad-2"):
        registry.put(name, FIRST if name != "differs" else SECOND, replace=False)
    test = SelfTest("reference", 40, 1, "a text")
    differing = dataclasses.replace(registry.engine.residency(SECOND.digest), self_test=test)
    residency = registry.engine.residency
    registry.engine.residency = lambda d: differing if d == SECOND.digest else residency(d)
    for name in ("bad-1", "bad-2"):
        del registry.entries[name]
        registry.failures[name] = "damaged"
    found = {each.name: each for each in samples(registry, frozenset({"used", "deleted"}), 1)}
    assert found.keys() == {"used", "differs", "bad-1"}  # One failed one at most.
    assert (found["used"].state, found["bad-1"].state) == ("loaded", "failed")
    assert found["differs"].num_different == 1
    assert count_states(registry) == {
        "loaded": 3,
        "failed": 2,
        "unloaded": len(builtin.BUILTINS),
    }


def test_a_damaged_file_is_reported_and_the_others_work(tmp_path, caplog):
    registry = make(store_dir=tmp_path)
    registry.put("good", FIRST, replace=False)
    data = (tmp_path / "good.vocabulary").read_bytes()
    (tmp_path / "bad.vocabulary").write_bytes(data[: len(data) // 2])
    (tmp_path / "gpt2.vocabulary").write_bytes(data)
    again = make(store_dir=tmp_path)
    assert asyncio.run(again.get_loaded("good")).vocabulary.digest == FIRST.digest
    with pytest.raises(Exception, match="bad cannot be loaded"):
        asyncio.run(again.get_loaded("bad"))
    assert "bad" in again.failures
    assert "gpt2.vocabulary is not used" in caplog.text
    assert asyncio.run(again.get_loaded("gpt2")).vocabulary.digest == builtin.load("gpt2").digest


@pytest.mark.parametrize("since", ["deleted", "replaced"])
def test_a_name_that_changes_while_it_is_read_is_read_again(tmp_path, caplog, since):
    """Its file is gone, or another one, before the thread that loads it has opened it."""
    make(store_dir=tmp_path).put("mine", FIRST, replace=False)
    registry = make(store_dir=tmp_path)

    def change() -> None:
        registry.delete("mine")
        if since == "replaced":
            registry.put("mine", SECOND, replace=False)

    def gone():
        change()
        raise VocabularyError.at("mine.vocabulary", "cannot be read: No such file or directory")

    def forget() -> None:
        known = registry.known.get("mine")
        assert known is not None
        registry.entries.pop("mine", None)
        registry.known["mine"] = dataclasses.replace(known, read=gone)

    forget()
    if since == "deleted":
        with pytest.raises(UnknownVocabulary):
            asyncio.run(registry.get_loaded("mine"))
        registry.put("mine", FIRST, replace=False)
    else:
        assert asyncio.run(registry.get_loaded("mine")).vocabulary == SECOND
    assert not registry.failures
    assert "cannot be loaded" not in caplog.text
    forget()
    if since == "deleted":
        assert registry.put("mine", FIRST, replace=False)[1]
    else:
        with pytest.raises(NameTaken, match=SECOND.digest):
            registry.put("mine", FIRST, replace=False)


def test_a_name_whose_file_is_damaged_can_only_be_replaced(tmp_path):
    (tmp_path / "mine.vocabulary").write_bytes(b"x")
    registry = make(store_dir=tmp_path)
    with pytest.raises(NameTaken, match="cannot be read"):
        registry.put("mine", FIRST, replace=False)
    assert registry.put("mine", FIRST, replace=True)[1]


def test_one_changed_bit_of_a_stored_vocabulary_is_never_another_vocabulary(tmp_path):
    """Without the SHA-256 every tenth bit of these bytes makes a vocabulary, with other ids."""
    make(store_dir=tmp_path).put("mine", builtin.load("hyenadna"), replace=False)
    path = tmp_path / "mine.vocabulary"
    data = path.read_bytes()
    known = make(store_dir=tmp_path).known["mine"]
    assert known.read().digest == builtin.load("hyenadna").digest
    for place in range(0, 8 * len(data), 13):
        damaged = bytearray(data)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(VocabularyError):
            known.read()


def test_a_stored_vocabulary_without_its_sha256_is_read_as_before(tmp_path):
    (tmp_path / "old.vocabulary").write_bytes(canonical.to_bytes(FIRST))
    assert make(store_dir=tmp_path).known["old"].read() == FIRST


def test_a_damaged_chat_template_is_not_used(tmp_path, caplog):
    config = TokenizerConfig({"chat_template": "{{ messages }}"})
    make(store_dir=tmp_path).put("mine", FIRST, replace=False, config=config)
    assert make(store_dir=tmp_path).configs.get("mine") == config
    path = tmp_path / "mine.config.json"
    path.write_bytes(path.read_bytes().replace(b"messages", b"message"))
    assert make(store_dir=tmp_path).configs.get("mine") is None
    assert "mine.config.json is not used" in caplog.text


@pytest.mark.parametrize(
    "number, refusal", [(errno.ENOSPC, NoSpace), (errno.EROFS, StoreFailed)], ids=["full", "fails"]
)
def test_a_full_disk_refuses_an_upload_and_changes_nothing(tmp_path, monkeypatch, number, refusal):
    old, new = TokenizerConfig({"a": 1}), TokenizerConfig({"a": 2})
    registry = make(store_dir=tmp_path)
    registry.put("mine", FIRST, replace=False, config=old)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    sync = os.fsync

    def fail(descriptor: int) -> None:
        if os.fstat(descriptor).st_size > 200:  # The vocabulary, and not its configuration.
            raise OSError(number, os.strerror(number))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fail)
    for name in ("mine", "other"):
        with pytest.raises(refusal):
            registry.put(name, SECOND, replace=True, config=new)
    assert registry.entries["mine"].vocabulary == FIRST
    assert registry.configs.get("mine") == old
    assert "other" not in registry.known
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_vocabulary_whose_file_cannot_be_removed_is_kept(tmp_path, monkeypatch):
    registry = make(store_dir=tmp_path)
    registry.put("mine", FIRST, replace=False)

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "unlink", fail)
    with pytest.raises(StoreFailed, match="Read-only"):
        registry.delete("mine")
    assert registry.entries["mine"].vocabulary == FIRST


def test_a_folder_that_cannot_be_written_is_said_at_the_start(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    make(store_dir=tmp_path)
    assert f"{tmp_path} cannot be written; uploads are refused" in caplog.text


def test_the_engine_forgets_a_digest_only_when_no_name_means_it():
    registry = make()
    registry.put("a", FIRST, replace=False)
    registry.put("b", FIRST, replace=False)
    registry.delete("a")
    registry.forget_unused(FIRST.digest)
    assert FIRST.digest in registry.engine.loaded
    registry.delete("b")
    registry.forget_unused(FIRST.digest)
    assert FIRST.digest not in registry.engine.loaded


def test_unloading_keeps_the_name_and_the_next_use_loads_again():
    async def scenario():
        registry = make()
        registry.put("mine", FIRST, replace=False)
        registry.unload("mine")
        assert "mine" not in registry.entries
        assert (await registry.get_loaded("mine")).vocabulary.digest == FIRST.digest

    run(scenario)


def test_requests_are_answered_while_a_change_waits_for_a_slow_store_and_a_hanging_gpu():
    """Both hold up `unload`: another change has the lock, and the engine does not return."""
    answered, waited = threading.Event(), []

    async def scenario():
        registry = make(request_timeout_ms=1)
        registry.put("mine", FIRST, replace=False)
        manager = VocabularyManager(registry, registry.engine, registry.settings)
        has_lock, hangs, forgotten = (threading.Event() for _ in range(3))

        def write_slowly():
            with registry.changing("other"):
                has_lock.set()
                waited.append(answered.wait(5))

        def hang(digest):
            hangs.set()
            waited.append(answered.wait(5))
            forgotten.set()

        registry.engine.unload = hang
        threading.Thread(target=write_slowly).start()
        has_lock.wait()
        unloading = asyncio.create_task(manager.unload("mine"))
        await asyncio.sleep(0.1)
        answered.set()
        await unloading
        answered.clear()
        await until(hangs.is_set)
        answered.set()
        await until(forgotten.is_set)

    run(scenario)
    assert waited == [True, True]


def test_the_same_upload_of_an_unloaded_name_changes_nothing(tmp_path):
    config = TokenizerConfig({"chat_template": "{{ messages }}"})
    registry = make(store_dir=tmp_path)
    registry.put("mine", FIRST, False, config)
    for again in (registry, make(store_dir=tmp_path)):
        again.entries.clear()
        entry, changed = again.put("mine", FIRST, replace=False)
        assert not changed and entry is again.entries["mine"]
        assert entry.config is not None and entry.config.values == config.values
    entry, changed = registry.put("hyenadna", builtin.load("hyenadna"), replace=False)
    assert not changed and entry is registry.entries["hyenadna"]


def test_a_replaced_vocabulary_has_not_failed(tmp_path):
    make(store_dir=tmp_path).put("mine", FIRST, replace=False)
    (tmp_path / "mine.vocabulary").write_bytes(b"damaged")
    registry = make(store_dir=tmp_path)
    with pytest.raises(VocabularyError):
        registry.load(registry.known["mine"])
    registry.put("mine", SECOND, replace=True)
    assert registry.failures == {}
