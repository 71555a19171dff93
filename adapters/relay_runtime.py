"""Relay runtimes per profile, with their sessions, turns and sub-agents: the public face of the core's scopes.

A host acquires a conversation, begins a turn in it, makes its calls (`adapters.relay_llm`), ends the turn and releases
the conversation::

    lease = SESSION_COORDINATOR.acquire_conversation(profile_key=current_profile_key(), session_id="s1", platform="cli")
    lease.host.retain_managed_execution("my-host")
    turn = SESSION_COORDINATOR.begin_turn(lease, turn_id="t1", task_id="")
    ...
    SESSION_COORDINATOR.end_turn(turn, outcome="success")
    SESSION_COORDINATOR.release_conversation(lease)
"""

from __future__ import annotations

from adapters.coordinator import (
    SESSION_COORDINATOR,
    SessionCoordinator,
    canonical_profile,
    current_profile_key,
    existing_runtime,
    get_runtime,
    install_runtime,
    reset_for_tests,
    shutdown_all,
    use_profile,
)
from adapters.places import resolve_execution_context
from adapters.runtime_host import NoopRelayRuntime, RelayRuntime, RuntimeClosed
from adapters.scopes import NativeTimeout, Scope
from adapters.sessions import (
    LOGICAL_LLM_SCOPE,
    RUNTIME_INSTANCE_KEY,
    RUNTIME_SCHEMA_KEY,
    RUNTIME_SCHEMA_VERSION,
    SESSION_SCOPE,
    TURN_SCOPE,
    ConversationLease,
    LogicalCall,
    RelaySession,
    RelayTurnContext,
    active_turn,
    current_turn,
)

__all__ = [
    "LOGICAL_LLM_SCOPE",
    "RUNTIME_INSTANCE_KEY",
    "RUNTIME_SCHEMA_KEY",
    "RUNTIME_SCHEMA_VERSION",
    "SESSION_COORDINATOR",
    "SESSION_SCOPE",
    "TURN_SCOPE",
    "ConversationLease",
    "LogicalCall",
    "NativeTimeout",
    "NoopRelayRuntime",
    "RelayRuntime",
    "RelaySession",
    "RelayTurnContext",
    "RuntimeClosed",
    "Scope",
    "SessionCoordinator",
    "active_turn",
    "canonical_profile",
    "current_profile_key",
    "current_turn",
    "existing_runtime",
    "get_runtime",
    "install_runtime",
    "reset_for_tests",
    "resolve_execution_context",
    "shutdown_all",
    "use_profile",
]
