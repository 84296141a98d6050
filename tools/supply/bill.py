"""The software bill of materials as CycloneDX 1.6: `python -m tools.supply.bill [FILE]`.

The bill is made of the lock and the list of jars alone, without times and random numbers, so the same tree gives the
same bytes on every machine.
"""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path
from typing import Any

from tailrace import __version__
from tools.supply.parts import PRODUCT, ROOT, Part, jars, packages

TARGET = ROOT / "build" / "tailrace.cdx.json"
_SCHEMA = "http://cyclonedx.org/schema/bom-1.6.schema.json"
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "pkg:pypi/tailrace")

Bill = dict[str, Any]


def bill(parts: list[Part]) -> Bill:
    """Return the bill of the parts; a package that depends on markers may be in it in several versions."""
    product = f"pkg:pypi/tailrace@{__version__}"
    licence = {"licenses": [{"expression": "Apache-2.0"}]}
    content: Bill = {
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": product,
                "name": "tailrace",
                "version": __version__,
                **licence,
                "purl": product,
            }
        },
        "components": [_component(part) for part in parts],
        "dependencies": _dependencies(product, parts),
    }
    text = json.dumps(content, sort_keys=True)
    head = {"$schema": _SCHEMA, "bomFormat": "CycloneDX", "specVersion": "1.6"}
    return head | {"serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, text)}", "version": 1} | content


def _component(part: Part) -> Bill:
    hashes = [{"alg": "SHA-256", "content": found} for found in part.hashes]
    made: Bill = {"type": "library", "bom-ref": part.purl, "name": part.name, "version": part.version}
    if part.group:
        made["group"] = part.group
    made["scope"] = part.scope
    if part.licence:
        made["licenses"] = [_licence(part.licence)]
    made["purl"] = part.purl
    if part.kind == "maven":
        made["hashes"] = hashes
    else:
        # A package has a file for each platform; any of them is the package.
        made["externalReferences"] = [{"type": "distribution", "url": part.purl, "hashes": hashes}]
    if part.marker:
        made["properties"] = [{"name": "tailrace:marker", "value": part.marker}]
    return made


def _licence(text: str) -> Bill:
    """Return a licence: an SPDX expression or, after `name:`, the name of a licence that SPDX does not list."""
    name = text.removeprefix("name:")
    return {"expression": text} if name == text else {"license": {"name": name.strip()}}


def _dependencies(product: str, parts: list[Part]) -> list[Bill]:
    references: dict[str, list[str]] = {PRODUCT: [product]}
    for part in parts:
        references.setdefault(part.name, []).append(part.purl)
    on: dict[str, list[str]] = {product: [], **{part.purl: [] for part in parts}}
    for part in parts:
        for parent in part.wanted_by:
            for reference in references[parent]:
                on[reference].append(part.purl)
    return [{"ref": reference, "dependsOn": sorted(set(on[reference]))} for reference in sorted(on)]


def main(arguments: list[str]) -> int:
    """Write the bill to the given file, or else below build/."""
    parts = [*packages(), *jars()]
    target = Path(arguments[0]) if arguments else TARGET
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(bill(parts), indent=1) + "\n", "utf-8")
    unknown = [part.name for part in parts if not part.licence]
    print(f"{len(parts)} parts in {target}" + (f"; without a licence: {', '.join(unknown)}" if unknown else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
