#!/usr/bin/env bash
# Creates the passwords for compose.full.yaml in deploy/secrets. Existing files are kept.

set -euo pipefail

case ${1:-postgres} in
    postgres | redis) store=${1:-postgres} ;;
    *)
        echo "Usage: deploy/secrets.sh [postgres | redis]    where records are kept; postgres unless said" >&2
        exit 2
        ;;
esac

folder=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)/secrets
# Compose mounts the files with their permissions, and the containers run as other users. So the files are readable by all,
# and the folder is accessible only to you.
mkdir -p "$folder"
chmod 700 "$folder"
umask 022

random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }

# once NAME TEXT: create a file unless it exists.
once() {
    if [[ -s $folder/$1 ]]; then
        echo "$1: kept"
    else
        printf %s "$2" >"$folder/$1"
        echo "$1: made"
    fi
}

once postgres_password "$(random)"
once grafana_password "$(random)"
# With appendonly, a crash of the machine can lose the last second.
once redis_conf "requirepass $(random)
appendonly yes
dir /data
"

# Written every time, so that it matches the arguments of the last run.
if [[ $store == redis ]]; then
    password=$(sed -n 's/^requirepass //p' "$folder/redis_conf")
    printf 'redis://:%s@redis:6379/0' "$password" >"$folder/store_url"
else
    printf 'postgres://citetap:%s@postgres:5432/citetap' "$(cat "$folder/postgres_password")" >"$folder/store_url"
fi
echo "store_url: $store"
