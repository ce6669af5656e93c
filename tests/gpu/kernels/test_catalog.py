"""The list of kernels is that of the sources; a name that two had would launch one for both."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from gpu.kernels.catalog import KERNELS, SOURCES, joined_source
from gpu.kernels.job import CUDA, JOB, TRAIN_JOB

DEFINED = re.compile(r"^KERNEL (?:\w+\([^)]*\) )*(\w+)\(", re.MULTILINE)
COMMENTED = re.compile(r"((?:^// .*\n)+)^KERNEL (?:\w+\([^)]*\) )*(\w+)\(", re.MULTILINE)
FIELDS = {*(JOB.names or ()), *(TRAIN_JOB.names or ())}


def test_every_kernel_of_a_module_is_listed_once():
    defined = {
        module: [name for file in files for name in DEFINED.findall((CUDA / file).read_text())]
        for module, files in SOURCES.items()
    }
    names = Counter(name for found in defined.values() for name in found)
    assert [name for name, number in names.items() if number > 1] == []
    listed = {name: kernel.module for name, kernel in KERNELS.items()}
    assert listed == {name: module for module, found in defined.items() for name in found}


@pytest.mark.parametrize("module", SOURCES)
def test_every_kernel_says_which_fields_it_reads_and_writes(module):
    """Check "work: fields -> fields. Needs: ... Ensures: ..." above each kernel.

    Kernels that differ by the bits of an id have one comment.
    """
    source = joined_source(module)
    comments = {name: text.replace("\n// ", " ") for text, name in COMMENTED.findall(source)}
    kernels = [name for name, kernel in KERNELS.items() if kernel.module == module]
    assert {re.sub(r"(?<=[a-z])(16|8)$", "", name) for name in kernels} == set(comments)
    group = "" if module == "training" else r"\w+\."
    for name, text in comments.items():
        said = re.fullmatch(r"// .+: ([\w, ]+) -> ([\w, ]+)\. Needs: .+\. Ensures: .+\.\s*", text)
        assert said, name
        for field in (word for words in said.groups() for word in words.split(", ")):
            used = re.search(rf"\bjob(\.|->){group}{field}\b", source)
            assert field == "tables" or (field in FIELDS and used), (name, field)
