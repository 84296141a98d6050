"""Facts about the sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.house import __main__ as house
from tools.house.way import entered


def test_the_way_of_an_update_begins_with_its_task_and_ends_with_its_bytes() -> None:
    found = set(entered())
    assert {"log.rows.tasks", "connectors.postgres.protocol.decoder", "kernels.programs"} <= found
    assert not {name for name in found if name.startswith(("connectors.mongodb", "sinks", "spark"))}


def test_importers_are_found_at_whatever_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {
        "shop/__init__.py": "",
        "shop/goods.py": "class Price:\n    pass\n",
        "shop/till.py": "import shop.goods\nfrom shop import sale\n\n\ndef pay():\n    return 1\n",
        "shop/sale.py": "def sell():\n    from shop.goods import Price\n\n    return Price()\n",
        "shop/rooms/__init__.py": "",
        "shop/rooms/till.py": "class Price:\n    pass\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(house, "SOURCE", tmp_path)
    every = house.modules()
    needed = house.importers(every)
    assert needed == {"shop.goods": {"shop.till", "shop.sale"}, "shop.sale": {"shop.till"}}
    assert list(house.functions(every["shop.sale"])) == [("sell", 4)]
    assert house.repeated(every) == {
        "Price": ["shop.goods", "shop.rooms.till"],
        "till": ["shop.rooms.till", "shop.till"],
    }
    assert every["shop.rooms"].is_room
