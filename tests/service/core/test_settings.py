"""Settings: documented, bounded, and misspelt ones refused."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from service.core.settings import Settings, UnknownSetting, read_settings


def test_every_setting_is_documented_with_a_sentence():
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert field.description.endswith("."), name


def test_the_environment_is_read_with_our_prefix(monkeypatch):
    monkeypatch.setenv("WARPTOK_PORT", "8123")
    monkeypatch.setenv("WARPTOK_PRELOAD", "gpt2,dnabert2")
    settings = read_settings()
    assert (settings.port, settings.preload) == (8123, "gpt2,dnabert2")
    assert read_settings(port=9).port == 9


@pytest.mark.parametrize("name", ["HOST", "STORE_DIR", "ALIASES", "PORT"])
def test_an_empty_variable_stops_the_start(monkeypatch, name):
    """An empty host would listen on every network, and an empty path is the current folder."""
    monkeypatch.setenv(f"WARPTOK_{name}", " ")
    with pytest.raises(UnknownSetting, match=f"WARPTOK_{name} is empty; unset it"):
        read_settings()


def test_variables_of_the_tests_are_not_taken_for_settings(monkeypatch):
    for name in ("DATA", "EXHAUSTIVE", "TEMPLATES"):
        monkeypatch.setenv(f"WARPTOK_{name}", "x")
    read_settings()


def test_a_misspelt_variable_stops_the_start_and_names_the_near_one(monkeypatch):
    monkeypatch.setenv("WARPTOK_MAX_TEXT", "5")
    with pytest.raises(UnknownSetting, match="WARPTOK_MAX_TEXT is not a setting; did you mean"):
        read_settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "70000"),
        ("MAX_TEXTS", "0"),
        ("PORT", "x"),
        ("DRAIN_TIMEOUT_S", "1e400"),
        ("LAME_DUCK_S", "inf"),
        ("HEAD_TIMEOUT_S", "nan"),
    ],
)
def test_a_value_outside_its_limits_is_refused(monkeypatch, name, value):
    monkeypatch.setenv("WARPTOK_" + name, value)
    with pytest.raises(ValidationError, match=name.lower()):
        read_settings()


@pytest.mark.parametrize("gpus", ["all", "1", "2", "16", "0,2", "3,1,0"])
def test_gpus_are_all_a_number_of_them_or_their_numbers(monkeypatch, gpus):
    monkeypatch.setenv("WARPTOK_GPUS", gpus)
    assert read_settings().gpus == gpus


@pytest.mark.parametrize(
    "gpus",
    ["0", "-1", "none", "ALL", "two", "0,", ",1", "0,0", "0 ,1", "1.5", "00,1", "0-3", "2000"],
)
def test_other_spellings_of_gpus_are_refused(monkeypatch, gpus):
    monkeypatch.setenv("WARPTOK_GPUS", gpus)
    with pytest.raises(ValidationError, match="WARPTOK_ENGINE=cpu uses none"):
        read_settings()


def test_settings_are_frozen():
    with pytest.raises(ValidationError):
        Settings().port = 1


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"tls_key": "a.key"}, "tls_key"),
        ({"tls_client_ca": "a.pem"}, "tls_client_ca"),
        ({"host": "none"}, "unix_socket"),
        ({"host": "none", "unix_socket": "a.sock", "metrics_port": 0}, "metrics_port"),
    ],
)
def test_settings_that_need_others_name_them(values, name):
    with pytest.raises(ValidationError, match=name):
        Settings(**values)


def test_without_ports_grpc_needs_a_unix_socket():
    alone = Settings(host="none", unix_socket="a.sock")
    assert not (alone.has_ports or alone.serves_grpc)
    assert Settings(host="none", unix_socket="a.sock", grpc_unix_socket="b.sock").serves_grpc
    assert Settings().serves_grpc
