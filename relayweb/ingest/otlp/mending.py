"""Protobuf messages with texts that are no UTF-8, which the protobuf library refuses whole."""

from __future__ import annotations

from collections.abc import Callable, MutableSequence
from functools import cache
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

_TEXT, _BYTES = FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_BYTES


def valid_texts(parse: Callable[[bytes], Any], data: bytes) -> bytes:
    """The same message with U+FFFD for what is no UTF-8 in its texts.

    Args:
        parse: the message class's `FromString`.

    Raises:
        DecodeError: it is no such message.
    """
    loose, texts = _loose(parse(b"").DESCRIPTOR)
    message = loose.FromString(data)
    waiting = [message]
    while waiting:
        found = waiting.pop()
        for field, value in found.ListFields():
            several = isinstance(value, MutableSequence)
            values = value if several else [value]
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                waiting += values
            elif field.full_name in texts:
                mended = [text.decode(errors="replace").encode() for text in values]
                if several:
                    value[:] = mended
                elif mended[0] != value:
                    setattr(found, field.name, mended[0])
    return bytes(message.SerializeToString())


@cache
def _loose(descriptor: Any) -> tuple[Any, frozenset[str]]:
    """A class for the same bytes that reads texts as bytes, and the names of the fields that hold texts."""
    pool, texts, added = descriptor_pool.DescriptorPool(), set[str](), set[str]()

    def loosen(message: Any, scope: str) -> None:
        for field in message.field:
            if field.type == _TEXT:
                field.type = _BYTES
                texts.add(f"{scope}.{message.name}.{field.name}")
        for inner in message.nested_type:
            loosen(inner, f"{scope}.{message.name}")

    def add(file: Any) -> None:
        if file.name in added:
            return
        added.add(file.name)
        for needed in file.dependencies:
            add(needed)
        told = FileDescriptorProto()
        file.CopyToProto(told)
        for message in told.message_type:
            loosen(message, told.package)
        pool.Add(told)

    add(descriptor.file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(descriptor.full_name)), frozenset(texts)
