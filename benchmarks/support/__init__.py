"""What the benchmarks share, and what their results become.

- `results`: reads the JSON files of benchmarks/results.
- `figures`: writes the table of docs/performance.md from them.
- `plot`: draws docs/images from them, with the charts of `charts` on the page of `svg`.

Every figure of the table and of the pictures comes from a result file; none is typed in.
"""
