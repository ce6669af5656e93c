"""docs/papers.md and its pictures: what the papers say, and what came of it here.

`published` has the papers' numbers, `results` reads what runs have written, `tables` and `claims`
put the two beside each other, `pictures` draws. What was not measured is said, so that the page can
be written from any part of the results. Nothing here measures.
"""
