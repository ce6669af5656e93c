"""Writes the results of `genetic_bpe_motifs` as tables, with the paper's figures in brackets.

This module reads only the document of results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import mean, stdev
from typing import Any

from benchmarks.training.mirna import published as paper
from benchmarks.training.mirna.corpora import ALL, DISTINCT, TRANSFERRED
from benchmarks.training.mirna.equations import (
    BETAS,
    LONGEST_MOTIF,
    capacity,
    domain_term,
    objective,
)
from benchmarks.training.mirna.gaps import pearson
from benchmarks.training.mirna.matures import TASKS
from benchmarks.training.mirna.runs import EVERYWHERE
from benchmarks.training.mirna.tables import markdown_table

Document = dict[str, Any]
WAYS = (ALL, DISTINCT, TRANSFERRED)
SIZE = 512
PRESERVING = "GeneticBPE, spans preserved"
CHARACTERS = "Char-Level"
COMPRESSIONS = (2.0, 3.1, 3.4, 3.8)
PAPER_SEQUENCES = 20_861
CORPUS = """
Related species share miRNAs letter by letter. On all sequences the most frequent ones become
tokens as a whole, which lifts the compression and hides what becomes of seeds; on distinct
sequences each counts once. The paper does not say whether its sequences are distinct.
"""
LOOKUPS = """
What needs no classifier gets so many held-out sequences right, after a random split of 80, 10 and
10 %: of all sequences most stand in training letter by letter, of distinct ones none. The
classifiers of [genetic_bpe.md](genetic_bpe.md) had all sequences; the paper's accuracies are there.
"""
SEEDS = """
Distortion is Equation 3 with k = 1, compression the C_T of Equation 4 (letters for each token of
a sequence, mean over sequences). "Transferred" is learnt from all sequences and measured on the
distinct ones. In brackets: the paper's figure.
"""
BANKS = """
Section 6.4 expects of an incomplete bank that it "might gracefully degrade towards that of
standard BPE in unannotated regions", and of a noisy one "a higher risk of negative impact"; it
has no figures. Ours are means ± standard deviations over {draws} draws. An incomplete bank lacks
a share of the different seeds; a noisy one holds as many false motifs beside all seeds, stretches
of seven letters behind base 8 that are no seed. By Equation 9 a seed counts at bases 2-8 and a
false motif anywhere; "spans preserved" makes the 256 most frequent motifs tokens.
"""
CHOICES = """
The tokenizer of the least distortion of those with a compression of at least c, of at most {size}
ids: of BPE and {grid} weights of Equation 9, of these and all tokenizers above, and of the six in
the paper's Table 1. It is the best of a list, not the minimum over all tokenizers.
"""
DISCREPANCY = """
Equation 7 has a motif discrepancy that the paper does not define. This is the total variation
distance of the frequencies of seeds, 0 to 1; the paper has no figure.
"""
EQUATIONS = """
Alpha is the longest motif, {alpha} letters, as in Equation 7. In brackets: the same terms from
the paper's own distortion and compression. A risk is at most 1, so Equation 7 says nothing from a
distortion of 1/{alpha} on: that leaves single letters and GeneticBPE of the paper's Table 1, and
none of ours. Equation 6 is a factor that follows from the compression alone. Neither bound is
proved in the paper, and neither was tested here.
"""
FIGURE = """
The paper's Figure 2 is an illustration with coefficients "chosen for visualisation only". These
are points: distortion (of all sequences, in the classifiers' runs) and gap in per cent, which
genetic_bpe measured on {date}; r in brackets is of the paper's Table 1. Many models of BurBary on
human sequences give one class ([genetic_bpe.md](genetic_bpe.md)), and their gap says little.
"""


def tables(document: Document) -> str:
    """Write the tables as Markdown."""
    about = document["machine"]
    head = (
        f"Measured on {about['cores']} cores of {about['cpu']}, "
        f"{about['date'][:10]}, commit {about['commit'][:9]}, by `python -m "
        "benchmarks.training.genetic_bpe_motifs --data FOLDER --out benchmarks/results/training`; "
        "no GPU."
    )
    parts = [
        "# GeneticBPE's motifs: all and distinct sequences, banks, equations",
        head,
        _corpus(document),
        _lookups(document),
        _seeds(document),
        _banks(document),
        _least_distortion(document),
        _terms(document),
        _discrepancies(document),
        _gaps(document),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _corpus(document: Document) -> str:
    corpora, whole = document["corpora"], document["whole"]
    rows: list[tuple[str, Callable[[str], str], str]] = [
        ("sequences", lambda way: f"{corpora[way]['sequences']:,}", f"{PAPER_SEQUENCES:,}"),
        ("letters", lambda way: f"{corpora[way]['letters']:,}", ""),
        ("different seeds (bases 2-8)", lambda way: f"{corpora[way]['seeds']:,}", ""),
        (
            f"BPE of {SIZE} ids: tokens as long as a mature, 18 letters and more",
            lambda way: str(whole[way]["long_tokens"]),
            "",
        ),
        (
            f"BPE of {SIZE} ids: tokens that are a mature, letter by letter",
            lambda way: str(whole[way]["whole_matures"]),
            "",
        ),
        (
            f"BPE of {SIZE} ids: sequences that are one token, %",
            lambda way: f"{100 * whole[way]['one_token']:.1f}",
            "",
        ),
    ]
    cells = [(label, value(ALL), value(DISTINCT), published) for label, value, published in rows]
    table = markdown_table(("", "all", "distinct", "the paper"), cells)
    return "## The sequences\n\n" + CORPUS.strip() + "\n\n" + table


def _lookups(document: Document) -> str:
    """Write the accuracy of look-ups alone on the held-out sequences."""
    shown = ("majority", "same", "seed")
    rows = []
    for way, found in document["lookups"].items():
        for row in found:
            if row["test"] == "own" and row["domain"] == EVERYWHERE:
                cells = [f"{100 * mean(row[key]):.1f}" for key in shown]
                rows.append((f"{row['task']}, {way}", *cells))
    head = (
        "task, sequences",
        "always the largest class, %",
        "same sequence in training, %",
        "its seed looked up, %",
    )
    return LOOKUPS.strip() + "\n\n" + markdown_table(head, rows)


def _seeds(document: Document) -> str:
    rows = []
    for name, found in document["tokenizers"].items():
        distortion, compression = _published(name)
        rows.append(
            (
                name,
                *(f"{found[way]['distortion'][0]:.3f}" for way in WAYS),
                _number(distortion),
                *(f"{found[way]['mean_compression']:.2f}" for way in WAYS),
                _number(compression),
            )
        )
    head = (
        "tokenizer",
        "distortion, all",
        "distinct",
        "transferred",
        "the paper",
        "compression, all",
        "distinct",
        "transferred",
        "the paper",
    )
    return "## Seeds, all and distinct\n\n" + SEEDS.strip() + "\n\n" + markdown_table(head, rows)


def _published(name: str) -> tuple[float | None, float | None]:
    """Return the paper's distortion and compression, or None."""
    if name in paper.OVERALL:
        *_, distortion, compression, _ = paper.OVERALL[name]
        return distortion, compression
    if name in paper.ABLATION:
        *_, distortion, compression = paper.ABLATION[name]
        return distortion, compression
    return None, None


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _banks(document: Document) -> str:
    draws = 1 + max(row["draw"] for rows in document["banks"].values() for row in rows)
    incomplete, noisy = [], []
    for way, rows in document["banks"].items():
        for key, group in _groups(rows).items():
            rule, bank, share = key
            first = (f"{way}, {rule}", f"{100 * share:.0f}")
            whole = (_spread(group, "distortion", 3), _spread(group, "compression", 2))
            if bank != "noisy":
                parts = [_spread(group, part, 3) for part in ("known", "unknown", "unknown_bpe")]
                incomplete.append((*first, whole[0], *parts, whole[1]))
            if bank != "incomplete":
                parts = [_spread(group, part, 3) for part in ("false", "false_before")]
                noisy.append((*first, whole[0], *parts, whole[1]))
        found = document["tokenizers"]["BPE"][way]
        bpe = (f"{found['distortion'][0]:.3f}", f"{found['mean_compression']:.2f}")
        incomplete.append((f"{way}, BPE", "100", bpe[0], "", bpe[0], bpe[0], bpe[1]))
    heads = (
        (
            "sequences, rule",
            "seeds left out, %",
            "distortion",
            "of known seeds",
            "of unknown ones",
            "of these by BPE",
            "compression",
        ),
        (
            "sequences, rule",
            "false motifs, % of the seeds",
            "distortion",
            "of false motifs",
            "of these without noise",
            "compression",
        ),
    )
    return "\n\n".join(
        (
            "## Incomplete and noisy banks (section 6.4)",
            BANKS.strip().format(draws=draws),
            markdown_table(heads[0], incomplete),
            markdown_table(heads[1], noisy),
        )
    )


def _groups(rows: Iterable[Document]) -> dict[tuple[str, str, float], list[Document]]:
    """Group rows by rule, kind of bank and share, in their order."""
    found: dict[tuple[str, str, float], list[Document]] = {}
    for row in rows:
        found.setdefault((row["rule"], row["bank"], row["share"]), []).append(row)
    return found


def _spread(rows: list[Document], key: str, digits: int) -> str:
    if key not in rows[0]:
        return ""
    values = [row[key] for row in rows]
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{spread}"


def _least_distortion(document: Document) -> str:
    published = [
        {"name": name, "distortion": distortion, "compression": compression}
        for name, (*_, distortion, compression, _) in paper.OVERALL.items()
    ]
    columns = []
    for way in (ALL, DISTINCT):
        weights = [*document["candidates"][way], *_measured(document, way, ("BPE",))]
        columns += [weights, [*weights, *_measured(document, way, document["tokenizers"])]]
    rows = [
        (f"{least:g}", *(_best(some, least) for some in (*columns, published)))
        for least in COMPRESSIONS
    ]
    numbers = {"grid": len(document["candidates"][ALL]), "size": SIZE}
    head = (
        "c",
        "all, Equation 9",
        "all, any",
        "distinct, Equation 9",
        "distinct, any",
        "the paper",
    )
    return "\n\n".join(
        (
            "## Equation 5: least distortion with enough compression",
            CHOICES.strip().format(**numbers),
            markdown_table(head, rows),
        )
    )


def _measured(document: Document, way: str, names: Iterable[str]) -> list[Document]:
    """List distortion and compression of tokenizers that have at most SIZE ids."""
    found = {name: document["tokenizers"][name][way] for name in names}
    return [
        {
            "name": name,
            "distortion": each["distortion"][0],
            "compression": each["mean_compression"],
        }
        for name, each in found.items()
        if each["num_ids"] <= SIZE
    ]


def _best(choices: list[Document], least: float) -> str:
    possible = [each for each in choices if each["compression"] >= least]
    if not possible:
        return "none"
    best = min(possible, key=lambda each: each["distortion"])
    return f"{best['name']}: {best['distortion']:.3f} at {best['compression']:.2f}"


def _terms(document: Document) -> str:
    rows = []
    for name in (*paper.OVERALL, PRESERVING):
        if name not in document["tokenizers"]:
            continue
        found = document["tokenizers"][name]
        distortion, compression = _published(name)
        for way in (ALL, DISTINCT):
            ours = _measures(found[way]["distortion"][0], found[way]["mean_compression"])
            cells = [f"{value:.2f}" for value in ours]
            if distortion is not None and compression is not None:
                theirs = _measures(distortion, compression)
                cells = [f"{cell} ({value:.2f})" for cell, value in zip(cells, theirs, strict=True)]
            rows.append((f"{name}, {way}", *cells))
    head = (
        "tokenizer, sequences",
        "Equation 6: C_T^(-1/2)",
        "Equation 7: alpha delta",
        *(f"Equation 8, beta = {beta:g}" for beta in BETAS),
    )
    words = EQUATIONS.strip().format(alpha=LONGEST_MOTIF)
    return "## Equations 6 to 8\n\n" + words + "\n\n" + markdown_table(head, rows)


def _measures(distortion: float, compression: float) -> tuple[float, ...]:
    return (
        capacity(compression),
        domain_term(distortion),
        *(objective(distortion, compression, beta) for beta in BETAS),
    )


def _discrepancies(document: Document) -> str:
    rows = [
        (f"human to {name}", f"{distance:.3f}")
        for name, distance in document["discrepancies"].items()
    ]
    return DISCREPANCY.strip() + "\n\n" + markdown_table(("domains", "discrepancy"), rows)


def _gaps(document: Document) -> str:
    rows = []
    for name in dict.fromkeys(point["tokenizer"] for point in document["gaps"]):
        points = {point["task"]: point for point in document["gaps"] if point["tokenizer"] == name}
        published = points[TASKS[0]]["published"]
        cells = [_bracketed(f"{points[TASKS[0]]['distortion']:.3f}", published, "distortion")]
        for task in TASKS:
            point = points.get(task)
            shown = "" if point is None else f"{point['gap']:.1f}"
            cells.append(_bracketed(shown, point and point["published"], "gap"))
        rows.append((name, *cells))
    for label, left_out in (("", ()), (f" without {CHARACTERS}", (CHARACTERS,))):
        kept = [each for each in document["gaps"] if each["tokenizer"] not in left_out]
        cells = [_correlations(kept, task) for task in TASKS]
        rows.append((f"Pearson's r of distortion and gap{label}", "", *cells))
    head = ("tokenizer", "distortion", *(f"gap of {task}" for task in TASKS))
    words = FIGURE.strip().format(date=document["gaps_measured"])
    return "## Figure 2: distortion and gap\n\n" + words + "\n\n" + markdown_table(head, rows)


def _bracketed(shown: str, published: Document | None, key: str) -> str:
    return f"{shown} ({published[key]:g})" if published else shown


def _correlations(points: list[Document], task: str) -> str:
    """Write our correlation of a task, and the paper's in brackets."""
    own = [point for point in points if point["task"] == task]
    both = pearson(own), pearson(point["published"] for point in own if point["published"])
    shown = ["none" if value is None else f"{value:+.2f}" for value in both]
    return f"{shown[0]} ({shown[1]})"
