"""Writes tables between the marks of a page of docs/."""

from __future__ import annotations

from collections.abc import Mapping


def fill(page: str, name: str, tables: Mapping[str, str]) -> str:
    """Return a page with new contents in its tables.

    Args:
        page: the page, with the marks `<!-- begin TABLE -->` and `<!-- end TABLE -->`.
        name: the name of the page, for the error.
        tables: the tables by name.

    Raises:
        ValueError: the page does not have the marks of each table exactly once.
    """
    for table_name, table in tables.items():
        begin, end = f"<!-- begin {table_name} -->\n", f"<!-- end {table_name} -->\n"
        if page.count(begin) != 1 or page.count(end) != 1:
            raise ValueError(f"{name} has not one table of {table_name}")
        before, rest = page.split(begin)
        _, after = rest.split(end)
        page = f"{before}{begin}{table}\n{end}{after}"
    return page
