"""The figures of the GeneticBPE paper (tables 1-4, section 5.3), to stand beside ours."""

from __future__ import annotations

# Accuracy binary, multiclass; gap binary, multiclass; distortion; compression; preserved (%).
OVERALL = {
    "Char-Level": (84.2, 62.4, 8.9, 12.1, 0.00, 1.00, 100),
    "k-mer (3)": (85.1, 64.0, 9.4, 11.3, 0.17, 2.3, 83),
    "k-mer (4)": (85.6, 65.1, 8.7, 10.8, 0.15, 2.9, 85),
    "UnigramLM": (86.5, 66.7, 7.2, 9.9, 0.22, 3.0, 78),
    "BPE": (87.4, 67.9, 6.8, 9.4, 0.25, 3.4, 75),
    "GeneticBPE": (90.8, 71.2, 3.6, 6.2, 0.05, 3.1, 95),
}
# Accuracy, gap, distortion, compression; all binary.
ABLATION = {
    "BPE": (87.4, 6.8, 0.25, 3.4),
    "GeneticBPE (λ = 1)": (89.2, 4.3, 0.11, 3.2),
    "GeneticBPE": (90.8, 3.6, 0.05, 3.1),
    "GeneticBPE (λ = 5)": (89.4, 3.9, 0.06, 2.7),
    "GeneticBPE (1024)": (90.1, 3.9, 0.04, 3.8),
}
# Accuracy and gap for zebrafish, mouse, fly.
TRANSFER = {
    "Char-Level": (73.2, 10.7, 70.1, 13.8, 64.8, 19.1),
    "k-mer (3)": (78.0, 8.2, 74.0, 11.0, 68.0, 15.5),
    "k-mer (4)": (80.5, 7.5, 77.2, 10.2, 70.0, 15.0),
    "UnigramLM": (82.0, 6.5, 78.5, 9.0, 71.5, 13.5),
    "BPE": (79.2, 8.4, 75.5, 12.1, 69.0, 16.8),
    "GeneticBPE": (86.3, 3.8, 83.5, 5.6, 75.8, 8.9),
}
# Motif integrity (%), true positives (%), false negatives (%), split rate.
ERRORS = {
    "Char-Level": (100, 89.2, 10.8, 0.00),
    "k-mer (3)": (92.0, 90.1, 9.9, 0.12),
    "k-mer (4)": (93.5, 90.5, 9.5, 0.10),
    "UnigramLM": (80.2, 87.0, 13.0, 0.20),
    "BPE": (75.1, 85.5, 14.5, 0.25),
    "GeneticBPE": (95.3, 91.7, 8.3, 0.05),
}
MINUTES = {
    "Char-Level": 0.2,
    "k-mer (3)": 0.33,
    "k-mer (4)": 0.35,
    "UnigramLM": 2.1,
    "BPE": 1.8,
    "GeneticBPE": 4.7,
}
