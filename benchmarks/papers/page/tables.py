"""The papers' tables as Markdown, their numbers beside ours.

A cell without a figure is "–"; a table without rows is a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from benchmarks.papers.page import published as paper
from benchmarks.papers.page.results import Found, Results
from benchmarks.report.charts import short
from benchmarks.report.results import Measured, Row, select
from benchmarks.training.mirna.published import ABLATION, OVERALL

NONE = "–"
NOT_MEASURED = "*Not measured yet: no run that is kept has it.*"
KERNEL = "512 threads, kernel"
SWEEP_COLUMNS = {
    "HF tokenizers": "HF",
    "tiktoken": "tiktoken",
    "warptok CPU": "warptok CPU",
    "GPUTok baseline": "GPUTok baseline",
    "GPUTok optimized": "GPUTok optimized",
    f"GPUTok optimized, {KERNEL}": "its kernel",
    "warptok GPU": "**warptok GPU**",
    "warptok GPU, kernels": "its kernels",
}
GRID_COLUMNS = {
    "HF tokenizers": "HF",
    "tiktoken": "tiktoken",
    "warptok CPU": "warptok CPU",
    "BlockBPE, 256 threads, host to host": "BlockBPE 256",
    "BlockBPE, 512 threads, host to host": "512",
    "BlockBPE, 1024 threads, host to host": "1,024",
    "warptok GPU": "**warptok GPU**",
}
MERGE_COLUMNS = {
    "BlockBPE, 256 threads": "BlockBPE 256",
    "BlockBPE, 512 threads": "512",
    "BlockBPE, 1024 threads": "1,024",
    "warptok GPU, kernels": "**warptok**, with the pattern",
}
CONFIGURATIONS = {
    "standard": "4,096 × 512",
    "large batch": "8,192 × 512",
    "long": "2,048 × 2,048",
}


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """Write a table whose columns after the first `left` are numbers."""
    marks = ["---"] * left + ["---:"] * (len(heads) - left)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, marks, *rows))


def milliseconds(measured: Measured | None, has_spread: bool = False) -> str:
    """Format seconds as milliseconds, perhaps with quartiles."""
    if measured is None:
        return NONE
    scaled = measured.times(1e3)
    words = short(scaled.value)
    return f"{words} ({short(scaled.low)}–{short(scaled.high)})" if has_spread else words


def rate_of(measured: Measured | None, has_spread: bool = False) -> str:
    """Format ids a second in millions."""
    if measured is None:
        return NONE
    scaled = measured.times(1e-6)
    words = short(scaled.value)
    return f"{words} ({short(scaled.low)}–{short(scaled.high)})" if has_spread else words


def times(ratio: float | None) -> str:
    """Format a ratio."""
    return NONE if ratio is None else f"{short(ratio)}×"


def measured_on(found: Found, words: str) -> str:
    """Write the line below a table."""
    return f"\n\n{words} Measured on {found.where()}."


def present(found: Found, columns: dict[str, str]) -> dict[str, str]:
    """Return the columns that have rows."""
    ways = {row.get("way") for row in found.rows}
    return {way: head for way, head in columns.items() if way in ways}


def gputok_sweep(results: Results) -> str:
    """Write Table 1: milliseconds by the length of the text."""
    found = results.table("sweep", "sweep")
    if not found:
        return NOT_MEASURED
    columns = present(found, SWEEP_COLUMNS)
    heads = ["tokens", *columns.values(), "paper: HF", "tiktoken", "baseline", "optimized"]
    rows = []
    for tokens in dict.fromkeys(row["tokens"] for row in found.rows):
        said = paper.GPUTOK_LATENCY.get(tokens)
        theirs = [NONE] * 4
        if said is not None:
            chosen = (said.hugging_face, said.tiktoken, said.baseline, said.optimized)
            theirs = [short(value) for value in chosen]
        ours = [milliseconds(found.seconds(tokens=tokens, way=way)) for way in columns]
        rows.append([f"{tokens:,}", *ours, *theirs])
    words = (
        "Milliseconds of one text, median. GPUTok's columns are its kernels in our own words, in "
        "chunks of 4,096 bytes, from a string to a list of ids with allocations of the driver's; "
        "its kernel with 512 threads alone. Our kernels alone are those of batches; the call takes "
        f"one launch for a short text. The paper's machine has an {paper.GPUTOK_MACHINE}."
    )
    return markdown(heads, rows) + measured_on(found, words)


def gputok_speedups(results: Results) -> str:
    """Write Table 2: how many times faster than tiktoken and Hugging Face."""
    found = results.table("sweep", "sweep")
    heads = [
        "tokens",
        "printed: tiktoken",
        "of its Table 1",
        "printed: HF",
        "of its Table 1",
        "GPUTok here: tiktoken",
        "HF",
        "warptok GPU: tiktoken",
        "HF",
    ]
    rows = []
    for tokens, said in paper.GPUTOK_SPEEDUP.items():
        latency = paper.GPUTOK_LATENCY[tokens]
        ours = [
            times(found.ratio({"tokens": tokens, "way": slow}, {"tokens": tokens, "way": fast}))
            for fast in ("GPUTok optimized", "warptok GPU")
            for slow in ("tiktoken", "HF tokenizers")
        ]
        theirs = (
            said.tiktoken,
            latency.tiktoken / latency.optimized,
            said.hugging_face,
            latency.hugging_face / latency.optimized,
        )
        rows.append([f"{tokens:,}", *map(times, theirs), *ours])
    return markdown(heads, rows)


def gputok_similarity(results: Results) -> str:
    """Write the effect of merges alone on windows of WikiText."""
    found = results.table("similarity", "similarity")
    if not found:
        return "*Not measured yet.*"
    heads = ["tokens", "windows with other ids, %", "similarity of ids", "common ids", "in chunks"]
    rows = [
        [
            f"{row['tokens']:,}",
            f"{100 * row['different_whole']:.0f}",
            f"{row['similarity_whole']:.4f}",
            f"{row['overlap_whole']:.4f}",
            f"{row['similarity_chunks']:.4f}",
        ]
        for row in found.rows
    ]
    words = (
        "GPT-2 without the pattern beside GPT-2, windows of WikiText. Similarity is 1 less the "
        "Levenshtein distance by the longer row of ids, or more, as long texts are compared in "
        "pieces; common ids are those that both have, by all; chunks have 4,096 bytes."
    )
    return markdown(heads, rows) + measured_on(found, words)


def blockbpe_quality(results: Results) -> str:
    """Write Table 1: similarity of ids with and without the pattern."""
    found = results.table("quality", "quality")
    if not found:
        return "*Not measured yet.*"
    heads = [
        "texts",
        "vocabulary",
        "documents",
        "other ids, %",
        "similarity",
        "by ids",
        "least by ids",
        "the paper",
    ]
    rows = []
    for row in found.rows:
        said = paper.BLOCKBPE_QUALITY["GSM8K"].similarity if "GSM8K" in row["text"] else None
        has_number = said is not None and row["vocabulary"] == "llama3"
        rows.append(
            [
                row["text"],
                row["vocabulary"],
                f"{row['documents']:,}",
                f"{100 * row['share_different']:.1f}",
                f"{row['similarity']:.4f}",
                f"{row['similarity_of_ids']:.4f}",
                f"{row['least_similarity_of_ids']:.3f}",
                f"{said:.3f}" if has_number else NONE,
            ]
        )
    words = (
        "Similarity is the paper's: 1 less the Levenshtein distance of the ids by the characters "
        "of the text, mean over documents; by ids: by the longer row of ids."
    )
    return markdown(heads, rows, left=2) + measured_on(found, words)


def blockbpe_merges(results: Results) -> str:
    """Write Figure 2: milliseconds of the merges alone, by block size."""
    return _grid(
        results,
        MERGE_COLUMNS,
        "Milliseconds of kernels alone, from text on the device to ids there, median. BlockBPE's "
        "kernel is in our own words and leaves the pattern out.",
    )


def blockbpe_grid(results: Results) -> str:
    """Write the table of Figure 3: the milliseconds from texts to ids, both on the host."""
    return _grid(
        results,
        GRID_COLUMNS,
        "Milliseconds of a batch of excerpts of War and Peace, from memory to ids in memory, "
        "median; libraries use all cores.",
    )


def _grid(results: Results, columns: dict[str, str], words: str) -> str:
    found = results.table("grid", "grid")
    columns = present(found, columns)
    if not columns:
        return NOT_MEASURED
    shapes = dict.fromkeys((row["batch"], row["length"]) for row in found.rows)
    rows = [
        [
            f"{batch:,} × {length:,}",
            *(milliseconds(found.seconds(batch=batch, length=length, way=way)) for way in columns),
        ]
        for batch, length in shapes
    ]
    return markdown(["texts × bytes", *columns.values()], rows) + measured_on(found, words)


def dnatok_encode(results: Results) -> str:
    """Write the encoding rates of Table S1, in millions of ids per second."""
    return _dnatok(
        results.table("encode", "encode"),
        paper.DNATOK_ENCODE,
        "Millions of ids a second from a list of strings, median and quartiles; ways on the GPU "
        "end with ids there.",
    )


def dnatok_transfer(results: Results) -> str:
    """Write the copy rates of Table S1, in millions of ids per second."""
    return _dnatok(
        results.table("transfer", "transfer"),
        paper.DNATOK_TRANSFER,
        "Millions of ids, or letters, a second over PCIe, median and quartiles. HF native "
        "and encode i64 are in ordinary memory, the others in pinned memory.",
    )


def dnatok_stream(results: Results) -> str:
    """Write the rates of embedding streams of Tables S1 and S2, in millions of ids per second."""
    return _dnatok(
        results.table("stream", "stream"),
        paper.DNATOK_STREAM,
        "Millions of ids a second from a list of strings to embeddings of 128 float32 numbers on "
        "the device, median and quartiles. `baseline`, int32 staging and overlap are settings of "
        'our layer\'s path "ids", `bytes` is its own path.',
    )


def _dnatok(found: Found, said: dict[str, dict[str, float]], words: str) -> str:
    """Write a table with a column and the paper's column for each configuration."""
    if not found:
        return NOT_MEASURED
    heads = ["way"]
    for name in CONFIGURATIONS:
        heads += [CONFIGURATIONS[name], "the paper"]
    rows = []
    for way in dict.fromkeys(row["way"] for row in found.rows):
        cells = [way]
        for name in CONFIGURATIONS:
            cells.append(rate_of(found.rate(figure=name, way=way), has_spread=True))
            number = said.get(name, {}).get(way)
            cells.append(NONE if number is None else short(number / 1e6))
        rows.append(cells)
    return markdown(heads, rows) + measured_on(found, words)


