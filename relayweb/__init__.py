"""relayweb: see what your LLM agents really sent, what came back, and who changed it on the way."""

__version__ = "0.1.0"
