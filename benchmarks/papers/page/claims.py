"""Lists the papers' claims with our findings and a verdict that follows from the figures.

A claim whose figures are not there yet is "not measured".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from statistics import median

from benchmarks.papers.page import published as paper
from benchmarks.papers.page.results import Found, Results
from benchmarks.papers.page.tables import CONFIGURATIONS, NONE, markdown, rate_of, times
from benchmarks.report.charts import short
from benchmarks.report.results import select

VERIFIED, BETTER, NOT = "verified", "better", "not reproduced"
NOT_MEASURED, LESS = "not measured", "less"
LONGEST = 131_072
OURS, OPTIMIZED, BASELINE = "warptok GPU", "GPUTok optimized", "GPUTok baseline"
BLOCKS = (256, 512, 1024)
NEAR, WHOLE_TOKENS = 0.1, 5
GENETIC_COMPRESSION, FEWER_SPLITS = 3.1, 0.75


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of a paper.

    Attributes:
        words: the claim, in our words, with the paper's number.
        here: our finding.
        verdict: VERIFIED, BETTER, NOT or NOT_MEASURED, perhaps with a reason.
    """

    words: str
    here: str
    verdict: str


def absent(words: str, why: str) -> Claim:
    """Make a claim that was not measured."""
    return Claim(words, NONE, f"{NOT_MEASURED}: {why}")


def chosen(is_so: bool, otherwise: str = NOT) -> str:
    """Return the verdict of a condition."""
    return VERIFIED if is_so else otherwise


def gputok(results: Results) -> Iterator[Claim]:
    """Yield GPUTok's claims, each with our finding and a verdict."""
    found = results.table("sweep", "sweep")
    yield Claim(
        "the kernels give the ids of their CPU reference: merges without the pattern",
        "so do ours of its description, in three block sizes; the timed ids were compared",
        VERIFIED,
    )
    yield from _gputok_similarity(results)
    yield from _gputok_speed(found)
    yield from _gputok_kernels(found)
    minima = results.table("sweep", "local minima")
    words = "merging all local minima in a pass changes tokens for some inputs"
    if minima:
        most = max(row["share_different"] for row in minima.rows)
        least = min(row["similarity"] for row in minima.rows)
        here = f"up to {100 * most:.0f} % of chunks differ, similarity at least {least:.4f}"
        yield Claim(words, here, chosen(most > 0))
    else:
        yield absent(words, "no run that is kept has it")
    yield absent("the merge loop is over 100× faster than its CPU loop", "that loop is not public")
    yield absent("generated text is within 1 % of others", "no weights of GPT-2 are at hand")


def _gputok_similarity(results: Results) -> Iterator[Claim]:
    found = results.table("similarity", "similarity")
    words = "a drop-in replacement: the same tokens as GPT-2's on WikiText, within 1 %"
    if not found:
        yield absent(words, "no run yet")
        return
    different = min(row["different_whole"] for row in found.rows)
    similar = [row["similarity_whole"] for row in found.rows]
    share = "all" if different == 1 else f"at least {100 * different:.0f} % of the"
    here = (
        f"without the pattern {share} windows have other ids, "
        f"similarity {min(similar):.3f} to {max(similar):.3f}; warptok's ids are GPT-2's"
    )
    yield Claim(words, here, NOT if different > 0 else VERIFIED)


def _gputok_speed(found: Found) -> Iterator[Claim]:
    shape = {"tokens": LONGEST}
    said = paper.GPUTOK_LATENCY[LONGEST]
    for way, name, ratio, slow_ms in (
        ("tiktoken", "tiktoken", 1.7, said.tiktoken),
        ("HF tokenizers", "Hugging Face", 7.6, said.hugging_face),
    ):
        words = (
            f"at 131,072 tokens {ratio}× as fast as {name} "
            f"(its Table 1 has {short(slow_ms / said.optimized)}×)"
        )
        slow = {**shape, "way": way}
        theirs = found.ratio(slow, {**shape, "way": OPTIMIZED})
        ours = found.ratio(slow, {**shape, "way": OURS})
        if theirs is None or ours is None:
            yield absent(words, "no run that is kept has it")
            continue
        here = f"GPUTok's kernel {times(theirs)}, warptok {times(ours)}"
        yield Claim(
            words, here, f"{chosen(theirs >= ratio)}; warptok: {BETTER if ours > ratio else LESS}"
        )
    words = "faster than tiktoken from about 2,000 tokens on"
    theirs_from, ours_from = _first_faster(found, OPTIMIZED), _first_faster(found, OURS)
    if not select(found.rows, way=OURS):
        yield absent(words, "no run that is kept has it")
        return
    here = f"GPUTok's kernel {theirs_from}, warptok {ours_from}"
    yield Claim(words, here, chosen(theirs_from == "from 2,048 on"))


