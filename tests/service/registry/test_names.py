"""Names with slashes, and several names of one vocabulary: given, refused, kept and forgotten."""

from __future__ import annotations

import pytest

from service.core.errors import (
    AliasGiven,
    AliasProtected,
    InvalidRequest,
    NameTaken,
    StoreFailed,
    TooLarge,
    UnknownVocabulary,
)
from service.core.settings import Settings
from service.registry.management import check_names
from service.registry.names import find_name_fault
from service.registry.registry import Registry
from service.registry.reports import count_states, report, samples
from service.registry.tokenizer_config import TokenizerConfig
from service.registry.vocabulary_store import ALIASES_FILE
from tests.support.fake_engine import FakeEngine, byte_vocabulary
from tests.support.waiting import run

FIRST, SECOND = byte_vocabulary(), byte_vocabulary(300)
QWEN = "Qwen/Qwen3-8B"


def make(**settings) -> Registry:
    return Registry(FakeEngine(), Settings(**settings))


@pytest.mark.parametrize("name", [QWEN, "a/b/c", "qwen3:8b", "a./b..c", "config", "verify/x", "A"])
def test_names_as_users_know_them_are_accepted(name):
    assert find_name_fault(name) == ""


def test_a_name_with_a_slash_is_one_file_in_the_folder_and_is_there_after_a_restart(tmp_path):
    registry = make(store_dir=tmp_path)
    config = TokenizerConfig({"bos_token": "a"})
    registry.put(QWEN, FIRST, replace=False, config=config, notes=("a note",))
    registry.put("plain", SECOND, replace=False)
    names = {path.name for path in tmp_path.iterdir()}
    assert {"Qwen%2FQwen3-8B.vocabulary", "plain.vocabulary"} < names
    assert all(path.is_file() for path in tmp_path.iterdir())

    async def scenario():
        again = make(store_dir=tmp_path)
        entry = await again.get_loaded(QWEN)
        assert (entry.name, entry.vocabulary.digest) == (QWEN, FIRST.digest)
        assert again.configs.get(QWEN) == config
        assert again.find(QWEN).notes == ("a note",)
        again.delete(QWEN)

    run(scenario)
    assert {path.name for path in tmp_path.iterdir()} == {"plain.vocabulary"}


def test_a_longest_name_of_slashes_fits_into_a_file_name(tmp_path):
    name = "a/" * 49 + "ab"
    make(store_dir=tmp_path).put(name, FIRST, replace=False, config=TokenizerConfig({}))
    assert make(store_dir=tmp_path).find(name).name == name


def test_an_alias_finds_its_vocabulary_which_is_listed_once():
    registry = make()
    registry.put("qwen3", FIRST, replace=False)
    assert registry.put_alias(QWEN, "qwen3", False) == ("qwen3", True)
    assert registry.put_alias(QWEN, "qwen3", False) == ("qwen3", False)
    assert registry.put_alias("q", QWEN, False) == ("qwen3", True)  # An alias of the vocabulary.

    async def scenario():
        assert (await registry.get_loaded(QWEN)) is registry.entries["qwen3"]

    run(scenario)
    assert registry.find("q").name == "qwen3"
    assert report(registry, registry.find(QWEN)).aliases == [QWEN, "q"]
    assert report(registry, registry.find(QWEN)).name == "qwen3"
    assert [each.name for each in samples(registry, frozenset({"qwen3"}), 20)] == ["qwen3"]
    assert count_states(registry)["loaded"] == 1
    with pytest.raises(UnknownVocabulary, match="near names are Qwen/Qwen3-8B"):
        registry.find("qwen/qwen3-8b")


def test_an_alias_of_a_built_in_vocabulary_can_be_used_and_removed():
    registry = make()
    registry.put_alias("gpt-2", "gpt2", False)
    assert registry.find("gpt-2").builtin
    registry.delete_alias("gpt-2")
    with pytest.raises(UnknownVocabulary) as raised:
        registry.find("gpt-2", "/model")
    assert raised.value.where == "/model"
    with pytest.raises(UnknownVocabulary, match="there is no alias with this name"):
        registry.delete_alias("gpt-2")


def test_an_alias_that_clashes_is_refused():
    registry = make(max_vocabularies=20, aliases="set=gpt2")
    registry.put("one", FIRST, replace=False)
    registry.put("two", SECOND, replace=False)
    registry.put_alias("a", "one", False)
    with pytest.raises(NameTaken, match="a is already an alias of one; replace=true"):
        registry.put_alias("a", "two", False)
    assert registry.put_alias("a", "two", True) == ("two", True)
    for replace in (False, True):
        with pytest.raises(NameTaken, match="one is the name of a vocabulary"):
            registry.put_alias("one", "two", replace)
        with pytest.raises(NameTaken, match="the name of the vocabulary itself"):
            registry.put_alias("one", "one", replace)
        with pytest.raises(AliasProtected, match="the setting aliases"):
            registry.put_alias("set", "one", replace)
        with pytest.raises(InvalidRequest):
            registry.put_alias("../a", "one", replace)
    with pytest.raises(AliasProtected):
        registry.delete_alias("set")
    with pytest.raises(UnknownVocabulary):
        registry.put_alias("b", "three", False)
    for number in range(19):
        registry.put_alias(f"more{number}", "one", False)
    with pytest.raises(TooLarge, match="already 20 aliases"):
        registry.put_alias("more", "one", False)


