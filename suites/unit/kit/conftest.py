"""Settings of the kit's own properties, where they set nothing themselves."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# The machine may be busy, and what one run found must not decide about the next. The checks of
# planes set each of these themselves.
settings.register_profile(
    "kit", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("kit")
