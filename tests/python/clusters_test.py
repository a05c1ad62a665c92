"""The files of examples/clusters: each read as what it is for reads it, and the job script run with a played Slurm. Slurm itself
and the hosts are in hosts_test.py."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from ranks import Skipped, main

CLUSTERS = Path(__file__).resolve().parents[2] / "examples/clusters"


def test_every_file_is_looked_at_here_and_named_in_the_document():
    names = sorted(path.name for path in CLUSTERS.iterdir())
    assert names == ["hostfile", "pytorchjob.yaml", "train.sbatch"], names
    document = (CLUSTERS.parents[1] / "docs/clusters.md").read_text()
    assert all(f"examples/clusters/{name}" in document for name in names)


def test_the_hostfile_names_hosts_and_slots():
    from deepspeed.launcher import hosts

    assert hosts.read_hostfile(str(CLUSTERS / "hostfile")) == {"worker-0": list(range(8)), "worker-1": list(range(8))}


def play(folder: str, *words: str, **variables: str) -> subprocess.CompletedProcess:
    """The job script as sbatch runs it: a copy, with Slurm's variables and commands that only say how they are called."""
    for name, text in {"scontrol": 'test "$*" = "show hostnames gpu[3-4]" && printf "gpu3\\ngpu4\\n"',
                       "srun": 'echo "srun $* at $MASTER_ADDR:$MASTER_PORT"'}.items():  # fmt: skip
        Path(folder, name).write_text(f"#!/bin/sh\n{text}\n")
        Path(folder, name).chmod(0o755)
    script = Path(folder, "slurm_script")
    script.write_text((CLUSTERS / "train.sbatch").read_text())
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "SLURM_JOB_NODELIST": "gpu[3-4]", "SLURM_JOB_ID": "123456"} | variables
    return subprocess.run(["bash", str(script), *words], env=environment, capture_output=True, text=True)


def test_the_job_script_starts_its_words_on_every_node_and_they_meet_at_the_first():
    assert subprocess.run(["bash", "-n", CLUSTERS / "train.sbatch"]).returncode == 0
    text = (CLUSTERS / "train.sbatch").read_text()
    options = [line.split()[1] for line in text.splitlines() if line.startswith("#SBATCH")]
    assert "--nodes=2" in options and "--signal=TERM@300" in options and "#SBATCH" not in text.split("set -euo")[1]
    with tempfile.TemporaryDirectory() as folder:
        done = play(folder, "shoal", "train", "--out", "a b")
        assert done.stdout == "srun --kill-on-bad-exit=1 --export=ALL shoal train --out a b at gpu3:23456\n", done
        assert done.returncode == 0
        none = play(folder)
        assert none.returncode == 2 and none.stdout == "" and "no program" in none.stderr, none
        assert play(folder, "x", SLURM_JOB_NODELIST="?").returncode != 0, "a list that Slurm does not know ends the job"


def lacking(value: object, shape: object, at: str = "") -> list[str]:
    """Where a document does not have a shape: a type, a list of one shape, or a dict of what must be there."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return [f"{at} is no map"]
        return [fault for name, part in shape.items()
                for fault in ([f"{at}.{name} is missing"] if name not in value else lacking(value[name], part, f"{at}.{name}"))]  # fmt: skip
    if isinstance(shape, list):
        if not isinstance(value, list) or not value:
            return [f"{at} is no list"]
        return [fault for index, each in enumerate(value) for fault in lacking(each, shape[0], f"{at}[{index}]")]
    return [] if isinstance(value, shape) and not (shape is int and isinstance(value, bool)) else [f"{at} is {value!r}"]


REPLICAS = {"replicas": int, "restartPolicy": str, "template": {"spec": {
    "containers": [{"name": str, "image": str, "command": [str], "env": [{"name": str, "value": str}],
                    "resources": {"limits": {"nvidia.com/gpu": int}}, "volumeMounts": [{"name": str, "mountPath": str}]}],
    "volumes": [{"name": str}]}}}  # fmt: skip
JOB = {"apiVersion": str, "kind": str, "metadata": {"name": str},
       "spec": {"nprocPerNode": str, "pytorchReplicaSpecs": {"Master": REPLICAS, "Worker": REPLICAS}}}  # fmt: skip


def test_the_kubernetes_job_is_one_of_its_operator():
    try:
        import yaml
    except ImportError:
        raise Skipped("no yaml in this Python") from None
    job = yaml.safe_load((CLUSTERS / "pytorchjob.yaml").read_text())
    assert lacking(job, JOB) == []
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    for name, replicas in job["spec"]["pytorchReplicaSpecs"].items():
        assert replicas["restartPolicy"] in ("Always", "OnFailure", "Never", "ExitCode"), name
        pod = replicas["template"]["spec"]
        assert [each["name"] for each in pod["containers"]] == ["pytorch"]
        container = pod["containers"][0]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == int(job["spec"]["nprocPerNode"])
        assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}
        assert container["command"][:4] == ["torchrun", "--no-python", "shoal", "train"]
    assert job["spec"]["pytorchReplicaSpecs"]["Master"]["replicas"] == 1
    # And the check can fail.
    del job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["image"]
    job["spec"]["nprocPerNode"] = 8
    at = ".spec.pytorchReplicaSpecs"
    assert set(lacking(job, JOB)) >= {".spec.nprocPerNode is 8", f"{at}.Worker.template.spec.containers[0].image is missing"}


if __name__ == "__main__":
    main(globals())
