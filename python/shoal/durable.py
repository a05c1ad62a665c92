"""Files and folders that Python writes for checkpoints: synced, with checksums, and failing together on all ranks."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
import zipfile
from typing import Any, Callable, Iterator, NamedTuple

import torch

from shoal import _core

UNKNOWN_SECONDS = 24 * 3600  # without locks, a folder that nobody wrote to for so long is no living save's
UNLOCKED_SECONDS = 60  # from making a folder to locking it, at most


class Written(NamedTuple):
    """A file as it was written."""

    nbytes: int
    checksum: str  # XXH3, 64 bits, of the whole file


def together(world: _core.Group, part: Callable[[], None]) -> tuple[int, str] | None:
    """Does a rank's part, which must not communicate. The first rank that failed and why, the same on every rank; None: all went well."""
    said = ""
    try:
        part()
    except Exception as error:  # noqa: BLE001  whatever it is, the other ranks must not wait for this one
        said = str(error) or type(error).__name__
    return next(((rank, why) for rank, why in enumerate(_core.gather_texts(world, said)) if why), None)


def act_together(world: _core.Group, place: str, part: Callable[[], None]) -> None:
    """together(), and every rank raises the same if one rank's part failed."""
    failed = together(world, part)
    if failed is None:
        return
    rank, why = failed
    raise _core.Error(why if why.startswith("[") else f"[{place}] rank {rank}: {why}")


def write(path: str, values: Any) -> Written:
    """torch.save to a new file, synced; the checksum is taken of the bytes on their way."""
    with open(path, "wb") as file:
        sink = _Sink(file)
        try:
            torch.save(values, sink)
            file.flush()
            os.fsync(file.fileno())
        except Exception:
            if sink.error is not None:  # torch has words of its own for it
                raise sink.error from None
            raise
        return Written(sink.nbytes, sink.digest.text())


class _Sink:
    """What torch.save writes to. After an error it takes what torch still has to say and keeps nothing."""

    def __init__(self, file: Any):
        self.file = file
        self.digest = _core.DigestStream()
        self.nbytes = 0
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        nbytes = memoryview(data).nbytes
        if self.error is not None:
            return nbytes
        try:
            self.file.write(data)
        except OSError as error:
            self.error = error
            raise
        self.digest.add(data)
        self.nbytes += nbytes
        return nbytes

    def flush(self) -> None:
        if self.error is None:
            self.file.flush()


def write_text(path: str, text: str, mode: int | None = None) -> None:
    """In the place of what stands there, in one step, synced."""
    folder, name = os.path.split(os.path.abspath(path))
    temporary = os.path.join(folder, f".{name}.tmp-{os.urandom(9).hex()}")
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(temporary)
        raise
    sync(folder)


def read_text(path: str, place: str) -> str:
    check_regular(path, place)
    with open(path, encoding="utf-8") as file:
        return file.read()


def sync(folder: str) -> None:
    """Makes what was created, renamed or removed in a folder survive."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # some network file systems cannot, and do not need to
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_regular(path: str, place: str) -> None:
    """Raises unless it is a regular file: a FIFO would be waited for without end. A missing one is an OSError."""
    mode = os.stat(path).st_mode
    if stat.S_ISREG(mode):
        return
    kinds = ((stat.S_ISFIFO, "a FIFO"), (stat.S_ISDIR, "a folder"), (stat.S_ISSOCK, "a socket"))
    kind = next((name for test, name in kinds if test(mode)), "a device")
    raise _core.Error(f"[{place}] {path} is {kind}, not a regular file. Put the file there.")


def lock(folder: str) -> int:
    """Tells a living save from a dead one, until the descriptor is closed. Waits for a look of is_locked, which is short."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    with contextlib.suppress(OSError):  # a file system without locks: see is_alive
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def is_locked(folder: str) -> bool | None:
    """None: nobody knows, since the file system has no locks, as some network ones. False where there is no folder."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return False


def is_alive(folder: str) -> bool:
    """Whether a save may still be writing a folder: it holds the lock, or made the folder a moment ago and will take it. Where the
    file system has no locks, a save counts as alive until its folder was left untouched for 24 hours: what a killed one leaves
    there stays so long."""
    locked = is_locked(folder)
    if locked is not False:
        return bool(locked) or _seconds_untouched(folder) < UNKNOWN_SECONDS
    try:
        return not os.listdir(folder) and _seconds_untouched(folder) < UNLOCKED_SECONDS
    except OSError:
        return False


def _seconds_untouched(folder: str) -> float:
    """Since the last write to it or to anything in it."""
    times = []
    for path, _, names in os.walk(folder):
        for each in (path, *(os.path.join(path, name) for name in names)):
            with contextlib.suppress(OSError):
                times.append(os.lstat(each).st_mtime)
    return time.time() - max(times, default=0)


def damage_in_archive(path: str) -> str | None:
    """What is wrong with a file of torch.save by the checksums (CRC-32) of its records, which torch's reader does not look at;
    None: nothing is seen. The bytes between records have none."""
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
    except (zipfile.BadZipFile, NotImplementedError, EOFError, ValueError, RuntimeError, OverflowError) as error:
        return f"is no whole archive of torch.save ({str(error).splitlines()[0] if str(error) else type(error).__name__})"
    return f"is damaged: its record {damaged} has another checksum than when it was saved" if damaged is not None else None


@contextlib.contextmanager
def undone_on_error(undo: Callable[[], None]) -> Iterator[None]:
    """Whatever ends the block early, a signal too."""
    try:
        yield
    except BaseException:
        undo()
        raise
