"""Draws the pictures of docs/images from the results.

    python -m benchmarks.report.plot

Each picture puts our figures beside other libraries' and, where there is one, beside a limit: the
rate at which the same machine copies the bytes. docs/performance.md has the figures in full.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from benchmarks.report.charts import (
    DOTS,
    Bar,
    Column,
    Panel,
    Piece,
    Series,
    Stack,
    StackColumn,
    put_bars,
    put_lines,
    put_note,
    put_panels,
    put_stacks,
    put_title,
    short,
)
from benchmarks.report.results import (
    FOLDER,
    Measured,
    Row,
    card,
    gigas,
    load,
    of_rounds,
    only,
    seconds,
    select,
)
from benchmarks.report.svg import Page

IMAGES = Path(__file__).parents[2] / "docs" / "images"
WIDTH = 840
MILLION = 1_000_000
CORPORA = {"english": "English", "code": "Code", "languages": "20 languages"}
DNA_SHAPE = "8,192 x 512"
DNA_VOCABULARIES = {
    "hyenadna": ("HyenaDNA", "characters"),
    "nt_v2": ("NT v2", "6-mers"),
    "mtdna6": ("mtDNA", "overlapping 6-mers"),
    "dnabert2": ("DNABERT-2", "BPE"),
    "gena_lm_t2t_32k": ("GENA-LM", "BPE"),
}
LOADS = {
    (1, 64): ("1 text a request", "64 connections"),
    (1, 512): ("1 text a request", "512 connections"),
    (32, 64): ("32 texts a request", "64 connections"),
    (32, 512): ("32 texts a request", "512 connections"),
}


def throughput() -> str:
    """Draw GPT-2 on three corpora: our engines beside PCIe and other libraries."""
    document = load("engine/engine_h200.json")
    bars = [
        Bar("warptok GPU, stream", "ours"),
        Bar("warptok GPU, one call", "ours"),
        Bar("warptok CPU", "ours_too"),
        Bar("gigatoken", "others"),
        Bar("fastokens", "others"),
        Bar("tiktoken", "others"),
        Bar("tokenizers", "others"),
    ]
    engines = ("gpu pinned, narrow ids", "cpu engine", "gigatoken", "fastokens", "tiktoken")
    columns = []
    for corpus, title in CORPORA.items():
        host = only(document["host"], corpus=corpus, vocabulary="gpt2", way="on_device")
        rows = select(document["corpora"], corpus=corpus, vocabulary="gpt2", cores="all")
        values: list[Measured | None] = [gigas(host["bytes"], host["seconds"])]
        for engine in (*engines, "tokenizers"):
            row = only(rows, engine=engine)
            values.append(gigas(row["bytes"], row["warm"]["seconds"]))
        bus = host["copies_gb_per_s"]["host_to_device"]
        columns.append(
            Column(title, "GB of text a second", values, limit=bus, limit_name=_bus(bus))
        )
    page = Page(WIDTH)
    put_title(
        page,
        "Text to GPT-2 ids",
        "The dashed line is PCIe: how fast the same machine copies bytes to the GPU.",
    )
    put_bars(page, bars, columns, 165)
    put_note(
        page,
        "Stream: 1 GiB of pinned memory, ids left on the device. One call: 64 MiB, 16-bit ids.",
    )
    put_note(page, f"{_machine(document)}; libraries use all cores. Every id was compared first.")
    return page.to_svg(
        "Text to GPT-2 ids",
        _described("GB of text a second", bars, columns),
    )


def dna() -> str:
    """Draw five DNA vocabularies: our engines beside PCIe and the usual tokenizers."""
    document = load("dna/dna_h200.json")
    rows = select(document["results"], shape=DNA_SHAPE)
    ways = {
        "gpu engine, pinned to device": Bar("warptok GPU, to device", "ours"),
        "gpu engine, bytes": Bar("warptok GPU, to memory", "ours"),
        "cpu engine, bytes": Bar("warptok CPU", "ours_too"),
        "bytes.translate": Bar("bytes.translate", "others"),
        "transformers EsmTokenizer": Bar("transformers", "others"),
        "tokenizers, all cores": Bar("tokenizers", "others"),
    }
    columns = []
    for name, (title, subtitle) in DNA_VOCABULARIES.items():
        found = select(rows, vocabulary=name)
        values = [_rate_of(select(found, way=way)) for way in ways]
        bus = only(found, way="copy host_to_device")["gb_per_s"]
        columns.append(Column(title, subtitle, values, limit=bus, limit_name=_bus(bus)))
    page = Page(WIDTH)
    put_title(
        page,
        "DNA to ids: 8,192 sequences of 512 bases",
        "Billions of bases a second. The dashed line is PCIe.",
    )
    put_bars(page, [*ways.values()], columns, 180, value_width=48)
    put_note(
        page,
        f"{_machine(document)}. Every id was compared first. –: not its tokenizer.",
    )
    return page.to_svg(
        "DNA to ids", _described("billions of bases a second", [*ways.values()], columns)
    )


def http() -> str:
    """Draw small requests beside a plain FastAPI server, and eight front ends beside one."""
    document = load("service/http.json")
    bars = [Bar("warptok", "ours"), Bar("FastAPI, tokenizers", "others")]
    columns = []
    for (texts, connections), (title, subtitle) in LOADS.items():
        rounds = select(document["rounds"], texts=texts, connections=connections)
        ours = of_rounds(each["warptok"]["requests_per_s"] for each in rounds)
        plain = of_rounds(each["plain"]["requests_per_s"] for each in rounds)
        ratio = of_rounds(each["ratio"] for each in rounds).value
        words = [f"{_thousands(ours.value)} ({ratio:.0f}×)", _thousands(plain.value)]
        columns.append(Column(title, subtitle, [ours, plain], words))
    page = Page(WIDTH)
    put_title(
        page,
        "Requests a second over HTTP",
        "Texts of 200 characters, GPT-2, as JSON. In brackets: times the plain server.",
    )
    put_bars(page, bars, columns, 140, value_width=88)
    put_note(page, f"{_machine(document)}, shared with the client.")
    fronts = load("service/frontends.json")
    ends = [Bar("8 front ends", "ours"), Bar("1 front end", "ours_too")]
    small, arrow = (
        [
            of_rounds(each[kind][unit] for each in select(fronts["rows"], frontends=number))
            for number in (8, 1)
        ]
        for kind, unit in (("small", "requests_per_s"), ("arrow", "gb_per_s"))
    )
    pair = [
        Column(
            "Requests a second", "one text each", [*small], [_thousands(x.value) for x in small]
        ),
        Column("Arrow streams", "GB of text a second, one GPU", [*arrow]),
    ]
    page.bottom += 12
    put_bars(page, ends, pair, 140, value_width=60, has_one_scale=False)
    put_note(
        page,
        f"{_machine(fronts)}, beside an H200, shared with the clients. Thin lines: all rounds.",
    )
    return page.to_svg(
        "Requests a second over HTTP",
        f"{_described('requests a second', bars, columns)} {_described('', ends, pair)}",
    )


def training() -> str:
    """Draw the time of a training by the size of the corpus, and beside `tokenizers`."""
    host, device = load("training/training.json"), load("training/training_gpu.json")
    plain = select(device["growth"], motifs=0)
    series = [
        _growth("CPU, 10,000 motifs", "ours_too", select(host["growth"], motifs=10_000)),
        _growth("CPU", "ours_too", select(host["growth"], motifs=0), shift=8),
        _growth("H200, 10,000 motifs", "ours", select(device["growth"], motifs=10_000)),
        _growth("H200", "ours", plain),
        Series(
            "bytes moved at the copy rate",
            "limit",
            [(row["bases"], row["moved_bytes"] / device["copy_bytes_a_second"]) for row in plain],
            "dashed",
        ),
    ]
    page = Page(WIDTH)
    put_title(
        page,
        "Learning 4,096 tokens: seconds by bases",
        "The dashed line is the time in which the GPU copies the bytes that the merges move.",
    )
    x_ticks = {float(MILLION * number): f"{number:,} M" for number in (1, 4, 16, 64, 256, 1000)}
    y_ticks = {0.0005: "", 0.001: "1 ms", 0.01: "10 ms", 0.1: "0.1 s", 1.0: "1 s", 10.0: "10 s"}
    put_lines(page, series, x_ticks, y_ticks, 250, 190)
    put_note(page, f"CPU: {_machine(host)}. GPU: {_machine(device)}.")
    bars = [Bar("warptok, 1 core", "ours"), Bar("tokenizers", "others")]
    columns = []
    for row in host["beside"]:
        values: list[Measured | None] = [
            seconds(row[f"{name}_wall"]) for name in ("ours", "tokenizers")
        ]
        words = [_clock(value.value) for value in values if value]
        title = {"matures": "Mature miRNAs", "lambda": "Phage lambda"}.get(
            row["corpus"], "E. coli, 100 kb"
        )
        columns.append(Column(title, f"{row['ids']:,} tokens", values, words))
    page.bottom += 16
    page.text(20, page.bottom + 4, "The same merges as the trainer of tokenizers", "title")
    page.bottom += 22
    put_bars(page, bars, columns, 115, value_width=58)
    return page.to_svg(
        "The time to learn a vocabulary",
        " ".join(
            f"{each.label}: {each.points[0][1]:.2g} s for {each.points[0][0] / MILLION:g} million "
            f"bases, {each.points[-1][1]:.2g} s for {each.points[-1][0] / MILLION:g} million."
            for each in series
        ),
    )


def dashboard() -> str:
    """Draw panels of the Grafana dashboard over a load of four clients."""
    document = load("service/dashboard.json")
    end = document["seconds"]
    panels = [_panel(each) for each in document["panels"]]
    page = Page(WIDTH)
    put_title(
        page,
        "The dashboard over four clients",
        "What Prometheus answers to the panels' queries. The key genomes may send 15 requests a "
        "second.",
    )
    put_panels(
        page, panels, {end * part / 3: _minutes(end * part / 3) for part in range(4)}, 3, 100
    )
    put_note(
        page,
        f"{document['requests']:,} requests to two front ends; {_machine(document)}, shared with "
        "the clients. Without lines of limits, medians and zeros.",
    )
    return page.to_svg(
        "Panels of the dashboard",
        " ".join(
            f"{panel.title}, at the end: "
            + "; ".join(
                f"{each.label} {_amount(each.points[-1][1], row['unit'])}" for each in panel.series
            )
            + "."
            for panel, row in zip(panels, document["panels"], strict=True)
        ),
    )


def gaps() -> str:
    """Draw the points of the GeneticBPE paper's Figure 2: distortion and cross-domain gap."""
    document = load("training/genetic_bpe_motifs.json")
    points = document["gaps"]
    tasks = {"BurBary": "ours", "MultiTop50": "limit"}
    own = {task: [(p["distortion"], p["gap"]) for p in select(points, task=task)] for task in tasks}
    published = {
        task: [
            (p["published"]["distortion"], p["published"]["gap"])
            for p in select(points, task=task)
            if p["published"]
        ]
        for task in tasks
    }
    y_ticks = {float(gap): f"{gap} %" for gap in (-20, -10, 0, 10, 20, 30)}
    bound = Series("7 × distortion", "others", [(0.0, 0.0), (0.3 / 7, 30.0)], "dashed")
    panels = [
        Panel(
            title,
            [*(Series(task, tasks[task], found[task], DOTS) for task in tasks), bound],
            y_ticks,
        )
        for title, found in (("The paper's Table 1", published), ("Here, MirGeneDB 2.1", own))
    ]
    page = Page(WIDTH)
    put_title(
        page,
        "GeneticBPE, Figure 2: motif distortion and cross-domain gap",
        "A dot is a tokenizer. Across: share of seeds that are not inside one token. Up: accuracy "
        "lost on other species.",
    )
    put_panels(page, panels, {share / 4: f"{share / 4:g}" for share in range(5)}, 2, 200)
    put_note(
        page,
        f"Gaps of classifiers trained on human sequences, {document['gaps_measured']}. The dashed "
        "line is Equation 7's term for motifs of 7 letters.",
    )
    return page.to_svg(
        "Motif distortion and cross-domain gap",
        " ".join(
            f"{panel.title}, {each.label}: "
            + "; ".join(f"{x:.2f}, {y:.1f} %" for x, y in each.points)
            + "."
            for panel in panels
            for each in panel.series
        ),
    )


