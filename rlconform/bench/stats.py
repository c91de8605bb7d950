"""From timings to a summary."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlconform.bench.document import Summary


def summarize(values: Sequence[float]) -> Summary:
    """Quantiles of the sample, linear between the nearest two.

    Raises:
        ValueError: No values.
    """
    if not values:
        raise ValueError("nothing was measured")
    low, p25, median, p75, p99, high = np.quantile(values, [0, 0.25, 0.5, 0.75, 0.99, 1]).tolist()
    return Summary(n=len(values), median=median, p25=p25, p75=p75, p99=p99, min=low, max=high)