def dnatok_sweeps(results: Results) -> str:
    """Write Figures 4 to 7: rates by batch and by length."""
    tables = []
    for table, figures in (("encode", "Figures 4 and 6"), ("stream", "Figures 5 and 7")):
        found = results.table(table, table)
        swept = [row for row in found.rows if row["figure"].endswith("sweep")]
        if not swept:
            tables.append(f"{figures}: {NOT_MEASURED}")
            continue
        shapes = [*dict.fromkeys((row["rows"], row["letters"]) for row in swept)]
        heads = [figures, *(f"{rows:,} × {letters:,}" for rows, letters in shapes)]
        rows = [
            [
                way,
                *(
                    rate_of(Found(swept, found.machine).rate(rows=rows, letters=letters, way=way))
                    for rows, letters in shapes
                ),
            ]
            for way in dict.fromkeys(row["way"] for row in swept)
        ]
        words = "Millions of ids a second, median."
        tables.append(markdown(heads, rows) + measured_on(found, words))
    return "\n\n".join(tables)


def dnatok_scenarios(results: Results) -> str:
    """Write Figures 10 to 13: speedups over the baselines."""
    found = results.table("scenarios", "scenarios")
    if not found:
        return NOT_MEASURED
    heads = [
        "model, scenario",
        "rows × letters",
        "baseline",
        "ids, ms",
        "with the model, ms",
        "warptok: ids, ms",
        "with the model, ms",
        "faster: ids",
        "with the model",
        "the paper",
    ]
    rows = []
    for row in select(found.rows, way="warptok, ids"):
        shape = {"model": row["model"], "scenario": row["scenario"]}
        low, high = paper.DNATOK_SCENARIOS[row["scenario"]]
        for way in _baselines(found, shape):
            ids, whole = {**shape, "way": f"{way}, ids"}, {**shape, "way": f"{way}, model"}
            our_ids = {**shape, "way": "warptok, ids"}
            our_whole = {**shape, "way": "warptok, model"}
            cells = [milliseconds(found.seconds(**f)) for f in (ids, whole, our_ids, our_whole)]
            rows.append(
                [
                    f"{row['model']}, {row['scenario']}",
                    f"{row['rows']:,} × {row['letters']:,}",
                    way,
                    *cells,
                    times(found.ratio(ids, our_ids)),
                    times(found.ratio(whole, our_whole)),
                    f"{low:g}–{high:g}×",
                ]
            )
    words = (
        "The models are small and have random weights (`dnatok_models`); the paper's are the "
        "published ones, and it does not give the shapes of its scenarios."
    )
    return markdown(heads, rows, left=3) + measured_on(found, words)


