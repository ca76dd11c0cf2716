"""Checks of a request for an alias or a deletion against the registry, before anything is compared or changed. A
command checks before it starts a server, and a decision checks again under its lock."""

from __future__ import annotations

from tasks.errors import RecipeError, RegistryError
from tasks.gate.promotion import BY_HAND
from tasks.ports.files.sources import nearest
from tasks.ports.tracking.registry import Registry, RegistryState


def require_known_alias(alias: str) -> None:
    """Raise RecipeError for an alias that nobody can assign."""
    if alias not in BY_HAND:
        hint = nearest(alias, BY_HAND) or f"; choose one of {', '.join(BY_HAND)}"
        raise RecipeError(f"{alias!r} is not an alias that can be assigned{hint}")


def require_reason(force: bool, reason: str) -> None:
    """Raise RecipeError for an override of the gate without a reason."""
    if force and not reason.strip():
        raise RecipeError("--force overrides the gate: give the reason with --reason, for the history")


def requested_version(registry: Registry, standing: RegistryState, version: str | None) -> str:
    """Return the number of a version given by number or alias; by default the challenger's. Raises RegistryError for an
    unknown model or version."""
    name = registry.name
    if not standing.versions:
        raise RegistryError(registry.tracker.unknown_model(name))
    known = ", ".join(sorted(standing.versions, key=int))
    if version is None and "challenger" not in standing.aliases:
        raise RegistryError(f"{name} has no challenger; name a version, it has {known}")
    number = standing.aliases.get(version or "challenger", version or "")
    if number not in standing.versions:
        raise RegistryError(f"{name} has no version {number}{nearest(number, standing.aliases) or f'; it has {known}'}")
    return number


def deletable_version(registry: Registry, standing: RegistryState, version: str) -> str:
    """Return the number of a version without alias; raise RegistryError for an aliased one, which MLflow itself would
    delete, together with its alias."""
    number = requested_version(registry, standing, version)
    names = sorted(alias for alias, held in standing.aliases.items() if held == number)
    if names:
        raise RegistryError(
            f"{registry.name} version {number} is {', '.join(names)}: a version with an alias cannot be deleted; "
            f"promote another version first"
        )
    return number


def require_promotable(registry: Registry, version: str | None, alias: str, force: bool, reason: str) -> None:
    """Refuse a promotion that no comparison could allow."""
    require_known_alias(alias)
    require_reason(force, reason)
    requested_version(registry, registry.read(), version)


def require_rollback(registry: Registry) -> None:
    """Refuse a rollback where no earlier champion is known."""
    standing = registry.read()
    if "previous" not in standing.aliases:
        raise RegistryError(
            f"{registry.name} cannot be rolled back: no alias previous: there is no earlier champion; see limbeck show "
            f"{registry.name}"
        )


def require_deletable(registry: Registry, version: str) -> None:
    """Refuse a deletion of an unknown version, or of one with an alias."""
    deletable_version(registry, registry.read(), version)
