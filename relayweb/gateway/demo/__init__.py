"""A provider inside the process and an agent that uses it, so that everything can be seen without network or key."""

from relayweb.gateway.demo.turn import ensure_demo_intercept, run_turn

__all__ = ["ensure_demo_intercept", "run_turn"]