def _first_faster(found: Found, way: str) -> str:
    """Return the shortest length from which on a way is faster than tiktoken."""
    faster_from = None
    for tokens in dict.fromkeys(row["tokens"] for row in found.rows):
        ratio = found.ratio({"tokens": tokens, "way": "tiktoken"}, {"tokens": tokens, "way": way})
        if ratio is None:
            continue
        if ratio <= 1:
            faster_from = None
        elif faster_from is None:
            faster_from = tokens
    return "at no length" if faster_from is None else f"from {faster_from:,} on"


def _gputok_kernels(found: Found) -> Iterator[Claim]:
    shape = {"tokens": LONGEST}
    words = "the optimized kernel is 9 % faster than the baseline"
    ratios = [
        found.ratio(
            {**shape, "way": f"{BASELINE}, {threads} threads, kernel"},
            {**shape, "way": f"{OPTIMIZED}, {threads} threads, kernel"},
        )
        for threads in BLOCKS
    ]
    known = [ratio for ratio in ratios if ratio is not None]
    if known:
        shown = ", ".join(f"{100 * (ratio - 1):+.0f} %" for ratio in known)
        here = f"{shown} with 256, 512 and 1,024 threads at 131,072 tokens"
        yield Claim(words, here, chosen(max(known) >= 1.09))
    else:
        yield absent(words, "no run that is kept has it")
    words = "70 to 80 % of the time in CUDA calls is memory allocation"
    slow, fast = {**shape, "way": OPTIMIZED}, {**shape, "way": f"{OPTIMIZED}, pooled memory"}
    ratio = found.ratio(slow, fast)
    if ratio is None:
        yield absent(words, "no run that is kept has it")
        return
    share = 100 * (1 - 1 / ratio)
    here = f"a call without a pool of memory is {share:.0f} % allocation, at 131,072 tokens"
    yield Claim(words, here, f"{chosen(share >= 70)}: the share of a call, not of CUDA calls")


def blockbpe(results: Results) -> Iterator[Claim]:
    """Yield BlockBPE's claims, each with our finding and a verdict."""
    quality = results.table("quality", "quality")
    words = "without the pattern, ids of GSM8K have a similarity of 0.989 (Llama 3.1)"
    rows = [row for row in quality.rows if "GSM8K" in row["text"]]
    llama, gpt2 = select(rows, vocabulary="llama3"), select(rows, vocabulary="gpt2")
    if llama and gpt2:
        similar = llama[0]["similarity"]
        here = (
            f"{similar:.3f}, {100 * llama[0]['share_different']:.0f} % of questions have other "
            f"ids; of GPT-2's {100 * gpt2[0]['share_different']:.0f} %"
        )
        yield Claim(words, here, chosen(abs(similar - 0.989) < 0.01))
    else:
        yield absent(words, "no run yet")
    yield absent(
        "accuracy of GSM8K falls from 0.781 to 0.224, of MMLU from 0.692 to 0.681",
        "no model's weights are at hand",
    )
    yield Claim(
        'in GPT-2 "...." and "1000" are split otherwise without the pattern',
        "each is one token in both; what differs are `'s` after a blank and two line ends",
        NOT,
    )
    grid = results.table("grid", "grid")
    yield from _block_sizes(grid)
    yield from _block_throughput(grid)
    yield absent("the pattern is up to 75 % of the time on CPUs", "libraries do not time it apart")


def _block_sizes(grid: Found) -> Iterator[Claim]:
    for words, shapes, expected in (
        (
            "few long texts (64 × 2,048 and 4,096) are fastest with 1,024 threads",
            ((64, 2048), (64, 4096)),
            1024,
        ),
        (
            "many short texts (1,024 × 128 and 256) are fastest with 256 threads",
            ((1024, 128), (1024, 256)),
            256,
        ),
    ):
        best = [_best_block(grid, *shape) for shape in shapes]
        if None in best:
            yield absent(words, "no run that is kept has it")
            continue
        here = " and ".join(f"{threads:,}" for threads in best if threads) + " threads are fastest"
        yield Claim(words, here, chosen(all(threads == expected for threads in best)))


