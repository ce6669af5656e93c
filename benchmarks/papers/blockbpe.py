"""BlockBPE: how ids change without the pattern (Table 1), and its grid (Figures 2 and 3).

Source: A. You, BlockBPE: Parallel BPE Tokenization, section 5.
"""

from __future__ import annotations

import json
import lzma
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from benchmarks.papers.edit_distance import edit_distance, similarity
from benchmarks.papers.kernels.block_merge import BLOCK_SIZES
from benchmarks.papers.kernels.merges_alone import Ids
from benchmarks.papers.session import Differs, Part, Row, Rows, Session
from benchmarks.papers.text_ways import OURS_KERNELS, TextWays
from benchmarks.support.timing import Run, clocked

BATCHES, LENGTHS = (64, 256, 1024), (128, 256, 512, 1024, 2048, 4096)
MAX_BYTES = 1 << 20  # Of a batch: the paper's grid has short texts in large batches.
EXCERPT = 2048
VOCABULARIES = {
    "gpt2": "vocab/gpt2/tokenizer.json.xz",
    "llama3": "vocab/llama3/tokenizer.json.xz",
}
WITHOUT_PATTERN = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": False,
}
KERNEL = "merge_every"


def documents(session: Session) -> Iterator[tuple[str, list[str]]]:
    """Yield the texts of the data folder, each as a list of documents."""
    if (text := session.text("gsm8k_test.jsonl")) is not None:
        questions = [json.loads(line)["question"] for line in text.splitlines()]
        yield "GSM8K, questions", questions
    if (text := session.text("war_and_peace.txt")) is not None:
        yield f"War and Peace, excerpts of {EXCERPT} characters", excerpts(text, EXCERPT)
    if (text := session.text("wikitext2_test.raw.txt")) is not None:
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith(" =")]
        yield "WikiText, paragraphs of the test split", lines
    if (text := session.text("pride_and_prejudice.txt")) is not None:
        lines = [line for line in text.splitlines() if line.strip()]
        yield "Pride and Prejudice, paragraphs", lines
    session.leave_out("MMLU, GPQA and AGIEval are not in the data folder")
    session.leave_out("accuracy of a model's answers: no model's weights are at hand")


def excerpts(text: str, size: int) -> list[str]:
    """Cut a text into excerpts of `size` characters; a shorter rest is left out."""
    return [text[begin : begin + size] for begin in range(0, len(text) - size + 1, size)]


def quality_rows(session: Session) -> Rows:
    """Compare ids with and without the pattern."""
    for name, file in VOCABULARIES.items():
        path = session.data / file
        if not path.is_file():
            session.leave_out(f"{file} is not in the data folder")
            continue
        split, alone = tokenizers_of(path)
        for text, parts in documents(session):
            yield compared(split, alone, parts) | {
                "table": "quality",
                "vocabulary": name,
                "text": text,
            }


def tokenizers_of(path: Path) -> tuple[Tokenizer, Tokenizer]:
    """Read a tokenizer.json, and read it again without its pattern."""
    document = json.loads(lzma.open(path).read())
    split = Tokenizer.from_str(json.dumps(document))
    alone = Tokenizer.from_str(json.dumps(document | {"pre_tokenizer": WITHOUT_PATTERN}))
    return split, alone


def compared(split: Tokenizer, alone: Tokenizer, texts: Sequence[str]) -> Row:
    """Compare the ids of two tokenizers, with and without the pattern, on documents."""

    def encoded(tokenizer: Tokenizer) -> list[list[int]]:
        rows = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [row.ids for row in rows]

    pairs = [*zip(encoded(split), encoded(alone), strict=True)]
    most = [max(len(first), len(second), 1) for first, second in pairs]
    distances = [edit_distance(first, second) for first, second in pairs]
    similarities = [
        similarity(first, second, len(text))
        for (first, second), text in zip(pairs, texts, strict=True)
    ]
    return {
        "documents": len(texts),
        "characters": sum(map(len, texts)),
        "ids": sum(len(first) for first, _ in pairs),
        "ids_without": sum(len(second) for _, second in pairs),
        "share_different": sum(map(bool, distances)) / len(texts),
        "similarity": statistics.mean(similarities),
        "similarity_of_ids": 1 - statistics.mean(map(_ratio, distances, most)),
        "least_similarity_of_ids": 1 - max(map(_ratio, distances, most)),
    }


def _ratio(distance: int, length: int) -> float:
    return distance / length


def grid_rows(session: Session) -> Rows:
    """Time batches of excerpts by the papers' kernel, by ours and by libraries."""
    text = session.text("war_and_peace.txt")
    if text is None:
        return
    ways = TextWays(session)
    # Excerpts of ASCII, so that characters are bytes.
    plain = text.encode("ascii", "ignore").decode()
    for length in LENGTHS:
        for batch in BATCHES:
            if batch * length > MAX_BYTES:
                continue
            texts = excerpts(plain, length)[:batch]
            texts = (texts * (batch // len(texts) + 1))[:batch]
            ids = ways.prove(texts)
            shape: Row = {"table": "grid", "batch": batch, "length": length}
            for name, found in session.in_turns(ways.runs(texts)).items():
                yield shape | {"way": name, "seconds": found}
            if session.gpu is not None:
                yield from _kernel_rows(session, ways, texts, ids, shape)


def _kernel_rows(
    session: Session, ways: TextWays, texts: list[str], ids: list[Ids], shape: Row
) -> Rows:
    """Time kernels alone, from text on the device to ids on the device."""
    encoded = [text.encode() for text in texts]
    placed = ways.kernels.put(encoded)
    expected = ways.merges_alone.encode(texts)
    runs: dict[str, Run] = {}
    for threads in BLOCK_SIZES:
        ways.kernels.launch(KERNEL, placed, threads)
        if ways.kernels.fetch(placed) != expected:
            raise Differs(f"{KERNEL} with {threads} threads has other ids than merges alone")
        runs[f"BlockBPE, {threads} threads"] = _timed(ways, placed, threads)
    for threads in BLOCK_SIZES:
        name = f"BlockBPE, {threads} threads, host to host"
        runs[name] = _timed_call(ways, encoded, threads)
    with ways.our_kernels(texts, ids) as ours:
        runs[OURS_KERNELS] = ours
        for name, found in session.in_turns(runs).items():
            yield shape | {"way": name, "seconds": found}


def _timed(ways: TextWays, placed: Any, threads: int) -> Run:
    return lambda: float(ways.kernels.seconds(KERNEL, placed, threads))


def _timed_call(ways: TextWays, encoded: list[bytes], threads: int) -> Run:
    return clocked(lambda: ways.kernels.encode(KERNEL, encoded, threads))


PARTS = (
    Part("quality", "blockbpe", "Table 1 (similarity of ids)", "cpu", 60, quality_rows),
    Part("grid", "blockbpe", "Figures 2 and 3", "both", 45, grid_rows),
)
