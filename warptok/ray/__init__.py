"""warptok on a cluster of Ray: ids in Ray Data, shards out of it, and a service in Ray Serve.

    dataset.map_batches(warptok.ray.TokenizeBatch, ...)        a column of texts to a column of ids
    dataset.write_datasink(warptok.ray.ShardDatasink(...))     ids to the shards of `warptok corpus`
    serve.run(warptok.ray.make_serve_application(...))         the HTTP service, a replica a GPU

Needs `pip install 'warptok[ray]'`; docs/ray.md shows how to use it. Nothing else imports it.
"""

from warptok.errors import NotInstalled

try:
    import ray as _ray  # noqa: F401
except ImportError as error:
    raise NotInstalled("warptok.ray needs Ray: pip install 'warptok[ray]'") from error

from warptok.ray.batches import TokenizeBatch as TokenizeBatch
from warptok.ray.datasink import ShardDatasink as ShardDatasink
from warptok.ray.serving import make_serve_application as make_serve_application
