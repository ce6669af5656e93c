"""Puts load on the service, and queries Prometheus for the panels of the Grafana dashboard.

    python -m benchmarks.service.dashboard --out benchmarks/results/service/dashboard.json

Prometheus reads /metrics of a service with two front ends; then it gets the queries of some
panels of deploy/grafana, as from Grafana. docs/images/dashboard.svg is drawn of the answers.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

from benchmarks.support.machine import machine
from benchmarks.support.open_loop import Client, Request, arrivals, json_request
from benchmarks.support.service_process import find_free_port, service_process
from service.security.api_keys import add_key
from service.security.rate_limits import Rates

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "dashboards" / "warptok.json"
PANELS = (
    "Requests by key",
    "Bytes by key",
    "Refused and failed by key",
    "Request time by vocabulary",
    "Requests by vocabulary",
    "Bytes by vocabulary",
    "Connections",
    "Wait of chats for their template, p99",
    "Store",
)
SCRAPE_S = 1
STEP_S = 2
INTERVAL_S = 10  # What Grafana puts in place of $__rate_interval.
WORDS = "the quick brown fox jumps over a lazy dog while it rains in Spain".split()
TEMPLATE = """{% for _ in range(300) %}{% for _ in range(2000) %}{% endfor %}{% endfor %}
{% for message in messages %}
{{ message.role }}: {{ message.content }}{% endfor %}"""  # Slower than most, so that some wait.
CONFIGURATION = """
global: {{scrape_interval: {scrape}s}}
scrape_configs:
  - job_name: warptok
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""
Make = Callable[[random.Random], Request]


