"""Names and what they mean: built-in, uploaded, stored, replaced, forgotten."""

from __future__ import annotations

import asyncio

import pytest

from service.errors import BuiltinProtected, InvalidRequest, NameTaken, TooLarge, UnknownVocabulary
from service.registry import Registry
from service.settings import Settings
from tests.fake_engine import FakeEngine, byte_vocabulary
from tests.waiting import run
from vocabularies import builtin

FIRST, SECOND = byte_vocabulary(), byte_vocabulary(300)


def make(**settings) -> Registry:
    return Registry(FakeEngine(), Settings(**settings))


def test_every_built_in_is_known_and_loaded_on_first_use_once():
    async def scenario():
        registry = make()
        loads = []
        load = registry.engine.load
        registry.engine.load = lambda v, pinned: (loads.append(v), load(v, pinned))[1]
        entries = await asyncio.gather(*(registry.loaded("hyenadna") for _ in range(20)))
        assert len(loads) == 1
        assert all(entry is entries[0] for entry in entries)
        assert registry.entries["hyenadna"].vocabulary.digest == builtin.load("hyenadna").digest
        with pytest.raises(UnknownVocabulary, match="hyenadna"):
            await registry.loaded("hyenadnb")
        with pytest.raises(UnknownVocabulary, match="near names are gpt2"):
            await registry.loaded("GPT2")

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
    "name", ["", ".x", "-x", "a/b", "../x", "a b", "é", "a" * 101, "a\n", "a\0"]
)
def test_a_name_that_could_leave_the_folder_is_refused(name):
    with pytest.raises(InvalidRequest):
        make().put(name, FIRST, replace=False)


def test_built_in_names_are_protected():
    registry = make()
    with pytest.raises(BuiltinProtected):
        registry.put("gpt2", FIRST, replace=True)
    with pytest.raises(BuiltinProtected):
        registry.delete("gpt2")


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
    assert asyncio.run(again.loaded("kept")).vocabulary.digest == SECOND.digest
    assert [path.name for path in tmp_path.iterdir()] == ["kept.vocabulary"]


def test_a_damaged_file_is_reported_and_the_others_work(tmp_path, caplog):
    registry = make(store_dir=tmp_path)
    registry.put("good", FIRST, replace=False)
    data = (tmp_path / "good.vocabulary").read_bytes()
    (tmp_path / "bad.vocabulary").write_bytes(data[: len(data) // 2])
    (tmp_path / "gpt2.vocabulary").write_bytes(data)
    again = make(store_dir=tmp_path)
    assert asyncio.run(again.loaded("good")).vocabulary.digest == FIRST.digest
    with pytest.raises(Exception, match="bad cannot be loaded"):
        asyncio.run(again.loaded("bad"))
    assert "bad" in again.failures
    assert "gpt2.vocabulary is not used" in caplog.text
    assert asyncio.run(again.loaded("gpt2")).vocabulary.digest == builtin.load("gpt2").digest


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
        assert (await registry.loaded("mine")).vocabulary.digest == FIRST.digest

    run(scenario)
