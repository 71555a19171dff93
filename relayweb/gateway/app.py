async def application(scope, receive, send):  # type: ignore[no-untyped-def]
    raise NotImplementedError
