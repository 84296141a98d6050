"""Functions have a limited number of parameters and are compiled in one way."""

from __future__ import annotations

from tests.architecture import sources

MOST_PARAMETERS = 10
COMPILERS = frozenset({"numba", "njit", "jit", "vectorize", "guvectorize", "generated_jit"})


def test_no_function_has_many_parameters() -> None:
    counts = [
        (module.name, function.name, function.parameters)
        for module in sources.modules()
        for function in module.functions
    ]
    assert len(counts) > 1000
    assert [found for found in counts if found[2] > MOST_PARAMETERS] == []


def test_functions_are_compiled_in_one_way() -> None:
    compilers = {("numba", name) for name in COMPILERS} | {("", "numba")}
    found = {module.name for module in sources.modules() if module.taken & compilers}
    assert found <= {"kernels/compiled.py"}
