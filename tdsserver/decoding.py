"""RPC parameters from the wire: their types and storage values ([MS-TDS] 2.2.6.6)."""

from __future__ import annotations

import decimal
import struct
import uuid
from dataclasses import dataclass

from tdsserver import values
from tdsserver.errors import SqlError
from tdsserver.sqltype import MAX, SqlType, make

NO_VALUE = 0xFFFFFFFFFFFFFFFF
_FIXED = {
    0x30: ("tinyint", "<B"),
    0x32: ("bit", "<B"),
    0x34: ("smallint", "<h"),
    0x38: ("int", "<i"),
    0x7F: ("bigint", "<q"),
    0x3E: ("float", "<d"),
    0x3B: ("real", "<f"),
}
_INTEGERS = {1: "tinyint", 2: "smallint", 4: "int", 8: "bigint"}
_STRINGS = {0xE7: "nvarchar", 0xEF: "nchar", 0xA7: "varchar", 0xAF: "char", 0xA5: "varbinary", 0xAD: "binary"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a call. `output` is True if the client wants its value back."""

    name: str
    type: SqlType
    value: object
    output: bool


class Reader:
    """Reads a message from front to back; raises SqlError 4002 where it ends too soon."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def take(self, count: int) -> bytes:
        """Read the next `count` bytes."""
        found = self._content[self._at : self._at + count]
        if len(found) < count:
            raise SqlError(
                4002,
                "The incoming tabular data stream (TDS) protocol stream is incorrect. The stream ended unexpectedly.",
            )
        self._at += count
        return found

    def u1(self) -> int:
        """Read one byte."""
        return self.take(1)[0]

    def u2(self) -> int:
        """Read two bytes, little endian."""
        return int.from_bytes(self.take(2), "little")

    def u4(self) -> int:
        """Read four bytes, little endian."""
        return int.from_bytes(self.take(4), "little")

    @property
    def left(self) -> int:
        """The number of bytes that are left."""
        return len(self._content) - self._at

    def headers(self) -> None:
        """Skip ALL_HEADERS."""
        total = self.u4()
        self.take(total - 4)

    def parameter(self) -> Parameter:
        """Read one parameter of a call."""
        name = self.take(2 * self.u1()).decode("utf-16-le").lower()
        status = self.u1()
        kind, value = self._typed()
        return Parameter(name, kind, value, bool(status & 1))

    def _typed(self) -> tuple[SqlType, object]:
        code = self.u1()
        if code in _FIXED:
            name, form = _FIXED[code]
            return SqlType(name), struct.unpack(form, self.take(struct.calcsize(form)))[0]
        if code == 0x1F:
            return SqlType("int"), None
        if code in (0x26, 0x68, 0x6D, 0x24, 0x6F, 0x6E):
            return self._short(code)
        if code in (0x6A, 0x6C, 0x37, 0x3F):
            return self._decimal(code)
        if code in (0x28, 0x29, 0x2A, 0x2B):
            return self._temporal(code)
        if code in _STRINGS:
            return self._string(code)
        if code in (0x63, 0x23, 0x22):
            self.u4()
            if code != 0x22:
                self.take(5)
            size = self.u4()
            name = {0x63: "nvarchar", 0x23: "varchar", 0x22: "varbinary"}[code]
            return SqlType(name, MAX), None if size == 0xFFFFFFFF else self._content_of(name, self.take(size))
        if code == 0xF1:
            if self.u1():
                raise SqlError(50001, "The test server does not read xml with a schema.")
            return SqlType("xml"), self._content_of("nvarchar", self._partial())
        if code == 0xF0:
            for _ in range(3):
                self.take(2 * self.u1())
            return SqlType("varbinary", MAX), self._partial()
        raise SqlError(50001, f"The test server does not read parameters of the type 0x{code:02x}.")

    def _short(self, code: int) -> tuple[SqlType, object]:
        width = self.u1()
        size = self.u1()
        data = self.take(size)
        if code == 0x26:
            kind = SqlType(_INTEGERS[width])
            return kind, int.from_bytes(data, "little", signed=width > 1) if size else None
        if code == 0x68:
            return SqlType("bit"), int(data[0] != 0) if size else None
        if code == 0x6D:
            kind = SqlType("float" if width == 8 else "real")
            return kind, struct.unpack("<d" if size == 8 else "<f", data)[0] if size else None
        if code == 0x24:
            return SqlType("uniqueidentifier"), values.guid_bytes(uuid.UUID(bytes_le=data)) if size else None
        if code == 0x6E:
            kind = SqlType("money" if width == 8 else "smallmoney")
            if not size:
                return kind, None
            number = struct.unpack("<i", data)[0]
            if size == 8:
                high, low = struct.unpack("<iI", data)
                number = high << 32 | low
            return kind, decimal.Decimal(number).scaleb(-4)
        kind = SqlType("datetime" if width == 8 else "smalldatetime")
        if not size:
            return kind, None
        day, clock = struct.unpack("<iI" if size == 8 else "<HH", data)
        units = values.datetime_clock(clock) if size == 8 else clock * 600_000_000
        return kind, (day + values.EPOCH_1900) * values.DAY + units

    def _decimal(self, code: int) -> tuple[SqlType, object]:
        self.u1()
        precision, scale = self.u1(), self.u1()
        kind = SqlType("decimal" if code in (0x6A, 0x37) else "numeric", precision=precision or 1, scale=scale)
        data = self.take(self.u1())
        if not data:
            return kind, None
        with decimal.localcontext(prec=80):
            number = decimal.Decimal(int.from_bytes(data[1:], "little")).scaleb(-scale)
        return kind, number if data[0] else -number

    def _temporal(self, code: int) -> tuple[SqlType, object]:
        scale = self.u1() if code != 0x28 else 0
        data = self.take(self.u1())
        if code == 0x28:
            return SqlType("date"), int.from_bytes(data, "little") if data else None
        name = {0x29: "time", 0x2A: "datetime2", 0x2B: "datetimeoffset"}[code]
        kind = SqlType(name, scale=scale)
        if not data:
            return kind, None
        size = len(data) - {"time": 0, "datetime2": 3, "datetimeoffset": 5}[name]
        clock = int.from_bytes(data[:size], "little") * 10 ** (7 - scale)
        if name == "time":
            return kind, clock
        whole = int.from_bytes(data[size : size + 3], "little") * values.DAY + clock
        if name == "datetime2":
            return kind, whole
        return kind, values.offset_units(whole, struct.unpack("<h", data[-2:])[0])

    def _string(self, code: int) -> tuple[SqlType, object]:
        name = _STRINGS[code]
        limit = self.u2()
        if name.endswith("char"):
            self.take(5)
        if limit == 0xFFFF:
            return SqlType(name, MAX), self._content_of(name, self._partial())
        size = self.u2()
        length = max(1, limit // 2 if name.startswith("n") else limit)
        return make(name, [length]), None if size == 0xFFFF else self._content_of(name, self.take(size))

    def _partial(self) -> bytes | None:
        if int.from_bytes(self.take(8), "little") == NO_VALUE:
            return None
        found = bytearray()
        while size := self.u4():
            found += self.take(size)
        return bytes(found)

    def _content_of(self, name: str, data: bytes | None) -> object:
        if data is None or name.endswith("binary"):
            return data
        return data.decode("utf-16-le") if name.startswith("n") else data.decode("cp1252", "replace")
