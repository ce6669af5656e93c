"""Times `warptok corpus --ray` on 1 to 4 nodes of this machine, with the same work for each node.

The nodes share its cores, so tokens per second of CPU time are compared, not seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.corpus.files import write_jsonl
from benchmarks.support.machine import machine

ROOT = Path(__file__).parents[2]
FILES_PER_NODE = 4
STORE_BYTES = 80 << 20


def main() -> None:
    """Time all numbers of nodes, and write one JSON document."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.corpus.cluster", description=__doc__
    )
    parser.add_argument("--data", type=Path, required=True, help="FOLDER of benchmarks/README.md")
    parser.add_argument("--megabytes", type=int, default=200, help="for a node (default: 200)")
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where files are written (default: /tmp)")
    parser.add_argument("--out", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    with TemporaryDirectory(dir=arguments.folder) as name:
        rows = run(
            Path(name), arguments.data, arguments.megabytes, arguments.nodes, arguments.rounds
        )
    document = {
        "machine": machine(("numpy", "ray")),
        "megabytes_per_node": arguments.megabytes,
        "figures": summarize(rows),
        "rows": rows,
    }
    text = json.dumps(document, indent=2)
    if arguments.out is None:
        print(text)
    else:
        arguments.out.write_text(text + "\n")


def run(
    folder: Path, data: Path, megabytes: int, nodes: list[int], rounds: int
) -> list[dict[str, Any]]:
    """Time each number of nodes in turns; the first run of a cluster starts its processes."""
    first = folder / "0.jsonl"
    write_jsonl(first, data, megabytes * 10**6 // FILES_PER_NODE)
    files = [first]
    for number in range(1, max(nodes) * FILES_PER_NODE):
        files.append(folder / f"{number}.jsonl")
        os.link(first, files[-1])
    rows = []
    for _ in range(rounds):
        for num_nodes in nodes:
            given = files[: num_nodes * FILES_PER_NODE]
            rows.append({"nodes": num_nodes, **_time_cluster(given, num_nodes, folder / "out")})
    return rows


def _time_cluster(files: list[Path], num_nodes: int, out: Path) -> dict[str, Any]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": STORE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        for _ in range(num_nodes - 1):
            cluster.add_node(**node)
        command = [sys.executable, "-m", "service", "corpus", *map(str, files), "--out", str(out)]
        command += ["-v", "gpt2", "--append-eod", "--parts", str(len(files)), "--quiet", "--json"]
        command += ["--ray", cluster.address]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    finally:
        cluster.shutdown()
        shutil.rmtree(out, ignore_errors=True)
    figures = json.loads(done.stdout)
    names = ("tokens", "seconds", "cpu_seconds", "remote_cpu_seconds")
    return {name: figures[name] for name in names}


def summarize(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the best tokens per CPU second for each number of nodes, and the share of linear.

    `tokens_per_cpu_s` counts the parts and the command; `tokens_per_part_cpu_s` the parts alone.
    """
    figures: list[dict[str, Any]] = []
    for num_nodes in sorted({row["nodes"] for row in rows}):
        group = [row for row in rows if row["nodes"] == num_nodes]
        figure = {
            "nodes": num_nodes,
            "tokens_per_cpu_s": max(row["tokens"] / row["cpu_seconds"] for row in group),
            "tokens_per_part_cpu_s": max(
                row["tokens"] / row["remote_cpu_seconds"] for row in group
            ),
        }
        alone = figures[0] if figures else figure
        figure["share_of_linear"] = figure["tokens_per_part_cpu_s"] / alone["tokens_per_part_cpu_s"]
        figures.append(figure)
    return figures


if __name__ == "__main__":
    main()