def _best_block(grid: Found, batch: int, length: int) -> int | None:
    seconds = {
        threads: grid.seconds(batch=batch, length=length, way=f"BlockBPE, {threads} threads")
        for threads in BLOCKS
    }
    known = {threads: found.value for threads, found in seconds.items() if found is not None}
    return min(known, key=known.__getitem__) if known else None


def _block_throughput(grid: Found) -> Iterator[Claim]:
    shapes = [
        {"batch": batch, "length": length}
        for batch, length in dict.fromkeys((row["batch"], row["length"]) for row in grid.rows)
        if batch >= 256
    ]
    for way, name, said in (("tiktoken", "tiktoken", 2.0), ("HF tokenizers", "Hugging Face", 2.5)):
        words = f"faster than {name} in all batches of 256 to 1,024, up to {said}×"
        theirs = [*_ratios(grid, shapes, way, _blocks())]
        ours = [*_ratios(grid, shapes, way, (OURS,))]
        if not theirs or not ours:
            yield absent(words, "no run that is kept has it")
            continue
        here = (
            f"BlockBPE {times(min(theirs))} to {times(max(theirs))}, "
            f"warptok {times(min(ours))} to {times(max(ours))}, median {times(median(ours))}"
        )
        verdict = chosen(min(theirs) > 1 and max(theirs) >= said)
        yield Claim(words, here, f"{verdict}; warptok: {BETTER if min(ours) > said else LESS}")


def _blocks() -> tuple[str, ...]:
    return tuple(f"BlockBPE, {threads} threads, host to host" for threads in BLOCKS)


def _ratios(
    grid: Found, shapes: Iterable[dict[str, int]], slow: str, ways: tuple[str, ...]
) -> Iterator[float]:
    """Yield for each shape how many times faster the best of some ways is."""
    for shape in shapes:
        found = [grid.ratio({**shape, "way": slow}, {**shape, "way": way}) for way in ways]
        known = [ratio for ratio in found if ratio is not None]
        if known:
            yield max(known)


def dnatok(results: Results) -> Iterator[Claim]:
    """Yield DNATok's claims, each with our finding and a verdict."""
    yield from _dnatok_encode(results.table("encode", "encode"))
    transfer = results.table("transfer", "transfer")
    words = "int32 staging copies 1.3 to 1.9 times as many ids a second as HF native"
    ratios = [
        transfer.ratio(
            {"figure": name, "way": "HF native"}, {"figure": name, "way": "DNATok staging i32"}
        )
        for name in CONFIGURATIONS
    ]
    known = [ratio for ratio in ratios if ratio is not None]
    if known:
        here = f"{times(min(known))} to {times(max(known))} from ordinary memory"
        yield Claim(words, here, chosen(max(known) >= 1.3))
    else:
        yield absent(words, "no run that is kept has it")
    yield from _dnatok_streams(results.table("stream", "stream"))
    yield from _dnatok_scenarios(results.table("scenarios", "scenarios"))
    yield Claim(
        "ids are preserved by construction",
        "here they are compared; of the published code the pipelined path mixes rows from the "
        "third micro-batch on, and letters without an id get N's",
        BETTER,
    )
    yield Claim(
        "future work: decoding and augmentation on the GPU",
        "`decode`, crops, noise and the other strand run there ([python.md](python.md))",
        BETTER,
    )