def test_an_upload_under_an_alias_is_the_same_vocabulary_or_refused():
    registry = make()
    registry.put("own", FIRST, replace=False)
    registry.put_alias("alias", "own", False)
    entry, created = registry.put("alias", FIRST, replace=False)
    assert (entry.name, created) == ("own", False)
    registry.unload("alias")
    assert "own" not in registry.entries
    assert registry.put("alias", FIRST, replace=False)[0].name == "own"
    for replace in (False, True):
        with pytest.raises(NameTaken, match="alias is an alias of own"):
            registry.put("alias", SECOND, replace=replace)
    registry.put("own", SECOND, replace=True)
    assert registry.find("alias").name == "own"
    assert registry.entries["own"].vocabulary.digest == SECOND.digest


def test_a_vocabulary_is_deleted_by_its_own_name_and_takes_its_aliases_along(tmp_path):
    registry = make(store_dir=tmp_path)
    registry.put("own", FIRST, replace=False)
    registry.put("other", SECOND, replace=False)
    registry.put_alias("alias", "own", False)
    registry.put_alias("kept", "other", False)
    with pytest.raises(AliasGiven, match="alias of own"):
        registry.delete("alias")
    assert registry.find("alias").name == "own"
    registry.delete("own")
    registry.put("own", SECOND, replace=False)
    with pytest.raises(UnknownVocabulary):
        registry.find("alias")
    assert registry.find("kept").name == "other"
    assert make(store_dir=tmp_path).aliases == {"kept": "other"}


def test_aliases_of_requests_are_there_after_a_restart(tmp_path, caplog):
    registry = make(store_dir=tmp_path)
    registry.put("own", FIRST, replace=False)
    registry.put_alias(QWEN, "own", False)
    registry.put_alias("gone", "own", False)
    registry.delete_alias("gone")
    assert make(store_dir=tmp_path).find(QWEN).name == "own"
    # What the setting says now holds; the vocabulary's file may have been removed.
    assert make(store_dir=tmp_path, aliases=f"{QWEN}=gpt2").find(QWEN).name == "gpt2"
    (tmp_path / "own.vocabulary").unlink()
    assert make(store_dir=tmp_path).aliases == {}
    assert f"the alias {QWEN} is not used" in caplog.text
    (tmp_path / ALIASES_FILE).write_text("damaged")
    assert make(store_dir=tmp_path).aliases == {}
    assert f"store: {ALIASES_FILE} is not used" in caplog.text


def test_an_alias_that_cannot_be_written_is_not_given(tmp_path, monkeypatch):
    registry = make(store_dir=tmp_path)

    def fail(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(registry.store), "write", fail)
    with pytest.raises(StoreFailed):
        registry.put_alias("alias", "gpt2", False)
    assert registry.aliases == {}


def test_the_setting_gives_aliases_to_vocabularies_that_may_come_later(caplog):
    registry = make(aliases=f"{QWEN}=later, gpt-4 = cl100k_base", pinned="gpt-4", preload="gpt-4")
    assert registry.find("gpt-4").name == "cl100k_base"
    assert registry.names_to_preload() == ["cl100k_base"]
    check_names(registry)
    assert (
        f"WARPTOK_ALIASES: {QWEN}: this is an alias of later, which does not exist" in caplog.text
    )
    assert "gpt-4" not in caplog.text
    with pytest.raises(NameTaken):
        registry.put(QWEN, FIRST, replace=True)
    registry.put("later", FIRST, replace=False)
    assert registry.find(QWEN).name == "later"
    registry.delete("later")
    registry.put("later", SECOND, replace=False)
    assert registry.find(QWEN).name == "later"


def test_a_vocabulary_that_is_pinned_by_an_alias_is_pinned():
    registry = make(aliases="alias=own", default_vocabulary="alias", pinned="none")
    loads = []
    load = registry.engine.load
    registry.engine.load = lambda v, pinned: (loads.append(pinned), load(v, pinned))[1]
    registry.put("own", FIRST, replace=False)
    registry.put("other", SECOND, replace=False)
    assert loads == [True, False]


@pytest.mark.parametrize(
    ("setting", "fault"),
    [
        ("a", "a is not NAME=VOCABULARY"),
        ("a=", "a name has 1 to 100"),
        ("=gpt2", "a name has 1 to 100"),
        ("../a=gpt2", r"\.\./a: a name has"),
        ("a.decode=gpt2", "a.decode: under /v2"),
        ("a=gpt2,a=nt", "a is given for two vocabularies"),
        ("a=b,b=gpt2", "a refers to b, which is an alias itself"),
    ],
)
def test_a_wrong_setting_of_aliases_stops_the_start(setting, fault):
    with pytest.raises(ValueError, match=f"WARPTOK_ALIASES: .*{fault}"):
        make(aliases=setting)


def test_a_setting_cannot_take_a_name_from_its_vocabulary(caplog):
    registry = make(aliases="gpt2=nt")
    assert registry.find("gpt2").name == "gpt2"
    assert "WARPTOK_ALIASES: gpt2 is the name of a vocabulary" in caplog.text
