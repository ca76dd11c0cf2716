"""The settings of a stack: chosen at its first start, and mostly fixed from then on."""

from __future__ import annotations

import os
from dataclasses import replace

from flows.home import Home
from flows.stack import supervision
from flows.stack.programs import SOFTWARE, need
from flows.stack.settings import INNER, Settings, Stack, StackOptions
from flows.stack.setup.certificates import NO_TLS_OPTIONS, TlsOptions
from flows.stack.setup.ports import HeldPorts
from flows.stack.setup.worker_user import choose_worker_user
from tasks.errors import StackError


def choose(home: Home, wanted: StackOptions, held: HeldPorts, tls: TlsOptions = NO_TLS_OPTIONS) -> Stack:
    """Return the existing stack with the changes asked for, or a new one; refuse to change fixed settings. Its ports
    are held until their holder is closed."""
    stack = Stack.of(home)
    if stack.is_new:
        return new_stack(stack, wanted, held, tls)
    old = stack.settings
    fixed = {"s3": wanted.get("s3"), "buckets": wanted.get("buckets"), "host": wanted.get("host")}
    for name, value in fixed.items():
        if value is not None and value != getattr(old, name):
            raise StackError(
                f"this stack has {name} {getattr(old, name)!r}, chosen at its first start; to change it, back the "
                f"stack up, stop it, move {stack.root} away, start a new one and restore the backup"
            )
    runs = supervision.connect(stack) is not None
    kind = tls.kind(old.host, old.tls)
    if kind != old.tls:
        require_tls(old.proxy)
        if runs:
            raise StackError("TLS of a running stack cannot be changed: limbeck down first, then limbeck up again")
    pools = wanted.get("pools")
    new = replace(old, pools=old.pools if pools is None else pools, tls=kind)
    new = replace(new, worker_user=choose_worker_user(new, wanted.get("worker_user")))
    if new.worker_user != old.worker_user and runs:
        raise StackError("the workers of a running stack keep their user: limbeck down first, then limbeck up again")
    new = replace(new, ports={**old.ports, **{name: port for name, port in ports_in(wanted).items() if port}})
    new = replace(new, ports=of_a_running_one(new, held) if runs else held.choose_again(new))
    stack = replace(stack, settings=new)
    if new != old:
        stack.save()
    return stack


def of_a_running_one(settings: Settings, held: HeldPorts) -> dict[str, int]:
    """Return the ports of a running stack; an earlier release may have known fewer."""
    ports = dict(settings.ports)
    for name in INNER.keys() - ports.keys():
        ports[name] = held.first_free(INNER[name], ports.values())
    return ports


def require_tls(proxy: bool) -> None:
    """Refuse TLS where there is no nginx to terminate it."""
    if SOFTWARE["nginx"].missing:
        raise StackError(f"nginx terminates TLS, and is not installed; install it with: {SOFTWARE['nginx'].install}")
    if not proxy:
        raise StackError(
            "this stack was created without nginx, which terminates TLS; back the stack up, stop it, move its folder "
            "away, and restore the backup"
        )


def ports_in(wanted: StackOptions) -> dict[str, int | None]:
    """Return the requested ports, by the name of their server."""
    return {"prefect": wanted.get("prefect_port"), "mlflow": wanted.get("mlflow_port")}


def new_stack(stack: Stack, wanted: StackOptions, held: HeldPorts, tls: TlsOptions) -> Stack:
    """Choose the settings of a new stack and save them."""
    host, buckets, pools = wanted.get("host"), wanted.get("buckets"), wanted.get("pools")
    host = Settings.host if host is None else host
    if host in ("0.0.0.0", "::", ""):
        raise StackError(
            f"--host {host!r} is not an address that other machines can use; give the address or name under which "
            f"they reach this machine"
        )
    if kind := tls.kind(host):
        require_tls(True)
    ports = held.choose(host, ports_in(wanted))
    settings = Settings(
        host=host,
        ports=ports,
        s3=wanted.get("s3") or usual_s3(),
        buckets=Settings.buckets if buckets is None else buckets,
        pools=Settings.pools if pools is None else pools,
        proxy=not SOFTWARE["nginx"].missing,
        tls=kind,
    )
    if settings.s3 == "radosgw":
        for program in SOFTWARE["ceph"].programs:
            need(program)
    elif settings.s3 not in ("folder", "aws") and not settings.s3.startswith(("http://", "https://")):
        raise StackError(
            f"--s3 {settings.s3!r} is not an S3 server; write radosgw, folder, aws, or the URL of an S3 endpoint"
        )
    settings = replace(settings, worker_user=choose_worker_user(settings, wanted.get("worker_user")))
    stack.root.mkdir(mode=0o711, parents=True, exist_ok=True)
    stack = replace(stack, settings=settings)
    stack.save()
    return stack


def usual_s3() -> str:
    """Return the default S3 server of a new stack: the user's endpoint, else Ceph, else local folders."""
    named = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return named or ("folder" if SOFTWARE["ceph"].missing else "radosgw")
