"""Events for Prefect's event feed, so that automations can react: a version was registered."""

from __future__ import annotations

from tasks.results.run import RunResult

REGISTERED = "limbeck.model-version.registered"
"""The event for each new version, emitted after the decision on its aliases. Its payload: name, version, candidate,
decision, aliases, recipe."""


def announce(result: RunResult) -> None:
    """Emit an event for each new version of a finished run. Prefect sends events in the background, so they cannot fail
    a run."""
    from prefect.events import emit_event

    for entry in result.registered:
        if entry.new:
            name, version = entry.name, entry.version
            resource = {
                "prefect.resource.id": f"limbeck.model-version.{name}.{version}",
                "prefect.resource.name": f"{name} version {version}",
            }
            payload = {
                "name": name,
                "version": version,
                "recipe": result.recipe,
                "candidate": entry.candidate,
                "decision": entry.decision,
                "aliases": list(entry.aliases or ()),
            }
            emit_event(REGISTERED, resource=resource, payload=payload)