def _dnatok_encode(found: Found) -> Iterator[Claim]:
    words = "encodes 84 to 95 times as fast as Hugging Face's tokenizer (Table S1)"
    rows = {
        way: [found.rate(figure=name, way=way) for name in CONFIGURATIONS]
        for way in (
            "DNATok staging i64",
            "HF native (Python characters)",
            "a dict in Python",
            "warptok CPU",
        )
    }
    staged, native = rows["DNATok staging i64"], rows["HF native (Python characters)"]
    plain, ours = rows["a dict in Python"], rows["warptok CPU"]
    ratios = [a.value / b.value for a, b in zip(staged, native, strict=True) if a and b]
    beside = [a.value / b.value for a, b in zip(staged, plain, strict=True) if a and b]
    better = [a.value / b.value for a, b in zip(ours, staged, strict=True) if a and b]
    if not ratios or not beside or not better:
        yield absent(words, "transformers was not installed")
        return
    here = (
        f"{times(min(ratios))} to {times(max(ratios))} of transformers' tokenizer in Python, "
        f"{times(min(beside))} to {times(max(beside))} of a dict in Python"
    )
    yield Claim(words, here, f"{chosen(max(ratios) >= 84)}: the baseline is what is slow")
    words = "2.0 to 2.2 × 10⁸ ids a second, on the host"
    here = f"DNATok's path {rate_of(staged[0])} M/s, warptok's CPU engine {rate_of(ours[0])} M/s"
    yield Claim(words, here, BETTER if min(better) > 1 else NOT)
    words = "the same, with the GPU: not in the paper, whose look-up is NumPy's"
    kernels = found.rate(figure="standard", way="warptok GPU, kernels")
    pinned = found.rate(figure="standard", way="warptok GPU, pinned bytes to ids")
    if kernels is None:
        yield absent(words, "no run that is kept has it")
        return
    here = f"{rate_of(kernels)} M/s on the device, {rate_of(pinned)} M/s from pinned bytes"
    yield Claim(words, here, BETTER)


def _dnatok_streams(found: Found) -> Iterator[Claim]:
    words = "streams 1.27 to 1.84 × 10⁸ ids a second to embeddings"
    baseline = found.rate(figure="standard", way="baseline")
    ours = found.rate(figure="standard", way="bytes")
    if baseline is None or ours is None:
        yield absent(words, "no run that is kept has it")
    else:
        here = f'path "ids" {rate_of(baseline)} M/s, path "bytes" {rate_of(ours)} M/s'
        yield Claim(words, here, BETTER if ours.value > 1.84e8 else NOT)
    for name, way, said in (
        ("standard", "overlap only", 0.97),
        ("standard", "int32 only", 1.03),
        ("large batch", "overlap only", 1.06),
        ("long", "overlap only", 1.06),
    ):
        ratio = found.ratio({"figure": name, "way": "baseline"}, {"figure": name, "way": way})
        words = f"{way}, {CONFIGURATIONS[name]}: {said}× of the baseline"
        if ratio is None:
            yield absent(words, "no run that is kept has it")
        else:
            yield Claim(words, times(ratio), chosen(abs(ratio - said) <= NEAR))


def _dnatok_scenarios(found: Found) -> Iterator[Claim]:
    for scenario, (low, high) in paper.DNATOK_SCENARIOS.items():
        words = f"real models, {scenario}: {low:g} to {high:g} times as fast"
        rows = select(found.rows, scenario=scenario)
        ratios: list[float] = []
        whole: list[float] = []
        for row in rows:
            baseline, _, kind = row["way"].rpartition(", ")
            if baseline in ("", "warptok"):
                continue
            shape = {"model": row["model"], "scenario": scenario}
            ratio = found.ratio({**shape, "way": row["way"]}, {**shape, "way": f"warptok, {kind}"})
            if ratio is not None:
                (ratios if kind == "ids" else whole).append(ratio)
        if not ratios or not whole:
            yield absent(words, "no run that is kept has it")
            continue
        here = (
            f"ids {times(min(ratios))} to {times(max(ratios))}, "
            f"with a small model {times(min(whole))} to {times(max(whole))}"
        )
        yield Claim(words, here, f"{chosen(max(ratios) >= low)} for ids; other models and shapes")


def mtdna(results: Results) -> Iterator[Claim]:
    """Yield the claims of the mtDNA document, each with our finding and a verdict."""
    facts = {row["fact"]: row["value"] for row in results.table("windows", "facts").rows}
    for fact, said in paper.MTDNA_FACTS.items():
        words = f"{fact}: {said:,}"
        if fact in facts:
            yield Claim(words, f"{facts[fact]:,}", chosen(facts[fact] == said))
        else:
            yield absent(words, "no run yet")
    found = results.table("statistics", "statistics").rows
    for words, measure, is_so in (
        (f"{paper.MTDNA_SEEN:,} of 4,096 k-mers occur", "seen", _is_seen),
        (f"{paper.MTDNA_TOKENS:,} tokens a genome, mean", "mean_tokens", _has_tokens),
        ("`[UNK]` is below 0.1 % of tokens", "unknown_share", _is_known),
    ):
        if not found:
            yield absent(words, "no run yet")
            continue
        values = [float(row[measure]) for row in found]
        here = f"{min(values):,.6g} to {max(values):,.6g} in {len(found)} sets of genomes"
        yield Claim(words, here, chosen(all(map(is_so, values)), f"{NOT}: other, fewer genomes"))


