"""The `deepspeed` command: hosts and slots, what is refused, and ranks that start."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from ranks import free_port, main

HERE = "this-host"
socket.gethostname = lambda: HERE  # whatever the machine is called
FILE = f"# two hosts\nworker-0 slots=4\n\n{HERE} slots=2 # this one\n"


def refused(arguments: list[str]) -> str:
    """What the command says when it refuses."""
    from deepspeed.launcher import runner

    try:
        runner.torchrun_arguments(runner.parse([*arguments, "script.py"]))
    except SystemExit as error:
        return str(error)
    raise AssertionError(f"{arguments} was accepted")


def torchrun(arguments: list[str]) -> list[str]:
    from deepspeed.launcher import runner

    return runner.torchrun_arguments(runner.parse([*arguments, "script.py", "--mine"]))


def hostfile(folder: str) -> str:
    path = Path(folder, "hostfile")
    path.write_text(FILE)
    return str(path)


def test_a_script_that_is_not_there_is_named():
    from deepspeed.launcher import runner

    for script in ("nowhere.py", os.path.dirname(__file__)):
        try:
            runner.main([script])
        except SystemExit as error:
            assert str(error) == f"deepspeed: there is no script {script}. Give the path of a file.", error
        else:
            raise AssertionError(f"{script} was accepted")


def test_hostfiles_are_parsed_and_faults_named_by_line():
    from deepspeed.launcher import hosts

    assert hosts.parse_hostfile(FILE.splitlines()) == {"worker-0": [0, 1, 2, 3], HERE: [0, 1]}
    for lines, word in ((["a slots=2", "a slots=2"], ":2"), (["a"], "slots=4"), (["a slots=x"], ":1"), (["a slots=1 b"], ":1"),
                        (["a slots=1", "b slots=²"], ":2"), (["a slots=0"], ":1"), (["a slots=1025"], ":1 gives a more than 1024"),
                        (["a slots=99999999999999"], ":1"), (["a slots=" + "9" * 5000], ":1")):  # fmt: skip
        try:
            hosts.parse_hostfile(lines)
        except SystemExit as error:
            assert word in str(error), error
        else:
            raise AssertionError(f"{lines} was accepted")


def test_include_and_exclude_choose_slots():
    from deepspeed.launcher.hosts import select

    pool = {"a": [0, 1, 2], "b": [0, 1]}
    assert select(pool, "", "") == pool
    assert select(pool, "b", "") == {"b": [0, 1]}
    assert select(pool, "a:2,0@b:1", "") == {"a": [0, 2], "b": [1]}
    assert select(pool, "", "a") == {"b": [0, 1]}
    assert select(pool, "", "a:1@b:0") == {"a": [0, 2], "b": [1]}
    for include, exclude, word in (("a", "b", "contradict"), ("c", "", "c is not"), ("a:7", "", "slot 7"),
                                   ("", "a@b", "no slot"), ("a:x", "", "a:x"), ("a:²", "", "a:²"),
                                   ("a:" + "9" * 5000, "", "which slots")):  # fmt: skip
        try:
            select(pool, include, exclude)
        except SystemExit as error:
            assert word in str(error), error
        else:
            raise AssertionError(f"{include} {exclude} was accepted")


def test_arguments_become_those_of_torchrun():
    wrapper = str(Path(__import__("deepspeed").__file__).parent / "launcher" / "with_local_rank.py")
    assert torchrun(["--num_gpus", "3", "--master_port", "1234"]) == [
        "--nproc_per_node=3", "--nnodes=1", "--node_rank=0", "--master_addr=127.0.0.1", "--master_port=1234",
        wrapper, "script.py", "--mine",
    ]  # fmt: skip
    several = ["--num_gpus", "2", "--num_nodes", "2", "--no_ssh", "--node_rank", "1", "--master_addr", "worker-0"]
    assert torchrun(several)[:5] == [
        "--nproc_per_node=2", "--nnodes=2", "--node_rank=1", "--master_addr=worker-0", "--master_port=29500",
    ]  # fmt: skip
    assert torchrun(["--module"])[-4:] == [wrapper, "-m", "script.py", "--mine"]
    assert torchrun(["--module", "--no_local_rank"])[-3:] == ["--module", "script.py", "--mine"]
    assert torchrun(["--no_python"])[-3:] == ["--no_python", "script.py", "--mine"]
    assert torchrun(["--enable_each_rank_log", "logs"])[5:7] == ["--log_dir=logs", "--redirects=3"]


def test_a_hostfile_gives_hosts_and_this_hosts_number():
    with tempfile.TemporaryDirectory() as folder:
        path = hostfile(folder)
        assert torchrun(["-H", path, "--no_ssh"])[:4] == [
            "--nproc_per_node=2", "--nnodes=2", "--node_rank=1", "--master_addr=worker-0",
        ]  # fmt: skip
        assert torchrun(["-H", path, "--no_ssh", "--node_rank", "0"])[:1] == ["--nproc_per_node=4"]
        assert torchrun(["-H", path, "--include", f"{HERE}:1"])[:4] == [
            "--nproc_per_node=1", "--nnodes=1", "--node_rank=0", "--master_addr=127.0.0.1",
        ]  # fmt: skip
        assert torchrun(["-H", path, "--num_nodes", "2", "--num_gpus", "1", "--no_ssh"])[:2] == [
            "--nproc_per_node=1", "--nnodes=2",
        ]  # fmt: skip
        assert "--no_ssh" in refused(["-H", path])
        assert "another host" in refused(["-H", path, "--include", "worker-0"])
        assert "contradict" in refused(["-H", path, "--include", HERE, "--num_gpus", "1"])
        assert "has 2" in refused(["-H", path, "--num_nodes", "3", "--no_ssh"])
        assert "is not there" in refused(["-H", path + ".not"])


def test_a_hostfile_that_is_no_text_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "hostfile")
        path.write_bytes(b"worker-0 slots=2\xff\xfe")
        assert "cannot be read" in refused(["-H", str(path)])


def test_numbers_that_cannot_be_are_refused():
    assert "--master_port is 0" in refused(["--master_port", "0"])
    assert "65535" in refused(["--master_port", "65536"])
    assert "--num_gpus is 100000" in refused(["--num_gpus", "100000"])
    for cores in ("²", "0-99999999999", "3-1", "9" * 5000):
        assert "--bind_core_list" in refused(["--bind_core_list", cores])


def busy_port() -> socket.socket:
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    return taken


def test_a_default_port_that_is_taken_is_replaced_and_a_named_one_is_refused():
    from deepspeed.launcher import port

    with busy_port() as taken:
        number = taken.getsockname()[1]
        assert refused(["--master_port", str(number)]) == (
            f"deepspeed: --master_port {number} is in use on this host. Give a free one with --master_port, or end who uses it."
        )
        before, port.DEFAULT_PORT = port.DEFAULT_PORT, number
        try:
            chosen = torchrun(["--num_gpus", "2"])[4]
            assert chosen.startswith("--master_port=") and chosen != f"--master_port={number}", chosen
            several = ["--num_gpus", "2", "--num_nodes", "2", "--no_ssh", "--node_rank", "0", "--master_addr", "worker-0"]
            assert f"the default port {number} is in use" in refused(several) and "on every host" in refused(several)
        finally:
            port.DEFAULT_PORT = before


def test_the_command_of_a_checkout_starts_ranks_beside_one_that_runs():
    """python/bin/deepspeed, with the default port taken by another run."""
    script = "import os; os.write(1, f\"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}\\n\".encode())"
    with tempfile.TemporaryDirectory() as folder, socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("0.0.0.0", 29500))
            taken.listen()
        except OSError:
            pass  # it is taken already
        Path(folder, "mine.py").write_text(script)
        command = Path(__file__).parents[2] / "python" / "bin" / "deepspeed"
        done = subprocess.run(
            [sys.executable, str(command), "--num_gpus", "2", "mine.py"], cwd=folder, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "rank 0 of 2" in done.stdout and "rank 1 of 2" in done.stdout, done.stdout + done.stderr
        assert "Traceback" not in done.stderr, done.stderr


def test_what_launchers_say_of_this_host_is_read():
    from shoal import Error
    from shoal.world import local_size, number_of

    names = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_NODEID")
    before = {name: os.environ.pop(name) for name in names if name in os.environ}

    def read(**given: str) -> int:
        os.environ.update(given)
        try:
            return local_size()
        finally:
            for name in given:
                del os.environ[name]

    try:
        assert read() == 1
        assert read(LOCAL_WORLD_SIZE="3", SLURM_TASKS_PER_NODE="2,1") == 3
        assert [read(SLURM_TASKS_PER_NODE="2(x3),1", SLURM_NODEID=node) for node in "0123"] == [2, 2, 2, 1]
        assert [read(SLURM_TASKS_PER_NODE="2,1", SLURM_NODEID=node) for node in "01"] == [2, 1]
        assert read(SLURM_TASKS_PER_NODE="2,1") == 2 and read(SLURM_STEP_TASKS_PER_NODE="1", SLURM_TASKS_PER_NODE="4") == 1
        for wrong in ("x", "2,", "2(x", "0", "²", "2(x0)"):
            try:
                read(SLURM_TASKS_PER_NODE=wrong)
            except Error as error:
                assert "[environment SLURM_TASKS_PER_NODE]" in str(error) and "2(x3),1" in str(error), error
            else:
                raise AssertionError(f"{wrong} was accepted")
        os.environ["SLURM_NODEID"] = "x"
        try:
            number_of("SLURM_NODEID", 0)
        except Error as error:
            assert str(error) == "[environment SLURM_NODEID] 'x' is not a number from 0. Correct it.", error
        else:
            raise AssertionError("x was accepted")
    finally:
        os.environ.pop("SLURM_NODEID", None)
        os.environ.update(before)


def test_what_is_not_supported_is_refused_by_name():
    from deepspeed.launcher import runner

    given = {"launcher_args": ["-x"], "ssh_port": ["22"], "venv_script": ["x"], "autotuning": ["tune"],
             "min_elastic_nodes": ["1"], "max_elastic_nodes": ["2"]}  # fmt: skip
    for name in runner.REFUSED:
        value = given.get(name, [])
        arguments = [f"--{name}={value[0]}"] if value else [f"--{name}"]
        assert f"--{name} is not supported" in refused(arguments), name
    for name in ("openmpi", "slurm", "MVAPICH", "impi", "mpich"):
        assert f"--launcher {name}" in refused(["--launcher", name]) and "srun" in refused(["--launcher", name])
    assert "--no_ssh" in refused(["--num_nodes", "2"])
    assert "--master_addr" in refused(["--num_nodes", "2", "--no_ssh", "--node_rank", "0"])
    assert "--node_rank" in refused(["--num_nodes", "2", "--no_ssh", "--master_addr", "a"])
    assert "numactl" in refused(["--no_python", "--bind_cores_to_rank"])
    assert "another host" in refused(["--include", "worker-7:0"])


def test_every_argument_of_deepspeeds_launcher_is_known():
    from deepspeed.launcher import runner

    # What `deepspeed --help` of 0.19.8 lists, and what 0.18 had besides.
    listed = """hostfile include exclude num_nodes num_gpus master_port master_addr node_rank launcher launcher_args module
        no_python no_local_rank no_ssh no_ssh_check force_multi save_pid enable_each_rank_log autotuning bind_cores_to_rank
        bind_core_list ssh_port venv_script log_level quiet elastic_training min_elastic_nodes max_elastic_nodes""".split()
    known = vars(runner.parse(["script.py"]))
    assert not [name for name in listed if name not in known]
    # And each is read somewhere, or refused.
    text = Path(runner.__file__).read_text()
    for name in listed:
        assert name in runner.REFUSED or f"options.{name}" in text or name == "no_ssh_check", name


def test_ranks_get_cores_a_pid_file_and_modules():
    # In one write: torchrun's ranks do not buffer, and lines of two ranks would mix.
    script = """if True:
        import os, pathlib, sys
        cores = sorted(os.sched_getaffinity(0))
        above = pathlib.Path(f"/proc/{os.getppid()}/stat").read_text().rsplit(") ", 1)[1].split()[1]
        files = [(pid, pathlib.Path(f"/tmp/{pid}.deepspeed")) for pid in (str(os.getppid()), above)]
        same = any(file.exists() and file.read_text() == pid for pid, file in files)
        os.write(1, f"rank {os.environ['RANK']} {cores} {sys.argv[1:]} {__name__}\\npid {same}\\n".encode())
    """
    cores = sorted(os.sched_getaffinity(0))
    ranks = 2 if len(cores) > 1 else 1
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "mine.py").write_text(script)
        command = [sys.executable, "-m", "deepspeed.launcher.runner", "--num_gpus", str(ranks), "--master_port", str(free_port())]
        command += ["--bind_cores_to_rank", "--bind_core_list", ",".join(map(str, cores[:ranks])), "--save_pid", "--quiet"]
        done = subprocess.run([*command, "--module", "mine", "--x"], cwd=folder, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        for rank in range(ranks):
            assert f"rank {rank} [{cores[rank]}] ['--local_rank={rank}', '--x'] __main__" in done.stdout, done.stdout
        assert "pid True" in done.stdout, done.stdout


if __name__ == "__main__":
    main(globals())
