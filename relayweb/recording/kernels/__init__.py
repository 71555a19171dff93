"""The loops over bytes and numbers in which recording would spend most of its time.

Compiled where the machine that installed relayweb has a C compiler (`compiled.pyx`, see `hatch_build.py`), in Python
elsewhere (`plain`, where each is described), which gives the same and takes longer.
"""

from __future__ import annotations

from relayweb.recording.kernels.plain import Cut

try:
    from relayweb.recording.kernels.compiled import (
        Generations,
        Names,
        Signs,
        identity,
        is_deeper,
        make_holes,
        mark_parts,
        pack,
        pack_differences,
        plan,
        plan_inside,
        split_uuids,
        write_deltas,
        write_varint,
    )

    COMPILED = True
except ImportError:
    from relayweb.recording.kernels.plain import (
        Generations,
        Names,
        Signs,
        identity,
        is_deeper,
        make_holes,
        mark_parts,
        pack,
        pack_differences,
        plan,
        plan_inside,
        split_uuids,
        write_deltas,
        write_varint,
    )

    COMPILED = False

__all__ = [
    "COMPILED",
    "Cut",
    "Generations",
    "Names",
    "Signs",
    "identity",
    "is_deeper",
    "make_holes",
    "mark_parts",
    "pack",
    "pack_differences",
    "plan",
    "plan_inside",
    "split_uuids",
    "write_deltas",
    "write_varint",
]
