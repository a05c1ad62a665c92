"""Writes a token file (docs/formats/tokens.md), with where documents end and which tokens are learned."""

import os
import secrets
import struct
import sys
from array import array

from documents import Failed

MAGIC = b"SHOALTOK"
PLAIN, WITH_DOCUMENTS = 1, 2  # versions
BITS_TOGETHER = 1 << 16
DIGITS = bytes.maketrans(b"\0\1", b"01")


class TokenFile:
    """Written under a temporary name, renamed by finish(); without it nothing is left behind.

    Each end_document() ends one. A file of one document or none, unless it has a mask or is one of rows, is as version 1 has it, and says
    of neither ends nor masks.
    """

    def __init__(self, path, vocab, masked=False, rows=False):
        self.path, self.vocab, self.masked, self.rows = path, vocab, masked, rows
        self.count = self.learned = 0
        self.width = 2 if vocab <= 1 << 16 else 4
        self.ends, self.mask, self.bits = array("Q"), bytearray(), bytearray()
        # Another maker may be on another host, with the same number of a process.
        self.temporary = f"{path}.{secrets.token_hex(8)}.tmp"
        try:
            self.stream = open(self.temporary, "xb")
        except OSError as error:
            raise Failed(f"tokenize {path}", f"cannot be written: {error.strerror}. Give another -o.") from None
        self.stream.write(self._header(PLAIN))

    def _header(self, version):
        return MAGIC + struct.pack("<IIQQ", version, self.width, self.vocab, self.count)

    def append(self, ids, learned=None):
        """`learned`: a byte 0 or 1 for each token, of a file with a mask."""
        self.stream.write(_little(array("H" if self.width == 2 else "I", ids)))
        self.count += len(ids)
        if self.masked:
            self.bits += learned
            self.learned += sum(learned)
            if len(self.bits) >= BITS_TOGETHER:
                self._pack(len(self.bits) // 8 * 8)

    def end_document(self):
        self.ends.append(self.count)

    def _pack(self, count):
        """The first bits, a multiple of 8, into the mask: token i is bit i % 8 of byte i / 8."""
        digits = bytes(self.bits[:count]).translate(DIGITS)[::-1]
        self.mask += int(digits, 2).to_bytes(count // 8, "little") if count else b""
        del self.bits[:count]

    def finish(self):
        with_documents = self.masked or self.rows or len(self.ends) > 1
        if with_documents:
            nbytes = 32 + self.width * self.count
            self.stream.write(bytes(-nbytes % 8))
            if self.masked:
                self.bits += bytes(-len(self.bits) % 8)
                self._pack(len(self.bits))
                self.stream.write(self.mask + bytes(-len(self.mask) % 8))
            self.stream.write(_little(self.ends))
            learned = self.learned if self.masked else self.count
            self.stream.write(struct.pack("<QQQ", len(self.ends), learned, int(self.masked)))
        self.stream.seek(0)
        self.stream.write(self._header(WITH_DOCUMENTS if with_documents else PLAIN))
        self.stream.flush()
        os.fsync(self.stream.fileno())
        self.stream.close()
        os.replace(self.temporary, self.path)

    def abandon(self):
        self.stream.close()
        if os.path.exists(self.temporary):
            os.unlink(self.temporary)


def _little(numbers):
    if sys.byteorder == "big":
        numbers = array(numbers.typecode, numbers)
        numbers.byteswap()
    return numbers.tobytes()