STAGES = {
    "read": "others",
    "join": "ours_too",
    "copy in": "limit",
    "encode": "ours",
    "kernels": "ours",
    "copy out": "limit",
    "write": "others",
}
"""The colour of each stage of a batch, in their order."""
STAGE_NAMES = {"gpt2": "GPT-2", "dnabert2": "DNABERT-2", "nt_v2": "NT v2", "hyenadna": "HyenaDNA"}


def stages() -> str:
    """Draw where the time of a batch goes, on the CPU and, where it was measured, on a GPU."""
    names = ("engine/stages.json", "engine/stages_h200.json")
    documents = [load(name) for name in names if (FOLDER / name).is_file()]
    found = {"cpu": documents[0]["stages"], "gpu": documents[-1]["stages"]}
    rows = [row for engine, each in found.items() for row in select(each, engine=engine)]
    keys = dict.fromkeys((row["vocabulary"], row["engine"]) for row in rows)
    labels = [f"{STAGE_NAMES[name]}, {engine.upper()}" for name, engine in keys]
    columns = []
    for num_rows in dict.fromkeys(row["rows"] for row in rows):
        stacks: list[Stack | None] = []
        for name, engine in keys:
            row = only(rows, vocabulary=name, engine=engine, rows=num_rows)
            medians = {stage: each["median_s"] for stage, each in row["stages"].items()}
            pieces = [Piece(STAGES[stage], medians[stage]) for stage in STAGES if stage in medians]
            stacks.append(Stack(pieces, _clock_short(sum(medians.values()))))
        title = f"{num_rows:,} x {row['bytes'] // num_rows} bytes"
        columns.append(StackColumn(title, stacks))
    page = Page(WIDTH)
    put_title(page, "Where the time of a batch goes", "From the JSON of texts to the JSON of ids.")
    legend = {
        "others": "read and write JSON",
        "ours_too": "join the texts",
        "limit": "copy over PCIe",
        "ours": "compute the ids",
    }
    put_stacks(page, labels, columns, legend, 130)
    put_note(page, "Stages are measured apart; beside a bar stands their sum.")
    put_note(page, f"{'; '.join(map(_machine, documents))}. Every id was compared first.")
    sentences = [
        f"{column.title}, {label}: {stack.words}."
        for column in columns
        for label, stack in zip(labels, column.stacks, strict=True)
        if stack is not None
    ]
    return page.to_svg("Where the time of a batch goes", " ".join(sentences))