def _baselines(found: Found, shape: Row) -> list[str]:
    ways = [row["way"] for row in select(found.rows, **shape)]
    return [
        way.removesuffix(", ids")
        for way in ways
        if way.endswith(", ids") and not way.startswith("warptok")
    ]


def mtdna_statistics(results: Results) -> str:
    """Write the document's statistics, of each set of genomes."""
    found = results.table("statistics", "statistics")
    if not found:
        return "*Not measured yet.*"
    heads = ["genomes", "k-mers seen", "tokens, mean", "`[UNK]`, %", "most frequent"]
    said = (f"{paper.MTDNA_SEEN:,} of 4,096", f"{paper.MTDNA_TOKENS:,}", "< 0.1", "poly-C tracts")
    rows = [["the document: HmtDB, 47,000", *said]]
    for row in found.rows:
        frequent = ", ".join(f"`{kmer}`" for kmer in row["most_frequent"][:3])
        shares = f"{row['mean_tokens']:,.1f}", f"{100 * row['unknown_share']:.3f}"
        rows.append([row["genomes"], f"{row['seen']:,}", *shares, frequent])
    return markdown(heads, rows) + measured_on(found, "HmtDB is not at hand.")


def geneticbpe_motifs(results: Results) -> str:
    """Write the motif columns of Tables 1 and 2, on all and on distinct sequences."""
    found = results.table("motifs", "motifs")
    if not found:
        return "*Not measured yet.*"
    ways = ("all", "distinct", "all, measured on distinct")
    heads = [
        "tokenizer",
        "distortion: all",
        "distinct",
        "learnt from all, on distinct",
        "the paper",
    ]
    heads += ["compression: all", "distinct", "learnt from all, on distinct", "the paper"]
    rows = []
    for name in dict.fromkeys(row["tokenizer"] for row in found.rows):
        by_way = {row["sequences"]: row for row in select(found.rows, tokenizer=name)}
        if name in OVERALL:
            *_, distortion, compression, _ = OVERALL[name]
        else:
            _, _, distortion, compression = ABLATION[name]
        cells = [name]
        for measure, said, digits in (
            ("distortion", distortion, 3),
            ("compression", compression, 2),
        ):
            cells += [_cell(by_way.get(way), measure, digits) for way in ways]
            cells.append(f"{said:g}")
        rows.append(cells)
    words = "GeneticBPE has λ = 2.5 and μ = 10 where nothing else is said."
    return markdown(heads, rows) + measured_on(found, words)


def _cell(row: Row | None, measure: str, digits: int) -> str:
    return NONE if row is None else f"{row[measure]:.{digits}f}"


def left_out(results: Results) -> str:
    """List the measurements that runs left out."""
    words = sorted(results.left_out())
    return "\n".join(f"- {line}" for line in words) or "Nothing."


TABLES: dict[str, Callable[[Results], str]] = {
    "gputok sweep": gputok_sweep,
    "gputok speedups": gputok_speedups,
    "gputok similarity": gputok_similarity,
    "blockbpe quality": blockbpe_quality,
    "blockbpe merges": blockbpe_merges,
    "blockbpe grid": blockbpe_grid,
    "dnatok encode": dnatok_encode,
    "dnatok transfer": dnatok_transfer,
    "dnatok stream": dnatok_stream,
    "dnatok sweeps": dnatok_sweeps,
    "dnatok scenarios": dnatok_scenarios,
    "mtdna statistics": mtdna_statistics,
    "geneticbpe motifs": geneticbpe_motifs,
    "left out": left_out,
}
