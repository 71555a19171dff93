"""What the inspector shows of one scope: bodies as messages, as JSON, as differences; streams as numbers.

Everything here takes whatever was recorded, however broken, and never raises because of it.
"""
