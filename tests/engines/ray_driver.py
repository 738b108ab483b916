"""A build of toys by a Ray of its own, in a process that can be killed: ``python ray_driver.py FOLDER SECONDS``.

Ends as the command line does: one sentence and exit code 2 for an error that is meant for the user.
"""

import sys
from pathlib import Path

from toy_spec import ToySpec

from headwise.core.errors import HeadwiseError
from headwise.engines import Listener, RayEngine, ShardStore

EXAMPLES = 200  # fifty shards


def main(folder: Path, seconds: float) -> None:
    engine = RayEngine(workers=2, threads_per_worker=1)
    with engine.open(ToySpec(folder, seconds=seconds, examples=EXAMPLES), Listener()) as session:
        job = session.prepare(["toy"], {})
        store = ShardStore(folder / "atlas", job.provenance, examples=job.examples, size=job.shard_size)
        result = session.run(job, store, Listener())
    (folder / "result").write_bytes(result.artifacts["kept/file.bin"])


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), float(sys.argv[2]))
    except HeadwiseError as error:
        print(f"headwise: {error}", file=sys.stderr)
        sys.exit(2)
