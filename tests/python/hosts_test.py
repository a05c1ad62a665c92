"""Ranks on several hosts, started by torchrun, mpirun, srun and the `deepspeed` command over ssh: they train as ranks of one host
do, to the bit, and end together. The hosts are namespaces of this machine (hosts_lab.py)."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from hosts_lab import Absent, Lab, with_ssh
from hosts_runs import QUIET, ROOT, losses, losses_on_one_host, train_words
from hosts_slurm import with_slurm
from ranks import main, whole

TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
RUNNER = [sys.executable, "-m", "deepspeed.launcher.runner"]
HERE = Path(__file__).parent


def environment(programs: str = "") -> dict[str, str]:
    path = os.pathsep.join(filter(None, [programs, os.environ["PATH"]]))
    return QUIET | {"PATH": path, "PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT / "python"))}


def expect_all_zero(runs: list) -> None:
    codes = [run.wait() for run in runs]
    assert codes == [0] * len(runs), "\n".join(f"{code}:\n{run.output()[-5000:]}" for code, run in zip(codes, runs, strict=True))


def test_torchrun_starts_ranks_on_two_hosts_that_train_as_on_one():
    with Lab(2) as lab:
        expected = losses_on_one_host(lab, 4)
        own = ["--nnodes=2", "--nproc-per-node=2", f"--master-addr={lab.address(0)}", "--master-port=29511", "--no-python"]
        words = train_words(lab, "static")
        runs = [lab.start(host, [*TORCHRUN, *own, f"--node-rank={host}", *words], **environment()) for host in (0, 1)]
        expect_all_zero(runs)
        assert losses(lab, "static") == expected and len(expected) == 3, (losses(lab, "static"), expected)
        own = ["--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", f"--rdzv-endpoint={lab.name(0)}:29512", "--no-python"]
        words = train_words(lab, "c10d")
        runs = [lab.start(host, [*TORCHRUN, *own, *words], **environment()) for host in (0, 1)]
        expect_all_zero(runs)
        assert losses(lab, "c10d") == expected
        # A pod of Kubernetes is told by its operator, in variables that torchrun reads; the words are examples/clusters'.
        words = [*TORCHRUN, "--no-python", *train_words(lab, "pods")]
        told = {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "2", "PET_MASTER_ADDR": lab.name(0), "PET_MASTER_PORT": "23456"}
        expect_all_zero([lab.start(host, words, PET_NODE_RANK=str(host), **told, **environment()) for host in (0, 1)])
        assert losses(lab, "pods") == expected


def said(text: str) -> list[str]:
    """The lines that ranks wrote with say(), whatever stands before them of hosts."""
    return sorted(line.split("[test] ", 1)[1] for line in text.splitlines() if "[test] " in line)


def losses_of_loop(text: str) -> list[str]:
    return [line for line in said(text) if " loss " in line]


def processes(lab: Lab, host: int) -> str:
    """The ranks and launchers that a host still runs."""
    return lab.do(host, "ps -eo args | grep -E '[h]osts_loop|[t]orch.distributed|[d]eepspeed.launcher' || true")


def hostfile(lab: Lab, slots: int) -> str:
    path = lab.folder / "hostfile"
    path.write_text("".join(f"{lab.name(host)} slots={slots}\n" for host in range(lab.count)))
    return str(path)


def test_the_deepspeed_command_logs_in_by_ssh_and_ends_all_together():
    with Lab(3) as lab:
        variables = environment(with_ssh(lab, 2222)) | {"NCCL_DEBUG_FILE": "a b'c", "NOT_SENT": "1", "DS_ENV_FILE": ".own_env"}
        folder = lab.folder / "a folder"
        folder.mkdir()
        (folder / ".own_env").write_text("# ours\nOF_A_FILE=x=y z\n")
        (folder / "loop.py").write_text((HERE / "hosts_loop.py").read_text())
        command = [*RUNNER, "-H", hostfile(lab, 2), "--ssh_port", "2222"]

        def start(*words: str):
            return lab.start(0, [*command, *words], folder=str(folder), **variables)

        run = start("--include", "worker-0:1@worker-2", "loop.py", "a 'word'", "tell")
        assert run.wait() == 0, run.output()
        told = [f"worker-{host} RANK={rank} WORLD_SIZE=3 LOCAL_RANK={local} LOCAL_WORLD_SIZE={count} NCCL_DEBUG_FILE=a b'c "
                f"OF_A_FILE=x=y z NOT_SENT=None ['--local_rank={local}', \"a 'word'\", 'tell'] True"
                for host, rank, local, count in ((0, 0, 0, 1), (2, 1, 0, 2), (2, 2, 1, 2))]  # fmt: skip
        assert said(run.output()) == told, run.output()
        assert "worker-2: " in run.output() and "they meet at 10.77.0.1:29500, worker-0" in run.output(), run.output()

        for mode, code in (("fail", 7), ("killed", 128 + signal.SIGKILL))[: 2 if whole() else 1]:
            run = start("--exclude", "worker-2", "--num_gpus=-1", "loop.py", mode)
            assert run.wait() == code, (mode, run.output())
            assert "deepspeed: worker-0 ended with" in run.output(), run.output()
            assert [processes(lab, host) for host in range(3)] == [""] * 3

        run = start("--num_nodes", "2", "--num_gpus", "1", "loop.py", "wait")
        run.wait_for("waits 0")
        run.wait_for("waits 1")
        run.signal(signal.SIGINT)
        assert run.wait() == 128 + signal.SIGINT, run.output()
        assert [processes(lab, host) for host in range(3)] == [""] * 3

        run = start("--num_nodes", "2", "--num_gpus", "1", "loop.py", "wait")
        run.wait_for("waits 1")
        run.signal(signal.SIGKILL)  # who started all is gone, and cannot say so
        run.wait()
        deadline = time.monotonic() + 60
        while any(processes(lab, host) for host in range(3)):
            assert time.monotonic() < deadline, [processes(lab, host) for host in range(3)]
            time.sleep(0.2)


def test_hosts_that_ssh_cannot_reach_are_named_before_anything_starts():
    with Lab(2) as lab:
        variables = environment(with_ssh(lab, 2222))
        command = [*RUNNER, "-H", hostfile(lab, 1), str(HERE / "hosts_loop.py"), "wait"]
        run = lab.start(0, command, **variables)
        assert run.wait() == 1
        assert "deepspeed: worker-0 cannot be reached by ssh: " in run.output() and "; worker-1 cannot" in run.output(), run.output()
        assert "port 22: Connection refused" in run.output() and "waits" not in run.output(), run.output()
        lab.do(0, "mkdir /run/own")  # a folder that the other host does not have
        run = lab.start(0, [*RUNNER, "--ssh_port", "2222", *command[3:]], folder="/run/own", **variables)
        assert run.wait() == 1, run.output()
        assert "worker-1" in run.output() and "/run/own" in run.output() and "waits" not in run.output(), run.output()


def test_mpirun_starts_ranks_by_itself_and_for_the_deepspeed_command():
    if shutil.which("mpirun") is None:
        raise Absent("no mpirun here: install openmpi-bin")
    with Lab(2) as lab:
        variables = environment(with_ssh(lab)) | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        expected = losses_on_one_host(lab, 4)
        words = ["mpirun", "--host", "worker-0:2,worker-1:2", "-n", "4", "--bind-to", "none", "-x", f"MASTER_ADDR={lab.address(0)}"]
        for name in ("PYTHONPATH", "OMP_NUM_THREADS", "TORCH_CPP_LOG_LEVEL"):
            words += ["-x", name]
        run = lab.start(0, [*words, *train_words(lab, "mpirun")], **variables)
        expect_all_zero([run])
        assert losses(lab, "mpirun") == expected
        loop = [str(HERE / "hosts_loop.py"), "train"]
        run = lab.start(0, [*RUNNER, "-H", hostfile(lab, 1), "--launcher", "openmpi", *loop], **variables)
        expect_all_zero([run])
        alone = lab.start(0, [*RUNNER, "--num_gpus", "2", *loop], **variables)
        expect_all_zero([alone])
        assert losses_of_loop(run.output()) == losses_of_loop(alone.output()), run.output() + alone.output()
        assert len(losses_of_loop(run.output())) == 6


def test_slurm_starts_ranks_by_srun_by_a_job_script_and_for_the_deepspeed_command():
    with Lab(2) as lab:
        variables = environment() | with_slurm(lab)
        expected = losses_on_one_host(lab, 4)
        run = lab.start(0, ["srun", "-N2", "--ntasks-per-node=2", *train_words(lab, "srun")], **variables)
        expect_all_zero([run])
        assert losses(lab, "srun") == expected
        job = lab.start(0, ["sbatch", "--wait", "--nodes=2", "--ntasks-per-node=2", f"--output={lab.folder}/job.out", "--error=job.err",
                            str(ROOT / "examples/clusters/train.sbatch"), *train_words(lab, "sbatch")],
                        folder=str(lab.folder), **variables)  # fmt: skip
        code = job.wait()
        assert code == 0, job.output() + (lab.folder / "job.out").read_text() + (lab.folder / "job.err").read_text()
        assert losses(lab, "sbatch") == expected
        loop = [str(HERE / "hosts_loop.py"), "train"]
        run = lab.start(0, [*RUNNER, "-H", hostfile(lab, 1), "--launcher", "slurm", *loop], **variables)
        expect_all_zero([run])
        assert len(losses_of_loop(run.output())) == 6, run.output()
        failing = lab.start(0, [*RUNNER, "-H", hostfile(lab, 1), "--launcher", "slurm", "--no_python", "false"], **variables)
        assert failing.wait() == 1, failing.output()


if __name__ == "__main__":
    main(globals())