def _is_seen(value: float) -> bool:
    return value == paper.MTDNA_SEEN


def _has_tokens(value: float) -> bool:
    return abs(value - paper.MTDNA_TOKENS) < WHOLE_TOKENS


def _is_known(value: float) -> bool:
    return value < paper.MTDNA_UNKNOWN


WAYS = ("all", "distinct", "all, measured on distinct")


def _by_way(results: Results, name: str, measure: str) -> list[float]:
    """Return a measure of GeneticBPE's motifs in the order of WAYS; [] where one is missing."""
    rows = select(results.table("motifs", "motifs").rows, tokenizer=name)
    found = {row["sequences"]: row[measure] for row in rows}
    return [found[way] for way in WAYS] if {*WAYS} <= found.keys() else []


def _join_figures(values: Iterable[str]) -> str:
    """Join the figures of WAYS, in their order."""
    return "; ".join(f"{value} ({way})" for value, way in zip(values, WAYS, strict=True))


def geneticbpe(results: Results) -> Iterator[Claim]:
    """Yield GeneticBPE's claims on motifs and compression, each with a verdict."""
    names = ("BPE", "GeneticBPE (λ = 1)", "GeneticBPE", "GeneticBPE (λ = 5)", "GeneticBPE (1024)")
    plain, weak, genetic, strong, large = (_by_way(results, name, "distortion") for name in names)
    words = "distortion falls from 0.25 (BPE) to 0.05"
    if not (plain and weak and genetic and strong and large):
        yield absent(words, "no run yet")
        return
    pairs = [*zip(plain, genetic, strict=True)]
    falls = [after < before for before, after in pairs]
    lower = "lower on distinct sequences only" if falls == [False, True, True] else "lower"
    here = _join_figures(f"{before:.3f} to {after:.3f}" for before, after in pairs)
    yield Claim(words, here, f"{lower}; 0.05 {NOT}")
    triples = [*zip(weak, genetic, strong, strict=True)]
    best = [min(triple) == triple[1] for triple in triples]
    verdict = chosen(all(best), f"{VERIFIED} in {sum(best)} of {len(best)} ways")
    here = _join_figures(f"{low:.3f}, {middle:.3f}, {high:.3f}" for low, middle, high in triples)
    yield Claim("of λ = 1, 2.5 and 5 the distortion is least at 2.5", here, verdict)
    further = all(after < before for before, after in zip(genetic, large, strict=True))
    here = _join_figures(f"{value:.3f}" for value in large)
    yield Claim("1,024 ids lower it further, to 0.04", here, f"{chosen(further)}; 0.04 {NOT}")
    yield from _genetic_tokens(results)


def _genetic_tokens(results: Results) -> Iterator[Claim]:
    """Yield GeneticBPE's claims on compression and split motifs, each with a verdict."""
    compression = _by_way(results, "GeneticBPE", "compression")
    is_near = any(abs(value - GENETIC_COMPRESSION) < NEAR for value in compression[1:])
    here = _join_figures(f"{value:.2f}" for value in compression)
    yield Claim("compression is 3.1", here, f"{chosen(is_near)} on distinct sequences")
    splits = zip(
        _by_way(results, "BPE", "split_rate"),
        _by_way(results, "GeneticBPE", "split_rate"),
        strict=True,
    )
    less = [1 - after / before for before, after in splits]
    here = _join_figures(f"{100 * share:.0f} %" for share in less)
    yield Claim("80 % fewer motifs are split than by BPE", here, chosen(max(less) >= FEWER_SPLITS))


def claims_table(claims: Iterable[Claim]) -> str:
    """Write claims as a table."""
    rows = [(claim.words, claim.here, claim.verdict) for claim in claims]
    return markdown(("claim", "here", "verdict"), rows, left=3)


CLAIMS: dict[str, Callable[[Results], Iterator[Claim]]] = {
    "gputok claims": gputok,
    "blockbpe claims": blockbpe,
    "dnatok claims": dnatok,
    "mtdna claims": mtdna,
    "geneticbpe claims": geneticbpe,
}
