"""The documents of files that `shoal tokenize` is given, one after the other, without holding a file in memory.

A file of lines of JSON (.jsonl, .ndjson) or of rows (.parquet) is a document a row, which is one of its fields; lines may be
compressed (.jsonl.gz). Rows of conversations are read whole. Any other file is a document of UTF-8, and one that looks like rows is
refused: its braces would be learned.
"""

import gzip
import json
import os
import zlib
from pathlib import Path

LFS_POINTER = b"version https://git-lfs.github.com/spec/"
LINES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
LOOK = 1 << 16  # bytes that say whether a file holds rows
LARGEST_LINE = 256 << 20  # a file without line ends is no file of lines


class Failed(Exception):
    """A message of the form `[place] what is wrong. What to do.`"""

    def __init__(self, place, message, code=1):
        super().__init__(f"[{place}] {message}")
        self.place, self.message, self.code = place, message, code


def refuse_lfs_pointer(file, place):
    """What a clone holds of a large file until Git LFS fetches it. The same as src/base/lfs_pointer.cpp."""
    with open(file, "rb") as stream:
        if stream.read(len(LFS_POINTER)) != LFS_POINTER:
            return
    raise Failed(place, "is a pointer of Git LFS and not the file itself. Fetch it: run `git lfs pull` in its folder.", 2)


def find_files(paths):
    files = []
    for path in map(Path, paths):
        if path.is_dir():
            found = []
            for folder, folders, names in os.walk(path):
                folders[:] = [name for name in folders if not name.startswith(".")]
                found += [os.path.join(folder, name) for name in names if not name.startswith(".")]
            files += sorted(found)
        elif path.is_file():
            files.append(str(path))
        else:
            raise Failed(f"tokenize {path}", "does not exist. Give a text file, or a folder of them.", 2)
    files = [file for file in files if os.path.getsize(file) > 0]
    if not files:
        raise Failed("tokenize", "there is no text in what was given. Give a file with text in it.", 2)
    return files


def has_rows(file):
    return file.lower().endswith((*LINES, ".parquet"))


def documents_of(file, field):
    """Pairs of a document and how many bytes of the file have been read by then."""
    place = f"tokenize {file}"
    refuse_lfs_pointer(file, place)
    try:
        if file.lower().endswith(".parquet"):
            for row, where, read in _rows_of_parquet(file, field, place):
                yield _field_of(row, field, where), read
        elif file.lower().endswith(LINES):
            for row, where, read in _rows_of_lines(file, place):
                yield _field_of(row, field, where), read
        else:
            refuse_rows(file, place)
            yield _text_of(file, place), os.path.getsize(file)
    except OSError as error:  # gzip's own have no strerror
        raise Failed(place, f"cannot be read: {error.strerror or error}. Give a file that can.", 2) from None


def rows_of(file):
    """Of a file of rows: each with its place for messages, and how many bytes of the file have been read by then."""
    place = f"tokenize {file}"
    refuse_lfs_pointer(file, place)
    try:
        yield from _rows_of_parquet(file, None, place) if file.lower().endswith(".parquet") else _rows_of_lines(file, place)
    except OSError as error:
        raise Failed(place, f"cannot be read: {error.strerror or error}. Give a file that can.", 2) from None


def refuse_rows(file, place):
    """Rows of JSON in a file that is named otherwise: its first line alone is an object. The same as src/train/text_source.cpp."""
    with open(file, "rb") as stream:
        line = stream.read(LOOK).split(b"\n")[0].removeprefix(b"\xef\xbb\xbf")
    if not line.startswith(b"{") or len(line) == LOOK:
        return
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):  # a document that begins with a brace
        return
    if isinstance(row, dict):
        raise Failed(place, "holds rows of JSON, and its braces and names of fields would be tokens too. Name it .jsonl.", 2)


def _text_of(file, place):
    try:
        with open(file, encoding="utf-8-sig", newline="") as stream:  # a mark at the beginning is no text
            return stream.read()
    except UnicodeDecodeError as error:
        raise Failed(place, f"byte {error.start} is not UTF-8. Convert the file, or leave it out.", 2) from None


def _rows_of_lines(file, place):
    with open(file, "rb") as raw:
        stream = gzip.GzipFile(fileobj=raw) if file.lower().endswith(".gz") else raw
        number = 0
        while line := _next_line(stream, f"{place}, line {number + 1}"):
            number += 1
            if not line.strip(b" \t\r\n"):
                continue
            where = f"{place}, line {number}"
            try:
                row = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
            except UnicodeDecodeError as error:
                raise Failed(where, f"byte {error.start} of it is not UTF-8. Convert the file.", 2) from None
            except (ValueError, RecursionError) as error:
                raise Failed(where, f"is not JSON: {error}. Correct it; a file of plain text is named otherwise, .txt for instance.", 2) from None
            if not isinstance(row, dict):
                raise Failed(where, "is no object with fields. Correct it.", 2)
            yield row, where, raw.tell()


def _next_line(stream, where):
    try:
        line = stream.readline(LARGEST_LINE)
    except (EOFError, zlib.error) as error:
        raise Failed(where, f"the compressed file is damaged or cut off: {error}. Fetch it again.", 2) from None
    if len(line) >= LARGEST_LINE:
        raise Failed(where, f"has no end within {LARGEST_LINE >> 20} MiB. Put each row on a line of its own.", 2)
    return line


def _field_of(row, field, where):
    if field not in row:
        named = ", ".join(list(row)[:8]) or "none"
        raise Failed(where, f"has no field {field!r}. Its fields: {named}. Name the one that holds the text with --field.", 2)
    text = row[field]
    if not isinstance(text, str):
        kind = "null" if text is None else type(text).__name__
        raise Failed(where, f"the field {field!r} is {kind} and no text. Leave the row out, or name another field with --field.", 2)
    try:
        text.encode()
    except UnicodeEncodeError:  # "\ud800" is valid JSON and no character
        raise Failed(where, f"the field {field!r} holds half of a surrogate pair, which is no text. Correct it.", 2) from None
    return text


def _rows_of_parquet(file, field, place):
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise Failed(place, "reading it takes the package pyarrow. Install it, or convert the file to .jsonl.", 2) from None
    try:
        with parquet.ParquetFile(file) as table:
            names, total, size, number = table.schema_arrow.names, table.metadata.num_rows, os.path.getsize(file), 0
            if field is not None and field not in names:
                _field_of(dict.fromkeys(names), field, place)
            for batch in table.iter_batches(batch_size=256, columns=None if field is None else [field]):
                for row in batch.to_pylist():
                    number += 1
                    yield row, f"{place}, row {number}", size * number // total
    except pyarrow.ArrowException as error:
        raise Failed(place, f"is no Parquet file that can be read: {error}. Give one that can.", 2) from None
