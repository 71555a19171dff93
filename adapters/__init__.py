"""The relay adapter core: typed Python over NVIDIA NeMo Relay."""
