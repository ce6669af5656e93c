"""The published numbers of the papers' tables, for comparison with the measured ones.

Those of GeneticBPE are in benchmarks/training/mirna/published.py.
"""

from __future__ import annotations

from typing import NamedTuple


class Latency(NamedTuple):
    """A row of GPUTok's Table 1, in ms."""

    hugging_face: float
    tiktoken: float
    cpu: float
    baseline: float
    optimized: float


class Speedup(NamedTuple):
    """A row of GPUTok's Table 2: the optimized kernel beside others, as printed."""

    cpu: float
    tiktoken: float
    hugging_face: float


GPUTOK_LATENCY = {
    256: Latency(4.21, 1.92, 12.84, 5.77, 4.98),
    1024: Latency(12.7, 6.32, 48.5, 10.9, 9.42),
    4096: Latency(49.4, 22.1, 189.2, 18.3, 14.5),
    16_384: Latency(201, 91.3, 749.9, 29.5, 24.1),
    131_072: Latency(1673, 598.1, 6143, 89.3, 53.4),
}
GPUTOK_SPEEDUP = {
    256: Speedup(2.58, 0.38, 0.91),
    1024: Speedup(5.15, 0.67, 1.35),
    4096: Speedup(13.0, 1.53, 3.41),
    16_384: Speedup(31.1, 3.79, 8.34),
    131_072: Speedup(115, 1.67, 31.3),
}
GPUTOK_MACHINE = "RTX 4070"


class Quality(NamedTuple):
    """A row of BlockBPE's Table 1: similarity, and accuracy with and without the pattern."""

    similarity: float
    accuracy: float
    accuracy_without: float


BLOCKBPE_QUALITY = {
    "MMLU": Quality(0.999, 0.692, 0.681),
    "GPQA": Quality(0.989, 0.295, 0.295),
    "GSM8K": Quality(0.989, 0.781, 0.224),
    "AGIEval": Quality(0.998, 0.410, 0.410),
}
BLOCKBPE_MACHINE = "H100, Xeon Platinum 8470"

# Tokens a second of DNATok's Table S1, by configuration and method.
DNATOK_ENCODE = {
    "standard": {
        "DNATok staging i64": 2.18e8,
        "DNATok encode i64": 2.18e8,
        "DNATok staging i32": 2.07e8,
        "HF native (Python characters)": 2.30e6,
    },
    "large batch": {
        "DNATok staging i64": 2.00e8,
        "DNATok encode i64": 1.98e8,
        "DNATok staging i32": 1.93e8,
        "HF native (Python characters)": 2.28e6,
    },
    "long": {
        "DNATok staging i64": 2.03e8,
        "DNATok encode i64": 2.05e8,
        "DNATok staging i32": 2.01e8,
        "HF native (Python characters)": 2.34e6,
    },
}
DNATOK_TRANSFER = {
    "standard": {
        "DNATok staging i64": 6.37e9,
        "DNATok encode i64": 4.79e9,
        "DNATok staging i32": 7.61e9,
        "HF native": 5.78e9,
    },
    "large batch": {
        "DNATok staging i64": 6.04e9,
        "DNATok encode i64": 6.51e9,
        "DNATok staging i32": 1.12e10,
        "HF native": 6.04e9,
    },
    "long": {
        "DNATok staging i64": 6.67e9,
        "DNATok encode i64": 6.92e9,
        "DNATok staging i32": 1.10e10,
        "HF native": 6.39e9,
    },
}
DNATOK_STREAM = {
    "standard": {"baseline": 1.32e8, "overlap only": 1.27e8, "int32 only": 1.36e8, "both": 1.28e8},
    "large batch": {"baseline": 1.61e8, "overlap only": 1.71e8},
    "long": {"baseline": 1.55e8, "overlap only": 1.64e8},
}
# Speedups of section 3.6, least and most over the models.
DNATOK_SCENARIOS = {
    "short": (3.88, 6.98),
    "latency": (1.34, 3.30),
    "throughput": (19.96, 25.13),
    "long": (18.37, 40.04),
    "ultra-long": (11.09, 37.81),
}
DNATOK_MACHINE = "H200, 24 threads"

MTDNA_FACTS = {
    "ids of the vocabulary": 4102,
    "id of AAAAAA": 6,
    "id of TTTTTT": 4101,
    "id of ACGTAN": 3,
    "bases of the genome": 16_569,
    "windows of the genome": 65,
    "tokens of a window": 512,
    "largest position": 16_568,
}
MTDNA_SEEN, MTDNA_TOKENS, MTDNA_UNKNOWN = 4068, 16_564, 0.001
