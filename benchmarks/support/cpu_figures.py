"""Writes the table of the CPU engine beside other libraries, from the run of one machine."""

from __future__ import annotations

from benchmarks.support import runs
from benchmarks.support.charts import short
from benchmarks.support.results import Row, gigas, only, select

ENGINE, COPY = "cpu engine", "copy of the ids"
VOCABULARIES = {
    "gpt2": "GPT-2",
    "cl100k_base": "cl100k",
    "dnabert2": "DNABERT-2",
    "gena_lm_t2t_32k": "GENA-LM",
    "hyenadna": "HyenaDNA",
    "nt_v2": "NT v2",
    "mtdna6": "mtDNA 6-mers",
    "dnabert1_6mer": "DNABERT-1 6-mers",
}
CASES = {
    "english": "16 MiB of English",
    "code": "16 MiB of code",
    "languages": "16 MiB of 20 languages",
    "hostile": "16 MiB of hostile text",
}
WHO = ("warptok", "best other")
TEXT = ("gpt2", "cl100k_base")


def cpu_table() -> str:
    """Write the table: MB/s of text, or M bases/s."""
    document = runs.CPU.document()
    rows = document["cpu"]
    cores = document["machine"]["cores"]
    sides = [f"{who}, {side}" for side in ("1 core", f"{cores} cores") for who in WHO]
    columns = ["what", *sides, "copy of the ids, 1 core"]
    lines = [_line(columns), _line(["---"] * len(columns))]
    cases = dict.fromkeys((row["vocabulary"], row["case"]) for row in rows)
    for vocabulary, case in cases:
        of_case = select(rows, vocabulary=vocabulary, case=case)
        one, every = (select(of_case, cores=cores) for cores in ("1", "all"))
        copy = "" if vocabulary in TEXT else _rate(only(one, engine=COPY))
        cells = [f"{VOCABULARIES[vocabulary]}, {CASES.get(case, case.replace(' x ', ' × '))}"]
        for side in (one, every):
            ours = select(side, engine=ENGINE)
            cells += [f"**{_rate(ours[0])}**" if ours else "", _best_other(side)]
        lines.append(_line([*cells, copy]))
    return "\n".join(lines)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _rate(row: Row) -> str:
    """Write megabytes or megabases a second."""
    return short(1000 * gigas(row["bytes"], row["seconds"]).value)


def _best_other(rows: list[Row]) -> str:
    others = [r for r in rows if r["engine"] not in (ENGINE, COPY) and r["status"] == "exact"]
    if not others:
        return ""
    best = max(others, key=lambda row: float(row["gb_per_s"]))
    name = best["engine"]
    if name.startswith("tokenizers"):
        name = f"tokenizers {best['version']}"
    return f"{_rate(best)} {name}"