PICTURES: dict[str, Callable[[], str]] = {
    "throughput.svg": throughput,
    "dna.svg": dna,
    "http.svg": http,
    "training.svg": training,
    "dashboard.svg": dashboard,
    "genetic_bpe_gaps.svg": gaps,
    "stages.svg": stages,
}


def main() -> None:
    """Write all pictures."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name, picture in PICTURES.items():
        (IMAGES / name).write_text(picture())
        print(f"written: docs/images/{name}")


def _bus(rate: float) -> str:
    return f"PCIe {short(rate)}"


def _rate_of(rows: list[Row]) -> Measured | None:
    return gigas(rows[0]["bases"], rows[0]["seconds"]) if rows else None


def _growth(label: str, colour: str, rows: list[Row], shift: float = 0.0) -> Series:
    points = [(row["bases"], row["wall"]["median_s"]) for row in rows]
    return Series(label, colour, points, shift=shift)


def _thousands(value: float) -> str:
    return f"{value / 1000:.0f} k" if value >= 10_000 else f"{value / 1000:.1f} k"


def _clock(value: float) -> str:
    return f"{1000 * value:.0f} ms" if value < 1 else f"{value:.2f} s"


def _clock_short(value: float) -> str:
    """Format seconds with three digits, in a suitable unit."""
    return f"{short(1e6 * value)} µs" if value < 1e-3 else f"{short(1e3 * value)} ms"


def _panel(row: Row) -> Panel:
    """Make a panel of its measured lines, without those of limits and medians."""
    lines = {
        name: [(x, y) for x, y in points]
        for name, points in row["lines"].items()
        if any(y for _, y in points) and not name.endswith(("limit", "all", "p50"))
    }
    colours = [("ours", ""), ("limit", ""), ("others", ""), ("ours", "dashed"), ("limit", "dashed")]
    series = [
        Series(name, colour, points, kind)
        for (name, points), (colour, kind) in zip(sorted(lines.items()), colours, strict=False)
    ]
    most = max([1e-3, *(y for each in series for _, y in each.points)])
    unit = 10.0 ** math.floor(math.log10(most))
    top = next(step * unit for step in (1, 2, 4, 6, 8, 10) if step * unit >= most)
    ticks = {part * top / 2: _amount(part * top / 2, row["unit"]) for part in range(3)}
    return Panel(row["title"], series, ticks)


def _amount(value: float, unit: str) -> str:
    """Format an amount in one of Grafana's units, as short as possible."""
    if unit == "s":
        return f"{1000 * value:.3g} ms" if value < 1 else f"{value:.3g} s"
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {sign}{'' if unit == 'short' else 'B'}"
    return f"{value:.3g}"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:g} min" if seconds else "0"


def _machine(document: Row) -> str:
    return f"{card(document)}, {document['machine']['date'][:7]}"


def _described(unit: str, bars: list[Bar], columns: list[Column]) -> str:
    """Describe the figures, with a sentence for each column."""
    sentences = []
    for column in columns:
        parts = [
            f"{bar.label} {short(value.value)}"
            for bar, value in zip(bars, column.values, strict=True)
            if value is not None
        ]
        if column.limit:
            parts.append(column.limit_name)
        head = ", ".join(filter(None, (column.title, column.subtitle, unit)))
        sentences.append(f"{head}: {'; '.join(parts)}.")
    return " ".join(sentences)


if __name__ == "__main__":
    main()
