"""warptok.ray on a cluster of one node: batches, shards and the service, with the ids of `load`."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warptok
from tests.service.corpus.runners.ray_clusters import local_cluster
from tests.support.inputs.corpora import make_texts, megatron_bytes

pa = pytest.importorskip("pyarrow")
ray = pytest.importorskip("ray", reason="pip install 'warptok[ray]'")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
TEXTS = make_texts(500)
EOD = 50256


@pytest.fixture(scope="module")
def tokenizer() -> warptok.Tokenizer:
    return warptok.load("gpt2", device="cpu")


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        # On a busy machine the proxy of Ray Serve takes longer than the 5 s that Ray waits for it.
        patch.setenv("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "60")
        cluster = stack.enter_context(local_cluster(1, num_cpus=3))
        ray.init(cluster.address, log_to_driver=False)
        ray.data.DataContext.get_current().enable_progress_bars = False
        try:
            yield
        finally:
            ray.shutdown()


def test_a_table_without_ray(tokenizer: warptok.Tokenizer) -> None:
    from warptok.ray import TokenizeBatch

    table = pa.table({"text": pa.chunked_array([TEXTS[:7], TEXTS[7:20]]), "id": range(20)})
    encoded = TokenizeBatch("gpt2", add_special_tokens=False)(table.slice(3, 10))
    assert encoded.column_names == ["id", "input_ids"]
    assert encoded.column("id").to_pylist() == [*range(3, 13)]
    rows = tokenizer.encode_batch(TEXTS[3:13], add_special_tokens=False).to_list()
    assert encoded.column("input_ids").to_pylist() == rows
    assert TokenizeBatch("gpt2")(table.slice(0, 0)).num_rows == 0
    keeping = TokenizeBatch("gpt2", keeps_text=True, errors="keep", special="refuse")
    kept = keeping(pa.table({"text": ["a", "<|endoftext|>"]}))
    assert kept.column_names == ["text", "input_ids", "refused"]
    assert kept.column("input_ids").to_pylist() == [[64], None]
    assert kept.column("refused").to_pylist()[0] is None
    assert "special" in kept.column("refused").to_pylist()[1]
    with pytest.raises(warptok.InvalidRequest, match="null"):
        TokenizeBatch("gpt2")(pa.table({"text": ["a", None]}))
    for name in ("input_ids", "refused"):
        with pytest.raises(warptok.InvalidRequest, match=f"already has a column {name}"):
            TokenizeBatch("gpt2", errors="keep")(pa.table({"text": ["a"], name: [1]}))


def test_texts_to_shards(cluster: None, tokenizer: warptok.Tokenizer, tmp_path: Path) -> None:
    from warptok.ray import ShardDatasink, TokenizeBatch

    ray.data.DataContext.get_current().execution_options.preserve_order = True
    tables = [pa.table({"text": texts}) for texts in (TEXTS[:300], TEXTS[300:])]
    encoded = (
        ray.data.from_arrow(tables)
        .map_batches(
            TokenizeBatch,
            fn_constructor_kwargs={"vocabulary": "gpt2"},
            batch_format="pyarrow",
            batch_size=100,
            num_cpus=1,
            compute=ray.data.ActorPoolStrategy(size=1),
        )
        .materialize()
    )
    rows = [row.tolist() for row in tokenizer.encode_batch(TEXTS)]
    assert [[*row["input_ids"]] for row in encoded.iter_rows()] == rows

    sink = ShardDatasink(tmp_path / "out", "gpt2", end_id=EOD, shard_tokens=2000)
    encoded.write_datasink(sink)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_bytes())
    written: list[list[int]] = []
    for shard in manifest["shards"]:
        lengths = read_lengths(tmp_path / "out" / f"{shard['name']}.idx")
        ids = np.fromfile(tmp_path / "out" / f"{shard['name']}.bin", np.uint16)
        assert len(ids) <= 2000
        written += [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])]
    assert written == [[*row, EOD] for row in rows if row]
    assert (manifest["rows"], manifest["tokens"]) == (500, sum(map(len, written)))
    names = {file["name"] for shard in manifest["shards"] for file in shard["files"]}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names | {"manifest.json"}
    with pytest.raises(Exception, match="has shards of another run"):
        encoded.write_datasink(sink)


def read_lengths(path: Path) -> list[int]:
    """Read the lengths of the sequences from an .idx of Megatron."""
    content = path.read_bytes()
    count = int(np.frombuffer(content, np.uint64, 1, 18)[0])
    return np.frombuffer(content, np.int32, count, 34).tolist()


class Context:
    """The fields of Ray's TaskContext that a sink reads."""

    task_idx = 3


