"""What tests of several files share with pytest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.system import WINDOWS

collect_ignore = ["windows"] if WINDOWS else []
"""What drives a Windows Python from outside."""


@pytest.fixture(scope="session")
def tf() -> Any:
    """TensorFlow, whose import takes long; the tests with it can be left out by their marker."""
    return pytest.importorskip("tensorflow")


def pytest_collection_modifyitems(items: Iterable[pytest.Function]) -> None:
    for item in items:
        if "tf" in item.fixturenames:
            item.add_marker(pytest.mark.tensorflow)
