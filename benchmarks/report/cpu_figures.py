"""Writes the tables of the CPU engine beside other libraries, one for each machine."""

from __future__ import annotations

from benchmarks.report import runs
from benchmarks.report.charts import short
from benchmarks.report.results import Row, gigas, only, select

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
    "english, first time": "English for the first time",
    "code, first time": "code for the first time",
    "languages, first time": "20 languages for the first time",
    "hostile, first time": "hostile text for the first time",
}
WHO = ("warptok", "best other")
TEXT = ("gpt2", "cl100k_base")


def cpu_table(run: runs.Run) -> str:
    """Write the table of a run: MB/s of text, or M bases/s."""
    document = run.document()
    rows = document["cpu"]
    names = {"1": "1 core", "all": f"{document['machine']['cores']} cores"}
    sides = [cores for cores in names if select(rows, cores=cores)]
    columns = ["what", *(f"{who}, {names[cores]}" for cores in sides for who in WHO)]
    has_copies = "1" in sides
    if has_copies:
        columns.append("copy of the ids, 1 core")
    lines = [_line(columns), _line(["---"] * len(columns))]
    cases = dict.fromkeys((row["vocabulary"], row["case"]) for row in rows)
    for vocabulary, case in cases:
        of_case = select(rows, vocabulary=vocabulary, case=case)
        cells = [f"{VOCABULARIES[vocabulary]}, {CASES.get(case, case.replace(' x ', ' × '))}"]
        for cores in sides:
            side = select(of_case, cores=cores)
            ours = select(side, engine=ENGINE)
            cells += [f"**{_rate(ours[0])}**" if ours else "", _best_other(side)]
        if has_copies:
            is_text = vocabulary in TEXT
            cells.append("" if is_text else _rate(only(of_case, cores="1", engine=COPY)))
        lines.append(_line(cells))
    return "\n".join(lines)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _rate(row: Row) -> str:
    """Format megabytes or megabases per second."""
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
