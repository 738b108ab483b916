import numpy as np
from threadpoolctl import threadpool_info

from headwise.stats.blas import single_threaded_blas


def blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_blas_is_held_to_one_thread_and_let_go():
    np.ones((2, 2)) @ np.ones((2, 2))
    before = blas_threads()

    @single_threaded_blas
    def inside(number, *, more):
        """Says so."""
        return blas_threads(), number + more

    threads, total = inside(1, more=2)
    assert set(threads) == {1}
    assert total == 3
    assert blas_threads() == before
    assert inside.__doc__ == "Says so."
