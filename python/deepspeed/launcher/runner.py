"""The `deepspeed` command: DeepSpeed's arguments, torchrun's launcher."""

from __future__ import annotations

import argparse
import os
import sys

DEEPSPEED_ENVIRONMENT_NAME = os.getenv("DS_ENV_FILE", ".deepspeed_env")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="deepspeed", description="Starts ranks of a training script, one a GPU or as many as --num_gpus says."
    )
    parser.add_argument("--num_gpus", "--num_accelerators", type=int, default=-1, help="ranks on this host")
    parser.add_argument("--num_nodes", type=int, default=1, help="hosts")
    parser.add_argument("--node_rank", type=int, default=0, help="which host this is")
    parser.add_argument("--master_addr", default="", help="the host of rank 0")
    parser.add_argument("--master_port", type=int, default=29500)
    parser.add_argument("-H", "--hostfile", default="", help="with --no_ssh: hosts and their slots")
    parser.add_argument("-i", "--include", default="", help='"localhost:0,2": these GPUs only')
    parser.add_argument("-e", "--exclude", default="", help='"localhost:1": all GPUs but these')
    parser.add_argument("--no_ssh", action="store_true", help="this command runs on every host, with --node_rank")
    parser.add_argument("--module", action="store_true", help="the script is a module, as with python -m")
    parser.add_argument("--no_python", action="store_true", help="the script is a program of its own")
    parser.add_argument("--no_local_rank", action="store_true", help="do not add --local_rank to the script's arguments")
    parser.add_argument("--launcher", default="pdsh", help=argparse.SUPPRESS)
    parser.add_argument("--launcher_args", default="", help=argparse.SUPPRESS)
    parser.add_argument("--force_multi", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--bind_cores_to_rank", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--enable_each_rank_log", default="", help="a folder for the output of each rank")
    parser.add_argument("user_script", help="the training script")
    parser.add_argument("user_args", nargs=argparse.REMAINDER)
    return parser.parse_args(arguments)


def devices_of(include: str, exclude: str, count: int) -> list[int]:
    """The GPUs of this host that --include and --exclude leave."""
    if include and exclude:
        raise SystemExit("deepspeed: --include and --exclude contradict each other. Give one of them.")

    def listed(text: str) -> list[int]:
        host, _, slots = text.partition(":")
        if "@" in text or host not in ("localhost", "127.0.0.1", ""):
            raise SystemExit(f"deepspeed: {text} names another host. Start the command on each host with --no_ssh.")
        return [int(slot) for slot in slots.split(",")] if slots else list(range(count))

    if include:
        return listed(include)
    dropped = set(listed(exclude)) if exclude else set()
    return [device for device in range(count) if device not in dropped]


def torchrun_arguments(options: argparse.Namespace) -> list[str]:
    """What torchrun is called with."""
    if options.num_nodes > 1 and not options.no_ssh:
        raise SystemExit(
            "deepspeed: several hosts need --no_ssh here: start the command on each host with --node_rank, "
            "--master_addr and --num_nodes."
        )
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 1
    if options.include or options.exclude:
        devices = devices_of(options.include, options.exclude, count)
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(str(device) for device in devices)
        count = len(devices)
    ranks = options.num_gpus if options.num_gpus > 0 else count
    result = [f"--nproc_per_node={ranks}", f"--nnodes={options.num_nodes}", f"--node_rank={options.node_rank}"]
    result += [f"--master_addr={options.master_addr or '127.0.0.1'}", f"--master_port={options.master_port}"]
    if options.enable_each_rank_log:
        result += [f"--log_dir={options.enable_each_rank_log}", "--redirects=3"]
    if options.module:
        result.append("--module")
    if options.no_python:
        result.append("--no_python")
    return [*result, options.user_script, *options.user_args]


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    from torch.distributed.run import main as run

    if not options.no_local_rank and not options.no_python:
        options.user_args = [options.user_script, *options.user_args]
        if options.module:
            options.user_args.insert(0, "-m")
        options.user_script, options.module = "deepspeed.launcher.with_local_rank", True
    run(torchrun_arguments(options))


if __name__ == "__main__":
    sys.exit(main())