@pytest.mark.parametrize("format", ["megatron", "datatrove", "mds", "parquet"])
def test_one_task_of_a_sink(format: str, tmp_path: Path) -> None:
    from ray.data.datasource import WriteResult

    from warptok.ray import ShardDatasink

    has_mask = format != "megatron"
    rows = [[5, 6], [], None, [7]]
    columns: dict[str, Any] = {"input_ids": pa.array(rows, pa.large_list(pa.int32()))}
    if has_mask:
        columns["mask"] = [[0, 1], [], [1], [1]]
    mask_column = "mask" if has_mask else None
    sink = ShardDatasink(tmp_path, "gpt2", format=format, end_id=EOD, mask_column=mask_column)
    sink.on_write_start(None)
    for _ in range(2):  # The second attempt writes the same files.
        shards = sink.write([pa.table(columns), pa.table(columns)], Context())
    assert [(shard.name, shard.tokens) for shard in shards] == [("shard_00003_00000", 10)]
    sink.on_write_complete(WriteResult(8, 0, [shards]))
    assert not [*tmp_path.glob(".*")]
    if format == "megatron":
        data, index = megatron_bytes(2 * [[5, 6, EOD], [], [7, EOD]], is_narrow=True)
        assert (tmp_path / "shard_00003_00000.bin").read_bytes() == data
        assert (tmp_path / "shard_00003_00000.idx").read_bytes() == index
    if format == "datatrove":
        masks = np.fromfile(tmp_path / "shard_00003_00000.ds.loss", np.uint8).tolist()
        assert masks == 2 * [0, 1, 1, 1, 1]
    assert (tmp_path / "index.json").exists() == (format == "mds")


def test_what_a_sink_refuses(tmp_path: Path) -> None:
    from warptok.ray import ShardDatasink

    for options in ({"format": "tar"}, {"mask_column": "mask"}, {"shard_tokens": 0}):
        with pytest.raises(warptok.InvalidRequest):
            ShardDatasink(tmp_path, "gpt2", **options)
    sink = ShardDatasink(tmp_path, "gpt2")
    with pytest.raises(warptok.InvalidRequest, match="50257 ids"):
        sink.write([pa.table({"input_ids": [[50257]]})], Context())
    assert not [*tmp_path.iterdir()]


def test_a_service(cluster: None, tokenizer: warptok.Tokenizer) -> None:
    from ray import serve

    from warptok.ray import make_serve_application

    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(make_serve_application(preload="gpt2"))
    body = json.dumps({"texts": TEXTS[:20], "vocabulary": "gpt2"}).encode()
    url = f"http://127.0.0.1:{port}/v1/encode/batch"
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        rows = json.loads(answer.read())["ids"]
    assert rows == tokenizer.encode_batch(TEXTS[:20]).to_list()
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(
            urllib.request.Request(f"http://127.0.0.1:{port}/v1/vocabularies/gpt2", method="DELETE")
        )
    serve.shutdown()


def test_ids_that_are_not_of_the_vocabulary_are_refused(tmp_path: Path) -> None:
    from warptok.ray import ShardDatasink

    for name in ("begin_id", "end_id"):
        for token_id in (-1, 50257, 70000):
            with pytest.raises(warptok.InvalidRequest, match="has 50257 ids") as refused:
                ShardDatasink(tmp_path, "gpt2", **{name: token_id})
            assert refused.value.where == name
    sink = ShardDatasink(tmp_path, "gpt2", end_id=EOD)
    for ids, fault in (([1.5], "integers"), ([1, None], "integers"), ([70000], "50257 ids")):
        with pytest.raises(warptok.InvalidRequest, match=fault):
            sink._make_rows(pa.table({"input_ids": [ids]}))
    sink = ShardDatasink(tmp_path, "gpt2", format="parquet", mask_column="mask")
    for mask in ([1, 300], [1, None], [0, -1]):
        with pytest.raises(warptok.InvalidRequest, match="0 and 1"):
            sink._make_rows(pa.table({"input_ids": [[1, 2]], "mask": [mask]}))
    rows = sink._make_rows(pa.table({"input_ids": [[1, 2], None], "mask": [[True, False], None]}))
    assert rows.mask is not None and rows.mask.tolist() == [1, 0]