@contextlib.contextmanager
def running_prometheus(folder: Path, port: int) -> Iterator[str]:
    """Run Prometheus, which reads the metrics of a port; yield its address."""
    config = folder / "prometheus.yml"
    config.write_text(CONFIGURATION.format(scrape=SCRAPE_S, port=port))
    own = f"127.0.0.1:{find_free_port()}"
    options = [f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    options += [f"--web.listen-address={own}", "--log.level=error"]
    process = subprocess.Popen(["prometheus", *options])
    try:
        yield f"http://{own}"
    finally:
        process.terminate()
        process.wait()


def make_texts(name: str, vocabulary: str, key: str, words: int) -> Make:
    """Return the function that makes requests of a client for a vocabulary of text."""
    headers = {"x-api-key": key}

    def make(chance: random.Random) -> Request:
        text = " ".join(chance.choices(WORDS, k=words))
        body = {"vocabulary": vocabulary, "text": text}
        return json_request(name, "/v1/encode", body, headers)

    return make


def make_sequences(name: str, vocabulary: str, key: str, bases: int) -> Make:
    """Return the function that makes requests of a client for a vocabulary of DNA."""
    headers = {"x-api-key": key}

    def make(chance: random.Random) -> Request:
        texts = ["".join(chance.choices("ACGT", k=bases)) for _ in range(4)]
        body = {"vocabulary": vocabulary, "texts": texts}
        return json_request(name, "/v1/encode/batch", body, headers)

    return make


def make_chats(name: str, vocabulary: str, key: str) -> Make:
    """Return the function that makes chats of a client."""
    headers = {"x-api-key": key}

    def make(chance: random.Random) -> Request:
        text = " ".join(chance.choices(WORDS, k=20))
        body = {"model": vocabulary, "messages": [{"role": "user", "content": text}]}
        return json_request(name, "/tokenize", body, headers)

    return make


def upload_model(url: str, key: str) -> None:
    """Upload GPT-2 with a chat template, under the name assistant."""
    headers = {"x-api-key": key}
    file = httpx.get(f"{url}/v1/vocabularies/gpt2?format=tokenizer.json", headers=headers)
    files = {
        "tokenizer": ("tokenizer.json", file.content),
        "template": ("chat_template.jinja", TEMPLATE.encode()),
    }
    done = httpx.put(f"{url}/v1/vocabularies/assistant", files=files, headers=headers, timeout=60)
    done.raise_for_status()


async def put_load(port: int, keys: dict[str, str], seconds: float) -> dict[str, int]:
    """Send the load of four clients: three start later, and one exceeds the rate of its key."""
    web, search, genomes = keys["web"], keys["search"], keys["genomes"]
    plan: list[tuple[float, float, Make]] = [
        (0.0, 80, make_texts("web", "gpt2", web, 40)),
        (0.25, 15, make_texts("search", "cl100k_base", search, 4_000)),
        (0.5, 12, make_sequences("genomes", "dnabert2", genomes, 5_000)),
        (0.5, 12, make_sequences("genomes", "hyenadna", genomes, 5_000)),
        (0.7, 20, make_chats("assistant", "assistant", keys["assistant"])),
    ]

    async def send(begin: float, rate: float, make: Make, seed: int) -> int:
        await asyncio.sleep(begin * seconds)
        client = Client(port, 32)
        try:
            rest = (1 - begin) * seconds
            return len(await arrivals(client, rate, rest, make, random.Random(seed)))
        finally:
            client.close()

    sent = await asyncio.gather(*(send(*each, seed) for seed, each in enumerate(plan)))
    return {"requests": sum(sent)}


def read_panel(prometheus: str, panel: dict[str, Any], begin: float, end: float) -> dict[str, Any]:
    """Run the queries of a panel; return its lines by their names."""
    lines: dict[str, list[list[float]]] = {}
    for target in panel["targets"]:
        query = target["expr"].replace("$__rate_interval", f"{INTERVAL_S}s")
        query = re.sub(r"\$\w+", ".*", query)
        options = {"query": query, "start": begin, "end": end, "step": STEP_S}
        url = f"{prometheus}/api/v1/query_range?{urllib.parse.urlencode(options)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            results = json.load(answer)["data"]["result"]
        for result in results:
            name = target["legendFormat"].replace("{{instance}} ", "")
            name = name.replace("{{instance}}", "replica")
            for label, text in result["metric"].items():
                name = name.replace("{{" + label + "}}", text)
            lines[name] = [
                [round(at - begin, 1), float(value)]
                for at, value in result["values"]
                if value != "NaN"
            ]
    unit = panel["fieldConfig"]["defaults"]["unit"]
    return {"title": panel["title"], "unit": unit, "lines": lines}


def main() -> None:
    """Run the command line; exit with 2 if Prometheus is not installed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--out", type=Path, required=True, help="JSON file for the results")
    args = parser.parse_args()
    if shutil.which("prometheus") is None:
        print("prometheus is not installed", file=sys.stderr)
        raise SystemExit(2)
    panels = {panel["title"]: panel for panel in json.loads(DASHBOARD.read_text())["panels"]}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        file = folder / "keys.json"
        keys = {name: add_key(file, name, ("encode",)) for name in ("web", "search")}
        keys["assistant"] = add_key(file, "assistant", ("encode", "manage"))
        keys["genomes"] = add_key(file, "genomes", ("encode",), Rates(requests_per_s=15))
        settings: dict[str, object] = {
            "preload": "gpt2,cl100k_base,dnabert2,hyenadna",
            "frontends": 2,
            "api_keys_file": file,
            "store_dir": folder / "store",
        }
        with (
            service_process(folder, settings) as running,
            running_prometheus(folder, running.port) as prometheus,
        ):
            upload_model(f"http://127.0.0.1:{running.port}", keys["assistant"])
            time.sleep(2 * INTERVAL_S)
            begin = time.time()
            sent = asyncio.run(put_load(running.port, keys, args.seconds))
            time.sleep(SCRAPE_S)
            end = begin + args.seconds
            shown = [read_panel(prometheus, panels[title], begin, end) for title in PANELS]
    command = " ".join(["python -m benchmarks.service.dashboard", *sys.argv[1:]])
    document = {
        "command": command,
        "machine": machine(("uvicorn", "fastokens")),
        "seconds": args.seconds,
        **sent,
        "panels": shown,
    }
    args.out.write_text(json.dumps(document, indent=None, separators=(",", ":")) + "\n")
    print(f"{sent['requests']:,} requests; written: {args.out}")


if __name__ == "__main__":
    main()
