"""Runs warptok on a Ray cluster: encodes in Ray Data, writes shards, and serves with Ray Serve.

    dataset.map_batches(warptok.ray.TokenizeBatch, ...)        a column of texts to a column of ids
    dataset.write_datasink(warptok.ray.ShardDatasink(...))     ids to the shards of `warptok corpus`
    serve.run(warptok.ray.make_serve_application(...))         the HTTP service, a replica a GPU

It needs `pip install 'warptok[ray]'`; docs/ray.md shows how to use it. No other module imports it.
"""

from warptok.errors import NotInstalled

try:
    import ray as _ray  # noqa: F401
except ImportError as error:
    raise NotInstalled("warptok.ray needs Ray: pip install 'warptok[ray]'") from error

from warptok.ray.batches import TokenizeBatch as TokenizeBatch
from warptok.ray.datasink import ShardDatasink as ShardDatasink
from warptok.ray.serving import make_serve_application as make_serve_application
