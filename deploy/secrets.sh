#!/usr/bin/env bash
# Makes the passwords that compose.full.yaml reads, in deploy/secrets. What is there already stays.

set -euo pipefail

case ${1:-postgres} in
    postgres | redis) store=${1:-postgres} ;;
    *)
        echo "Usage: deploy/secrets.sh [postgres | redis]    where records are kept; postgres unless said" >&2
        exit 2
        ;;
esac

folder=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)/secrets
# Compose mounts the files as they are, and the containers' users are not yours: the files can be read by all, and the
# folder lets nobody but you reach them.
mkdir -p "$folder"
chmod 700 "$folder"
umask 022

random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }

# once NAME TEXT: a file, unless there is one.
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
# With appendonly a crash of the machine can lose a second.
once redis_conf "requirepass $(random)
appendonly yes
dir /data
"

# Made anew each time, so that it says what was asked for last.
if [[ $store == redis ]]; then
    password=$(sed -n 's/^requirepass //p' "$folder/redis_conf")
    printf 'redis://:%s@redis:6379/0' "$password" >"$folder/store_url"
else
    printf 'postgres://citetap:%s@postgres:5432/citetap' "$(cat "$folder/postgres_password")" >"$folder/store_url"
fi
echo "store_url: $store"
