"""The figures under their stable names, from single measurements; their file and their table."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

RECEIVE, PEEK, COPY = "pg_recvlogical", "psql_peek", "psql_copy"
"""The baselines, as cases."""

PLAIN, PLAIN_SCHEMAS = "json", "json_schemas"
"""The cases with which transforms and encodings are compared: without and with schemas in records."""

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Measurement:
    """A run of one case. `group` holds together a case and the baselines right before and after it.

    Times are seconds, memory MiB. `other_cpu` is what processes that take no part used meanwhile; `steady_seconds`
    is None for a baseline; `log_bytes` is the size of the rows' messages in the log, 0 for a snapshot.
    """

    phase: str
    case: str
    round: int
    group: str
    rows: int
    seconds: float
    steady_seconds: float | None = None
    total_cpu: float = 0.0
    other_cpu: float = 0.0
    cpu: dict[str, float] = field(default_factory=dict)
    python_mib: float = 0.0
    jvm_mib: float = 0.0
    python_parts_mib: dict[str, float] = field(default_factory=dict)
    batches: list[tuple[int, int]] = field(default_factory=list)
    shared_python_mib: float = 0.0
    log_bytes: int = 0

    @property
    def is_baseline(self) -> bool:
        return self.case in (RECEIVE, PEEK, COPY)

    @property
    def name(self) -> str:
        """The beginning of the names of the case's figures."""
        return f"{self.phase}_{self.case}"


def figures(measurements: Sequence[Measurement]) -> dict[str, float]:
    """Return every figure by its name.

    A ratio is the rate of the case over the rate of a baseline, in the same round: the mean of the baseline's runs
    before and after. Of several rounds the median counts.
    """
    found: dict[str, float] = {}
    for name, runs in _by_name(measurements).items():
        found[f"{name}_seconds"] = _median(run.seconds for run in runs)
        found[f"{name}_per_second"] = _median(run.rows / run.seconds for run in runs)
        if runs[0].log_bytes:
            found[f"{name}_mb_per_second"] = _median(run.log_bytes / 1e6 / run.seconds for run in runs)
        found[f"{name}_cpu_seconds"] = _median(run.total_cpu for run in runs)
        found[f"{name}_other_cpu_seconds"] = _median(run.other_cpu for run in runs)
        if runs[0].is_baseline:
            continue
        found[f"{name}_steady_seconds"] = _median(run.steady_seconds or 0.0 for run in runs)
        found[f"{name}_events_per_cpu_second"] = _median(run.rows / run.total_cpu for run in runs if run.total_cpu)
        found[f"{name}_peak_rss_mib"] = max(run.python_mib for run in runs)
        found[f"{name}_peak_rss_jvm_mib"] = max(run.jvm_mib for run in runs)
        found |= _ratios(name, runs, measurements)
    if "stream_noop_events_per_cpu_second" in found:
        found["events_per_cpu_second"] = found["stream_noop_events_per_cpu_second"]
    own = [run for run in measurements if not run.is_baseline]
    if own:
        found["peak_rss_mib"] = max(run.python_mib for run in own)
        found["peak_pss_mib"] = max(run.shared_python_mib for run in own)
        found["peak_rss_jvm_mib"] = max(run.jvm_mib for run in own)
    return found


def _ratios(name: str, runs: Sequence[Measurement], measurements: Sequence[Measurement]) -> dict[str, float]:
    """Return the ratios of a case to the baselines in its groups, or to plain JSON in its groups."""
    found: dict[str, float] = {}
    if runs[0].case in (PLAIN, PLAIN_SCHEMAS):
        return found
    for infix, baselines in (("", (RECEIVE, COPY, PLAIN, PLAIN_SCHEMAS)), ("_peek", (PEEK,))):
        pairs = [(run, base) for run in runs if (base := _baseline(measurements, run, baselines)) is not None]
        if pairs:
            found[f"{name}{infix}_ratio"] = _median(base.seconds / run.seconds for run, base in pairs)
        if pairs and not infix:
            found[f"{name}_steady_ratio"] = _median(
                base.steady_seconds / run.steady_seconds for run, base in pairs if run.steady_seconds
            )
    return found


def _by_name(measurements: Sequence[Measurement]) -> dict[str, list[Measurement]]:
    groups: dict[str, list[Measurement]] = {}
    for measurement in measurements:
        groups.setdefault(measurement.name, []).append(measurement)
    return groups


@dataclass(frozen=True, slots=True)
class _Base:
    """The baseline of a case. A baseline has no batches, so its `steady_seconds` are all of its time."""

    seconds: float
    steady_seconds: float


def _baseline(measurements: Sequence[Measurement], run: Measurement, cases: Sequence[str]) -> _Base | None:
    """Return the means of the baselines `cases` in the group of `run`; None if there are none."""
    near = (run.phase, run.round, run.group)
    same = [other for other in measurements if other.case in cases]
    found = [other for other in same if (other.phase, other.round, other.group) == near]
    if not found:
        return None
    steady = (other.seconds if other.steady_seconds is None else other.steady_seconds for other in found)
    return _Base(statistics.fmean(other.seconds for other in found), statistics.fmean(steady))


def _median(values: Iterable[float]) -> float:
    found = list(values)
    return statistics.median(found) if found else 0.0


def write(path: Path, found: Mapping[str, float], context: Mapping[str, Any], runs: Sequence[Measurement]) -> None:
    """Write the figures at the top level of a JSON object, with the `context` and every single measurement."""
    content: dict[str, Any] = {name: round(value, 4) for name, value in found.items()}
    content |= {"context": dict(context), "measurements": [asdict(run) for run in runs]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def table(measurements: Sequence[Measurement], found: Mapping[str, float]) -> str:
    """Return a Markdown table with a line for each case, and then the figures that belong to no case."""
    head = [
        "case",
        "rows",
        "s",
        "steady s",
        "rows/s",
        "MB/s",
        "ratio",
        "peek",
        "steady",
        "CPU s",
        "other CPU s",
        "Python MiB",
        "JVM MiB",
    ]
    lines = [head, ["---"] + ["---:"] * (len(head) - 1)]
    for name, runs in _by_name(measurements).items():
        rows = f"{statistics.median_low([run.rows for run in runs]):,}"
        suffixes = ["seconds", "steady_seconds", "per_second", "mb_per_second", "ratio", "peek_ratio", "steady_ratio"]
        suffixes += ["cpu_seconds", "other_cpu_seconds"]
        texts = [_text(found.get(f"{name}_{suffix}"), suffix) for suffix in suffixes]
        memory = [_text(found.get(f"{name}_{suffix}"), suffix) for suffix in ("peak_rss_mib", "peak_rss_jvm_mib")]
        lines.append([name, rows, *texts, *memory])
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    latency = ("latency_p50_ms", "latency_p95_ms", "latency_p99_ms", "latency_max_ms")
    overall = ("events_per_cpu_second", "peak_rss_mib", "peak_pss_mib", "peak_rss_jvm_mib")
    beside = tuple(name for name in found if name.startswith("incremental_") or name == "snapshot_repeated_share")
    names = latency + overall + beside
    return text + "".join(f"\n{name}: {_text(found[name], name)}" for name in names if name in found)


def _text(value: float | None, name: str) -> str:
    if value is None:
        return ""
    if name.endswith("ratio"):
        return f"{value:.2f}"
    if name.endswith("per_second") or name.endswith("_mib") or name.endswith("_ms"):
        return f"{value:,.0f}"
    return f"{value:,.1f}"
