#!/bin/sh
# Roles and databases, made once, when PostgreSQL starts on an empty volume. Passwords go by variables of psql, which quotes them.
set -eu
psql -v ON_ERROR_STOP=1 -U "$POSTGRES_USER" -d postgres -v prefect="$LIMBECK_PREFECT_DB_PASSWORD" -v mlflow="$LIMBECK_MLFLOW_DB_PASSWORD" -v monitor="$LIMBECK_METRICS_DB_PASSWORD" <<'SQL'
CREATE ROLE prefect LOGIN PASSWORD :'prefect';
CREATE ROLE mlflow LOGIN PASSWORD :'mlflow';
CREATE ROLE limbeck_monitor LOGIN CONNECTION LIMIT 3 PASSWORD :'monitor';
GRANT pg_monitor TO limbeck_monitor;
CREATE DATABASE prefect OWNER prefect;
CREATE DATABASE mlflow OWNER mlflow;
CREATE DATABASE mlflow_auth OWNER mlflow;
REVOKE ALL ON DATABASE prefect, mlflow, mlflow_auth FROM PUBLIC;
SQL
