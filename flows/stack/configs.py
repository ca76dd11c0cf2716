"""The configuration files of the stack's programs; each is written to the folder of the program that reads it."""

from __future__ import annotations

import os
import resource
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from flows.stack.services import Service, mlflow_database
from flows.stack.settings import Stack

MOST_OPEN_FILES = 65_536
"""Open files of a process, where the system allows as many."""


def redis_conf(stack: Stack, secret: Mapping[str, str]) -> str:
    """Return the configuration of Redis. Every write is on disk within a second, because Prefect's events wait here
    while its services are down."""
    return f"""\
bind 127.0.0.1
port {stack.settings.ports["redis"]}
dir "{stack.data / "redis"}"
requirepass "{secret["LIMBECK_REDIS_PASSWORD"]}"
appendonly yes
appendfsync everysec
maxmemory-policy noeviction
daemonize no
"""


def auth_ini(stack: Stack) -> str:
    """Return the account settings of MLflow: by default an account may read and edit the work of others, but not delete
    it. Passwords come from the environment."""
    return f"""\
[mlflow]
default_permission = EDIT
database_uri = {mlflow_database(stack, "mlflow_auth")}
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
"""


def nginx_conf(stack: Stack) -> str:
    """Return the configuration of nginx. A request that did not reach one API server goes to the other; after a lost
    response, the client must repeat a POST itself. Connections to the API servers are kept, for a shorter time than the
    servers would keep them (``flows/servers/serve.py``)."""
    ports, folder = stack.settings.ports, stack.data / "nginx"
    servers = "\n".join(f"    server 127.0.0.1:{ports[name]} max_fails=1 fail_timeout=2s;" for name in stack.replicas)
    temporary = "\n".join(
        f'  {kind}_temp_path "{folder / "temporary"}";' for kind in ("client_body", "proxy", "fastcgi", "scgi", "uwsgi")
    )
    return f"""\
daemon off;
pid "{folder / "nginx.pid"}";
worker_processes 1;
worker_rlimit_nofile {open_files()};
events {{ worker_connections {open_files() // 2}; }}
http {{
  access_log off;
  server_tokens off;
{temporary}
  map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
  upstream prefect {{
    least_conn;
{servers}
    keepalive 32;
    keepalive_timeout 30s;
  }}
{tls_settings(stack)}
{server_block(stack, "prefect", "http://prefect", PREFECT_PROXY)}
{behind_tls(stack)}
}}
"""


def open_files() -> int:
    """Return how many files a process of the stack may have open. Of a worker, and of each of its runs, an API server
    has two websockets open, and nginx both ends of each: with the usual 1,024, two hundred runs are too many."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else min(MOST_OPEN_FILES, hard)


PREFECT_PROXY = """\
proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $connection_upgrade;
      proxy_connect_timeout 2s;
      proxy_next_upstream error timeout http_502 http_503;"""
MLFLOW_PROXY = """\
proxy_request_buffering off;
      proxy_cookie_flags ~ secure httponly samesite=lax;"""
S3_PROXY = """\
proxy_request_buffering off;
      proxy_buffering off;"""
"""Settings of each server behind nginx. Models pass through in pieces: no copy of them is made on nginx's disk."""


def tls_settings(stack: Stack) -> str:
    """Return nginx's settings for TLS, empty without TLS: TLS 1.2 with forward secrecy, and 1.3.

    There is no Strict-Transport-Security: it would apply to every port of the host, also to those of other programs. A
    request without TLS is refused, and not redirected: its password has crossed the network by then.
    """
    if not stack.settings.tls:
        return ""
    return f"""\
  ssl_protocols TLSv1.2 TLSv1.3;
  ssl_ciphers ECDHE+AESGCM:ECDHE+CHACHA20;
  ssl_session_cache shared:tls:1m;
  ssl_session_tickets off;
  ssl_certificate "{stack.certificate}";
  ssl_certificate_key "{stack.certificate_key}";"""


def behind_tls(stack: Stack) -> str:
    """Return the server blocks of MLflow and the S3 server, which nginx serves only where it terminates TLS."""
    if not stack.settings.tls:
        return ""
    served = {"mlflow": MLFLOW_PROXY} | ({"s3": S3_PROXY} if stack.settings.s3 == "radosgw" else {})
    addresses = {name: "http://{}:{}".format(*stack.listens(name)) for name in served}
    return "\n".join(server_block(stack, name, addresses[name], words) for name, words in served.items())


def metrics_location(stack: Stack) -> str:
    """Return the place of the metrics for Prometheus among the pages of Prefect's address."""
    return f"""\
    location = /metrics {{
      proxy_pass {stack.inner_metrics_url};
      proxy_set_header Host $http_host;
    }}"""


def server_block(stack: Stack, name: str, target: str, words: str) -> str:
    """Return the block of one server: where nginx listens, and where it hands requests on."""
    size = "64m" if name == "prefect" else "0"
    return f"""\
  server {{
    listen {stack.settings.host}:{stack.settings.ports[name]}{" ssl" if stack.settings.tls else ""};
    client_max_body_size {size};
{metrics_location(stack) if name == "prefect" else ""}
    location / {{
      proxy_pass {target};
      proxy_http_version 1.1;
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-For $remote_addr;
      proxy_set_header X-Forwarded-Proto $scheme;
      proxy_read_timeout 1h;
      {words}
    }}
  }}"""


def supervisord_conf(stack: Stack, services: Iterable[Service]) -> str:
    """Return the configuration of the supervisor, which starts processes on request and restarts those that die.

    Its logs and pid file have paths relative to the stack's folder, where it is started: it expands percent signs in a
    path, and some of them twice.
    """
    head = f"""\
[unix_http_server]
file = {escape_percent(stack.supervisor_socket)}
chmod = 0700
[supervisord]
logfile = logs/supervisord.log
logfile_maxbytes = 10MB
logfile_backups = 2
pidfile = run/supervisord.pid
childlogdir = logs
umask = 077
minfds = {open_files()}
{"user = root" if os.geteuid() == 0 else ""}
[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
[supervisorctl]
serverurl = unix://{escape_percent(stack.supervisor_socket)}
"""
    return head + "".join(program_section(service) for service in services)


def program_section(service: Service) -> str:
    """Return the section of one process. A failed start is retried ten times with growing delays; then the process
    stays down until a person examines it."""
    return f"""
[program:{service.name}]
command = {escape_percent(shlex.quote(sys.executable))} -P -m flows.stack.launch {service.name}
autostart = false
autorestart = true
startsecs = 2
startretries = 10
stopsignal = {service.stop}
stopwaitsecs = {service.patience}
stopasgroup = {"false" if service.stop != "TERM" else "true"}
killasgroup = true
redirect_stderr = true
stdout_logfile = logs/{service.name}.log
stdout_logfile_maxbytes = 10MB
stdout_logfile_backups = 2
"""


def escape_percent(path: Path | str) -> str:
    """Return a path with its percent signs escaped for the supervisor."""
    return str(path).replace("%", "%%")
