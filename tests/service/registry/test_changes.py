"""Changes of names are listed once each, in order, as long as they are kept."""

from __future__ import annotations

from service.registry import changes
from service.registry.changes import Changes


def test_names_that_changed_later_are_listed_once_in_the_order_of_their_last_change():
    noted = Changes()
    noted.note("a")
    noted.note("b", "c")
    assert noted.number == 3
    noted.note("a")
    assert noted.names_since(0) == ["b", "c", "a"]
    assert noted.names_since(1) == ["b", "c", "a"]
    assert noted.names_since(3) == ["a"]
    assert noted.names_since(4) == []


def test_a_reader_that_is_too_far_behind_is_told_so(monkeypatch):
    monkeypatch.setattr(changes, "KEPT_CHANGES", 2)
    noted = Changes()
    noted.note("a", "b")
    assert noted.names_since(0) == ["a", "b"]
    noted.note("c")
    assert noted.names_since(0) is None
    assert noted.names_since(1) == ["b", "c"]
