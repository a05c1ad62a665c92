"""deepspeed.ops."""

from deepspeed.ops import adagrad, adam, lion, op_builder  # noqa: F401
from deepspeed.ops.op_builder import __compatible_ops__  # noqa: F401
