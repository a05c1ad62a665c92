"""Whether the package that a monitor needs is there."""

from __future__ import annotations

import importlib.util

import shoal

_SECTIONS = {"tensorboard": "tensorboard", "wandb": "wandb", "comet_ml": "comet"}


def missing(package: str) -> str:
    """A sentence if it is not installed, else nothing."""
    if importlib.util.find_spec(package) is not None:
        return ""
    return (
        f"[config {_SECTIONS[package]}] the package {package} is not installed. Run `pip install {package}`, or log to csv_monitor, "
        "which needs none."
    )


def _check(package: str) -> None:
    if said := missing(package):
        raise shoal.Error(said)


def check_tb_availability() -> None:
    _check("tensorboard")


def check_wandb_availability() -> None:
    _check("wandb")


def check_comet_availability() -> None:
    _check("comet_ml")
