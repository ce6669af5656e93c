"""Writes docs/papers.md and its pictures: the papers' figures beside ours.

`published` has the papers' numbers, `results` reads what runs have written, `tables` and `claims`
put the two beside each other, `pictures` draws. The page says which figures were not
measured, so that it can be written from any part of the results. Nothing here measures.
"""
