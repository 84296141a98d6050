"""Compilation of the kernels that tests use, unless they are compiled for these sources: `python -m tests.kernels`.

A kernel is compiled on its first call. Without this step, parallel tests would compile the same kernels in every
process, and a test that waits for its query would wait for the compiler. So golden cases that reach nearly all kernels
run here first, in two processes, and in a third one properties that reach the others.
Their results are judged by the tests, not here.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numba

import tailrace
from tests.golden import runner
from tests.lanes import BUILD

KEPT = BUILD / "kernels"
"""The file with the digest of the sources whose kernels are compiled."""
CASES: tuple[tuple[str, ...], ...] = (
    (
        "sqlserver-1.0/types",
        "postgres-1.7/mask_hash_types",
        "postgres-1.7/mask_types",
        "postgres-1.7/propagate_datatypes",
        "postgres-1.7/schema_change_types",
        "postgres-1.7/toast_types",
        "postgres-1.7/types_decimal_string",
        "postgres-1.7/types_default",
        "postgres-encodings/avro_types",
        "postgres-transforms/outbox_expand",
        "postgres-transforms/partition_java",
        "postgres-transforms/partition_murmur",
        "postgres-transforms/timezone_include",
        "postgres/types_decimal_string",
    ),
    (
        "mongodb-1.1/types",
        "mongodb-1.1/field_blacklist",
        "mongodb-1.1/oplog_unwrap",
        "mongodb-1.1/unwrap",
        "mongodb-3/types",
        "mongodb-3/capture_change_streams",
        "mongodb-3/incremental_snapshot",
        "mongodb-3/outbox",
    ),
)
"""The names of golden cases for each process."""
PROPERTIES = "binlog_json", "binlog_last_changes", "binlog_rows", "binlog_together", "field_edits", "protobuf"
"""The names of properties that reach the kernels of binary logs, of edits in documents and of Protocol Buffers."""


def main() -> int:
    """Compile missing kernels, and print how long that took."""
    began = time.monotonic()
    found = digest()
    if KEPT.exists() and KEPT.read_text("utf-8") == found:
        print("kept from an earlier run")
        return 0
    with ProcessPoolExecutor(len(CASES), multiprocessing.get_context("spawn")) as pool, properties() as third:
        for text in pool.map(compiled, CASES):
            if text:
                print(text)
        third.wait()
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    KEPT.write_text(found, "utf-8")
    print(f"compiled in {time.monotonic() - began:.0f} s")
    return 0


def digest() -> str:
    """Return a digest of everything that a compilation of kernels depends on."""
    root = Path(tailrace.__file__).parent
    parts = [f"{sys.version} {numba.__version__} {root}".encode()]
    parts += [path.read_bytes() for path in sorted(root.rglob("*.py"))]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def compiled(names: tuple[str, ...]) -> str:
    """Run the golden cases of these names. Return why some were not run."""
    cases = {case.name: case for case in runner.all_cases()}
    skipped = []
    with runner.Servers() as servers:
        for name in names:
            if name in cases and (reason := servers.run(cases[name], None).skipped):
                skipped.append(f"{name}: {reason}")
    return "\n".join(skipped)


def properties() -> subprocess.Popen[bytes]:
    """Begin a run of the properties, with few examples."""
    files = [str(Path(__file__).with_name("property") / f"test_{name}.py") for name in PROPERTIES]
    asked = [sys.executable, "-m", "pytest", "--quick", "--quiet", *files]
    return subprocess.Popen(asked, cwd=BUILD.parents[1], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
