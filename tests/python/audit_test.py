"""`shoal train --audit-every` on processes of which one computes other bits: kernels of torch that it is told to take, which round
otherwise. Skipped where all of torch's kernels give the same bits.

    SHOAL_COMMAND=<shoal> audit_test.py [test_name]
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
from pathlib import Path

from ranks import Skipped, main

FOUND = 4  # exit code of an audit's finding
PLAIN = {"ATEN_CPU_CAPABILITY": "default", "DNNL_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"}


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def train(world: int, folder: Path, odd: int | None, *more: str) -> tuple[list[int], list[str]]:
    """Codes and output of the ranks; `odd` computes otherwise."""
    words = [os.environ["SHOAL_COMMAND"], "train", "--model", "llama-tiny", "--data", "synthetic:tokens=20000", "--sequence", "16"]
    words += ["--steps", "2", "--threads", "1", "--device", "cpu", "--out", str(folder), *more]
    common = {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = []
    for rank in range(world):
        own = os.environ | common | {"RANK": str(rank), "LOCAL_RANK": str(rank)} | (PLAIN if rank == odd else {})
        ranks.append(subprocess.Popen(words, env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    outputs = [rank.communicate(timeout=300)[0] for rank in ranks]
    return [rank.returncode for rank in ranks], outputs


def digest_of(folder: Path, odd: int | None) -> str:
    codes, outputs = train(1, folder, odd, "--digest-every", "2")
    assert codes == [0], outputs
    return json.loads((folder / "digests.jsonl").read_text().splitlines()[-1])["digest"]


def skip_where_all_compute_alike(folder: Path) -> None:
    if digest_of(folder / "own", None) == digest_of(folder / "plain", 0):
        raise Skipped("torch's plain kernels give the same bits on this processor")


def test_a_rank_that_computes_otherwise_ends_all_with_the_code_of_an_audit() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        skip_where_all_compute_alike(folder)
        audited = ["--audit-every", "2", "--set", "zero_optimization.stage=3"]
        codes, outputs = train(3, folder / "odd", 1, *audited)
        assert codes == [FOUND] * 3, (codes, outputs)
        assert "shoal: [audit] before step 2: rank 1 computed other results" in outputs[0], outputs[0]
        events = [json.loads(line) for line in (folder / "odd/events.jsonl").read_text().splitlines()]
        assert "rank 1 " in next(event["found"] for event in events if event.get("found")), events
        codes, outputs = train(3, folder / "sound", None, *audited)
        assert codes == [0] * 3, (codes, outputs)


if __name__ == "__main__":
    main(globals())
